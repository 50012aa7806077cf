"""`Pipeline`: steps and their dependencies, run as parallel as they allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Generic

from pydantic import JsonValue
from typing_extensions import TypeVar

from fastroai.contracts import Contract
from fastroai.contracts.accepted import Accepted, Accepts
from fastroai.contracts.annotations import Annotation
from fastroai.errors import ConfigurationError, FastroAIError, attach_trace
from fastroai.pipelines.contracting import bind_contracts
from fastroai.pipelines.definition import define
from fastroai.pipelines.drawing import critical_path, draw_mermaid
from fastroai.pipelines.estimate import PastRuns, estimate_steps, total
from fastroai.pipelines.live_trace import PipelinePart
from fastroai.pipelines.machine import PipelineMachine
from fastroai.pipelines.nesting import output_inside
from fastroai.pipelines.plan import build_plan
from fastroai.pipelines.replay import Orchestration, first_divergence
from fastroai.pipelines.result import OutputT, PipelineResult, PipelineUsage
from fastroai.pipelines.runner import PipelineRunner
from fastroai.pipelines.stream import PipelineStream
from fastroai.records import first_given
from fastroai.runs.around import entered, log_of, run_told
from fastroai.runs.inputs import check_inputs, check_mapping
from fastroai.runs.nesting import NestedStep
from fastroai.runs.on_record import StepsOnRecord, kept_on_record
from fastroai.runs.openings import RunKeeper, needed_store
from fastroai.runs.quality import quality_of
from fastroai.runs.request import RunRequest
from fastroai.runtime import Scope, current_scope, run_blocking
from fastroai.steps import BaseStep, ConversationState, PipelineConfig, StepConfig, StepContext
from fastroai.steps.config import limits_in, resolve_all
from fastroai.steps.context import RunFacts
from fastroai.steps.contracts import declared_output
from fastroai.steps.estimating import OutputsToCome
from fastroai.steps.hooks import Hooks, RunHooks
from fastroai.steps.once import OnceRegister
from fastroai.steps.outputs import Outputs
from fastroai.steps.shared import Shared
from fastroai.store.live_log import RunLog
from fastroai.store.run_store import RunStore
from fastroai.store.trace import Divergence, RunTrace
from fastroai.tracing import Tracer, attributes
from fastroai.usage import CostCalculator, Quote

DepsT = TypeVar("DepsT", default=Any, contravariant=True)


class Pipeline(Generic[DepsT, OutputT]):
    """Steps that run the moment their own dependencies are done.

        pipeline = Pipeline(
            "support",
            steps={"classify": classify, "extract": extract, "reply": reply},
            dependencies={"reply": ["classify", "extract"]},
        )
        result = await pipeline.execute({"text": "..."}, deps=deps)
        result.output, result.usage.total_cost_usd

    Write `Pipeline[Deps, str](...)` to tell the editor the types of `deps` and of the output.
    """

    def __init__(
        self,
        name: str,
        steps: Mapping[str, BaseStep[DepsT, Any]],
        dependencies: Mapping[str, Sequence[str]] | None = None,
        output_step: str | None = None,
        config: PipelineConfig | None = None,
        step_configs: Mapping[str, StepConfig] | None = None,
        contracts: Mapping[str, Contract] | None = None,
        accepts: Accepts | None = None,
    ) -> None:
        """Check and plan the pipeline.

        Args:
            name: Name in traces and errors.
            steps: Steps by id.
            dependencies: For a step, the ids of the steps whose outputs it needs. Steps that are not named
                need none.
            output_step: The step that gives the output; the one that no other needs, unless said.
            config: Settings of the pipeline, and defaults for its steps.
            step_configs: Settings by step id; they win over what the step says itself.
            contracts: Contracts by step id, such as a `ContractRegistry`; what they say wins too.
            accepts: The inputs of a run: types by name, or a TypedDict, model or dataclass with these names
                as fields. Inputs with other names pass unchecked.

        Raises:
            PipelineValidationError: it cannot run; with every problem at once.
            ConfigurationError: an option that cannot be meant.
        """
        if not isinstance(name, str) or not name:
            raise ConfigurationError("name", name, "a non-empty string")
        if not isinstance(steps, Mapping):
            raise ConfigurationError("steps", steps, "a mapping of step ids to steps")
        if config is not None and not isinstance(config, PipelineConfig):
            raise ConfigurationError("config", config, "a PipelineConfig")
        self.name = name
        self.steps: Mapping[str, BaseStep[DepsT, Any]] = MappingProxyType(dict(steps))
        self.config: PipelineConfig = config or PipelineConfig()
        self._accepts = None if accepts is None else Accepted(accepts)
        self._plan = build_plan(
            name, self.steps, dependencies, output_step, step_configs, contracts, self._accepts
        )
        self.contracts: Mapping[str, Contract] = MappingProxyType(dict(contracts or {}))
        self._checks = bind_contracts(self.steps, self.contracts)
        own = {step_id: one.config for step_id, one in self.steps.items()}
        self._configs = resolve_all(own, step_configs or {}, pipeline=self.config)
        self._exempt = frozenset(
            step_id for step_id, resolved in self._configs.items() if resolved.on_error == "continue"
        )
        self._limits = limits_in(self.config)
        self._calculator = CostCalculator()
        self._past_runs = PastRuns()
        self._hooks = RunHooks.of(
            Hooks.of(self.config), {step_id: resolved.hooks for step_id, resolved in self._configs.items()}
        )

    def __repr__(self) -> str:
        return f"Pipeline({self.name!r}, {len(self.steps)} steps)"

    # --- shape ---

    @property
    def dependencies(self) -> Mapping[str, tuple[str, ...]]:
        """Direct dependencies of every step."""
        return self._plan.dependencies

    @property
    def output_step(self) -> str:
        """The step that gives the output."""
        return self._plan.output_step

    def declared_output(self, step_id: str | None = None) -> Annotation | None:
        """The type that the output of a step is declared to have, that of the pipeline's unless said.

        `None` where none is.
        """
        step_id = step_id or self.output_step
        return declared_output(self.steps[step_id], self.contracts.get(step_id))

    @property
    def levels(self) -> list[list[str]]:
        """Steps by how many others must come before them; for reading, the run has no such barrier."""
        return self._plan.levels()

    def to_mermaid(self) -> str:
        """The pipeline as a Mermaid state diagram."""
        return draw_mermaid(self._plan)

    def replay(self, trace: RunTrace) -> Divergence | None:
        """Decide again what a run of this pipeline decided, on its recorded outcomes; runs and sends nothing.

        `None` if everything is decided as it was, else where it was first not. As `trace.replay(self)`.
        """
        return first_divergence(self._orchestration(), trace.entries)

    def _orchestration(self) -> Orchestration:
        return Orchestration(
            name=self.name,
            plan=self._plan,
            exempt=self._exempt,
            max_concurrency=self.config.max_concurrency,
            nested={
                step_id: one.inner._orchestration()
                for step_id, one in self.steps.items()
                if isinstance(one, NestedStep) and isinstance(one.inner, Pipeline)
            },
        )

    # --- running ---

    async def execute(
        self,
        inputs: Mapping[str, Any] | None = None,
        deps: DepsT | None = None,
        tracer: Tracer | None = None,
        *,
        context: MutableMapping[str, Any] | None = None,
        run_id: str | None = None,
        store: object = None,
    ) -> PipelineResult[OutputT]:
        """Run the pipeline to its result.

        Args:
            inputs: What steps read with `ctx.get_input`.
            deps: What steps find as `ctx.deps`, and agents called by `ctx.run` too.
            tracer: Where spans go; by default that of the run around this one.
            context: What steps find as `ctx.shared`, by reference: clients, caches.
            run_id: The id of the run; a new one unless given.
            store: Where it is put on record, so that it can be resumed; that of the config unless given.

        Raises:
            StepExecutionError: a step failed, after its retries. It has the outputs and the usage of what
                finished.
            CostBudgetExceeded: a budget of this pipeline, or of the run around it, is used up.
            TimeLimitExceeded: `total_timeout` ran out.
            ContractViolation: the inputs are not what the pipeline accepts.
            RunExists: the store has a run of this id.
            ValueNotStorable: an input cannot be stored.
            RunStoreUnavailable: the store fails, and has failed each time. What it has is kept.
        """
        return await self._begin(RunRequest(inputs, deps, tracer, context, run_id=run_id), store)

    def execute_sync(
        self,
        inputs: Mapping[str, Any] | None = None,
        deps: DepsT | None = None,
        tracer: Tracer | None = None,
        *,
        context: MutableMapping[str, Any] | None = None,
        run_id: str | None = None,
        store: object = None,
    ) -> PipelineResult[OutputT]:
        """`execute` for scripts and worker threads.

        Raises:
            RunningLoopError: this thread runs an event loop; await `execute`.
        """
        return run_blocking(
            lambda: self.execute(inputs, deps, tracer, context=context, run_id=run_id, store=store),
            called="pipeline.execute_sync",
            instead="pipeline.execute",
        )

    def stream(
        self,
        inputs: Mapping[str, Any] | None = None,
        deps: DepsT | None = None,
        tracer: Tracer | None = None,
        *,
        context: MutableMapping[str, Any] | None = None,
        run_id: str | None = None,
        store: object = None,
    ) -> PipelineStream[OutputT]:
        """Run the pipeline and iterate what happens, as typed events; `stream.result` has the result after.

            async with pipeline.stream(inputs) as stream:
                async for event in stream:
                    match event:
                        case TextChunk(step_id=step_id, text=text): ...
                        case StepFinished(step_id=step_id, usage=usage): ...

        Leaving early cancels the run. What `execute` raises is raised at the end of the iteration.
        """
        return PipelineStream(
            lambda listener: self._begin(
                RunRequest(inputs, deps, tracer, context, listener, run_id=run_id), store
            )
        )

    async def resume(
        self,
        run_id: str,
        *,
        store: object = None,
        deps: DepsT | None = None,
        tracer: Tracer | None = None,
        inputs: Mapping[str, Any] | None = None,
        context: MutableMapping[str, Any] | None = None,
        force: bool = False,
    ) -> PipelineResult[OutputT]:
        """Go on with a run that was interrupted, has failed, or waits for more from the user.

        What has finished is not run again, and responses and tool results that are on record are not paid
        for again. Budgets, usage, retries and conversations go on from where they were.

        Args:
            run_id: The run.
            store: Where it is on record; that of the config unless given.
            deps: As in `execute`; they are not stored.
            tracer: As in `execute`.
            inputs: New values for some inputs, such as what a user has said since.
            context: As in `execute`; it is not stored.
            force: Go on although the pipeline has changed.

        Raises:
            RunNotFound: the store has no such run.
            RunInProgress: it is running.
            RunDefinitionChanged: the pipeline has changed, unless `force`.
            RunCorrupt: its record cannot be read.
            RunFromNewerVersion: a later version of FastroAI has written its record.
            RunFromOlderVersion: an earlier version of FastroAI has written its record.
        """
        check_mapping(inputs)
        keeper = self._keeper(needed_store(store, self.config.store))
        opening = await keeper.take_up(run_id, inputs, force=force)
        return await self._execute(RunRequest(opening.inputs, deps, tracer, context, None, opening))

    def resume_sync(
        self,
        run_id: str,
        *,
        store: object = None,
        deps: DepsT | None = None,
        tracer: Tracer | None = None,
        inputs: Mapping[str, Any] | None = None,
        context: MutableMapping[str, Any] | None = None,
        force: bool = False,
    ) -> PipelineResult[OutputT]:
        """`resume` for scripts and worker threads. Raises as `execute_sync`."""
        return run_blocking(
            lambda: self.resume(
                run_id,
                store=store,
                deps=deps,
                tracer=tracer,
                inputs=inputs,
                context=context,
                force=force,
            ),
            called="pipeline.resume_sync",
            instead="pipeline.resume",
        )

    async def fork(
        self,
        run_id: str,
        *,
        at: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        new_run_id: str | None = None,
        store: object = None,
        deps: DepsT | None = None,
        tracer: Tracer | None = None,
        context: MutableMapping[str, Any] | None = None,
    ) -> PipelineResult[OutputT]:
        """Start a new run that has, at no cost, what another did before a point, and is different from there.

            await pipeline.fork("invoice-42", at="write", inputs={"tone": "formal"})
            await pipeline.fork("invoice-42", outputs={"classify": "complaint"})

        Args:
            run_id: The other run, which stays as it is.
            at: The step that runs again, and all that need it.
            inputs: New values for some inputs.
            outputs: Outputs by step id, instead of what these steps gave; all that need them run again.
            new_run_id: The id of the new run.
            store: As in `resume`.
            deps: As in `execute`.
            tracer: As in `execute`.
            context: As in `execute`.

        Raises:
            RunNotFound: the store has no such run.
            RunExists: the new id is taken.
            ConfigurationError: there is no such step, or it cannot have this output.
        """
        check_mapping(inputs)
        if outputs is not None and not isinstance(outputs, Mapping):
            raise ConfigurationError("outputs", outputs, "a mapping of step ids to outputs")
        keeper = self._keeper(needed_store(store, self.config.store))
        opening = await keeper.fork(run_id, at=at, inputs=inputs, outputs=outputs, new_run_id=new_run_id)
        return await self._execute(RunRequest(opening.inputs, deps, tracer, context, None, opening))

    def fork_sync(
        self,
        run_id: str,
        *,
        at: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        new_run_id: str | None = None,
        store: object = None,
        deps: DepsT | None = None,
        tracer: Tracer | None = None,
        context: MutableMapping[str, Any] | None = None,
    ) -> PipelineResult[OutputT]:
        """`fork` for scripts and worker threads. Raises as `execute_sync`."""
        return run_blocking(
            lambda: self.fork(
                run_id,
                at=at,
                inputs=inputs,
                outputs=outputs,
                new_run_id=new_run_id,
                store=store,
                deps=deps,
                tracer=tracer,
                context=context,
            ),
            called="pipeline.fork_sync",
            instead="pipeline.fork",
        )

    async def estimate(self, inputs: Mapping[str, Any] | None = None, deps: DepsT | None = None) -> Quote:
        """What `execute` with these inputs costs: at least, expected, at most, and why. Sends no request.

        `quote.parts` has each step: those of agents and nested pipelines are known, and others may say it
        themselves (`BaseStep.estimate`). Any other step is arbitrary code: without a budget of its own, or
        of the pipeline, nothing bounds it. At least is for runs that finish, without a conversation that
        stops them early.

        Functions that make prompts and inputs are called. Where they ask for the output of a step, the
        quote is for any prompt.
        """
        check_mapping(inputs)
        facts = RunFacts(
            pipeline=self.name,
            path=(self.name,),
            inputs=MappingProxyType({} if inputs is None else inputs),
            outputs=OutputsToCome(self._plan.dependencies),
            calculator=self._calculator,
        )
        quotes = await estimate_steps(self.steps, self._configs, facts, deps, self._limits)
        quote = total(self.name, self._plan, self._exempt, quotes, self._past_runs)
        return quote.within(None if self._limits is None else self._limits.budget)

    def estimate_sync(self, inputs: Mapping[str, Any] | None = None, deps: DepsT | None = None) -> Quote:
        """`estimate` for scripts and worker threads. Raises as `execute_sync`."""
        return run_blocking(
            lambda: self.estimate(inputs, deps), called="pipeline.estimate_sync", instead="pipeline.estimate"
        )

    def as_step(
        self,
        inputs: Callable[[StepContext[DepsT]], Mapping[str, Any]] | None = None,
        *,
        config: StepConfig | None = None,
    ) -> BaseStep[DepsT, OutputT]:
        """This pipeline as a step of another; its output is this one's.

        Args:
            inputs: Makes this pipeline's inputs; by default they are the outer run's, and the outputs of the
                step's direct dependencies under their ids.
            config: Settings of the step.
        """
        return NestedStep(self, inputs, config or StepConfig())

    async def run_inside(self, inputs: Mapping[str, Any], context: StepContext[Any]) -> OutputT:
        """Run inside a step, to what that gives. For `as_step`."""
        return await output_inside(self, inputs, context)

    async def _begin(self, request: RunRequest[DepsT], store: object) -> PipelineResult[OutputT]:
        begun = request.begun(store, self.config.store, self._keeper)
        return await self._execute(begun)

    def _keeper(self, store: RunStore) -> RunKeeper:
        return RunKeeper(
            definition=self.definition,
            input_types={} if self._accepts is None else self._accepts.types,
            output_types=self._output_types,
            dependents=self._plan.dependents,
            store=store,
            durability=self.config.durability,
            codec=self.config.codec,
        )

    @cached_property
    def definition(self) -> dict[str, JsonValue]:
        """Its shape, as plain data: what must not change while a run goes on."""
        on_error = {step_id: config.on_error for step_id, config in self._configs.items()}
        return define(self.name, self.steps, self.dependencies, self.output_step, on_error)

    @cached_property
    def _output_types(self) -> dict[str, Annotation]:
        types = {step_id: self.declared_output(step_id) for step_id in self.steps}
        return {step_id: declared for step_id, declared in types.items() if declared is not None}

    async def _execute(self, request: RunRequest[DepsT]) -> PipelineResult[OutputT]:
        opening, tracer = request.opening, request.tracer_of(current_scope())
        scope = request.scope("pipeline", self.name, self.config, self._limits, self._hooks)
        runner: PipelineRunner | None = None
        log: RunLog | None = None
        try:
            async with scope, AsyncExitStack() as stack:
                await entered(
                    stack,
                    scope,
                    span=attributes.pipeline_span(self.name),
                    facts=attributes.pipeline_attributes(name=self.name, run_id=scope.run_id),
                    seconds=first_given(self.config.total_timeout, default=None),
                )
                inputs = await check_inputs(self._accepts, dict(request.inputs or {}), scope)
                steps = StepsOnRecord.nested(scope, lambda: self._output_types)
                if opening is not None:
                    run = await stack.enter_async_context(kept_on_record(await opening.open(inputs), scope))
                    steps = StepsOnRecord(run, scope, self._output_types)
                facts = RunFacts(
                    pipeline=self.name,
                    path=scope.path,
                    inputs=MappingProxyType(dict(inputs)),
                    outputs=Outputs(self._plan.dependencies),
                    calculator=self._calculator,
                    shared=Shared.of(request.context),
                    declared={} if steps is None else self._output_types,
                    once=stack.enter_context(OnceRegister.of_run()),
                )
                runner = PipelineRunner(
                    plan=self._plan,
                    steps=self.steps,
                    configs=self._configs,
                    contracts=self._checks,
                    machine=PipelineMachine(
                        self._plan, exempt=self._exempt, max_concurrency=self.config.max_concurrency
                    ),
                    scope=scope,
                    facts=facts,
                    deps=request.deps,
                    tracer=tracer,
                    on_record=steps,
                )
                log = log_of(stack, scope, partial(PipelinePart, runner=runner, definition=self.definition))
                await run_told(runner, scope, tuple(self.steps))
            self._past_runs.add(scope.spent())
            return self._result(runner, facts, scope, log)
        except BaseException as error:
            if runner is not None and log is not None:
                attach_trace(error, log)
                runner.failure = runner.failure or error  # of what is around it, such as a time limit
                if isinstance(error, FastroAIError):
                    error.step_outputs, error.run_id = dict(runner.facts.outputs.values), scope.run_id
            raise

    def _result(
        self, runner: PipelineRunner, facts: RunFacts, scope: Scope, log: RunLog
    ) -> PipelineResult[OutputT]:
        outputs = facts.outputs.values
        stopping = _first_incomplete(outputs, self._plan.dependencies)
        output = None if stopping is not None else outputs.get(self._plan.output_step)
        state = stopping if stopping is not None else output
        return PipelineResult(
            output=output,  # type: ignore[arg-type]  # what the output step gives is OutputT by declaration
            output_step=self._plan.output_step,
            step_outputs=dict(outputs),
            usage=PipelineUsage(scope, runner.step_scopes, runner.timings),
            errors=runner.errors,
            skipped=runner.skipped,
            conversation_state=state if isinstance(state, ConversationState) else None,
            stopped_early=stopping is not None,
            run_id=scope.run_id,
            log=log,
            timings=runner.timings,
            critical_path=critical_path(self._plan, runner.timings),
            quality=quality_of(scope, runner.errors, runner.step_scopes.values()),
        )


def _first_incomplete(
    outputs: Mapping[str, object], order: Mapping[str, object]
) -> ConversationState[Any] | None:
    """Of the states that asked to stop, the first in declaration order."""
    for step_id in order:
        output = outputs.get(step_id)
        if isinstance(output, ConversationState) and output.is_incomplete:
            return output
    return None
