"""`Pipeline`: steps and their dependencies, run in parallel as far as these allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from pydantic import JsonValue

from fastroai.contracts import Contract
from fastroai.contracts.accepted import Accepted, Accepts
from fastroai.contracts.annotations import Annotation
from fastroai.errors import ConfigurationError, FastroAIError, attach_trace
from fastroai.other_names import OTHER_CALLS, OTHER_OPTIONS, other_names
from fastroai.pipelines.contracting import bind_contracts
from fastroai.pipelines.estimate import PastRuns, estimate_steps, total
from fastroai.pipelines.plan import build_plan
from fastroai.pipelines.replay import Orchestrated, Orchestration, first_divergence
from fastroai.pipelines.result import OutputT, PipelineResult, output_inside
from fastroai.pipelines.run import PipelineRun
from fastroai.pipelines.setup import PipelineSetup
from fastroai.records import RunKind
from fastroai.rows.child_runs import RunRows, parameters_of
from fastroai.rows.door import MapsRows
from fastroai.rows.target import RowTarget
from fastroai.runs.door import FrontDoor, check_config, check_version
from fastroai.runs.execution import Execution
from fastroai.runs.inputs import check_mapping
from fastroai.runs.nesting import NestedStep, definition_inside
from fastroai.runs.openings import RunKeeper
from fastroai.runs.request import RunRequest
from fastroai.runs.signatures import (
    DepsT,
    Estimates,
    InputT,
    blocking_twin,
    estimating,
)
from fastroai.runtime import Scope
from fastroai.steps import BaseStep, PipelineConfig, StepConfig, StepContext
from fastroai.steps.config import limits_in, resolve_all
from fastroai.steps.context import RunData, StepData
from fastroai.steps.contracts import declared_output
from fastroai.steps.estimating import OutputsToCome
from fastroai.steps.hooks import Hooks, RunHooks
from fastroai.store.reading.trace import Divergence, RunTrace
from fastroai.store.run_store import RunStore
from fastroai.usage import Quote
from fastroai.usage.limits import NO_LIMITS

if TYPE_CHECKING:  # few programs draw
    from fastroai.drawing import Drawing


@other_names(
    arguments={
        **OTHER_OPTIONS,
        "max_concurrency": "config=PipelineConfig(max_concurrency=…)",
        "budget": "config=PipelineConfig(budget=…)",
        "cost_budget": "config=PipelineConfig(cost_budget=…)",
    },
    attributes={
        "node": "@step(accepts=…, returns=…)",
        "with_redis": "PipelineConfig(store=RedisRunStore(url))",
        "with_budget": "PipelineConfig(budget=Budget(tokens=…, usd=…, ms=…))",
        "with_classifiers": "PipelineConfig(classifiers=[…])",
        "with_hooks": "PipelineConfig(on_step_start=…, on_step_success=…, on_step_failure=…)",
        "with_context": "run(context={…})",
        "with_policy_map": "PipelineConfig(retry={…})",
        "with_node_policies": "Pipeline(step_configs={step_id: StepConfig(retry={…})})",
        "with_node_timeouts": "Pipeline(step_configs={step_id: StepConfig(timeout=…)}), in seconds",
        "with_model_fallback": "Budget(…, fallback=ModelFallback(at=…, use=…))",
        **OTHER_CALLS,
    },
)
class Pipeline(
    FrontDoor[DepsT, InputT, PipelineResult[OutputT]], MapsRows[OutputT], Generic[DepsT, InputT, OutputT]
):
    """A set of steps, each of which starts the moment that its own dependencies are done.

        pipeline = Pipeline(
            "support",
            steps={"classify": classify, "extract": extract, "reply": reply},
            dependencies={"reply": ["classify", "extract"]},
        )
        result = await pipeline.execute({"text": "..."}, deps=deps)
        result.output, result.usage.cost_usd

    Write `Pipeline[Deps, Ticket, str](...)` to tell the editor the types of `deps`, of the inputs and of the
    output. The type of the inputs is a TypedDict or any other mapping, such as `dict[str, str]`.
    """

    kind: ClassVar[RunKind] = "pipeline"  # pyright: ignore[reportIncompatibleVariableOverride]  # routers are no runs

    def __init__(
        self,
        name: str,
        steps: Mapping[str, BaseStep[DepsT, Any]],
        dependencies: Mapping[str, Sequence[str]] | None = None,
        output_step: str | None = None,
        config: PipelineConfig | None = None,
        step_configs: Mapping[str, StepConfig] | None = None,
        contracts: Mapping[str, Contract] | None = None,
        accepts: type[InputT] | Accepts | None = None,
        version: str | None = None,
    ) -> None:
        """Check and plan the pipeline.

        Args:
            name: Name in traces and errors.
            steps: Steps by id.
            dependencies: For a step, the ids of the steps whose outputs it needs. Steps that are not named
                need none.
            output_step: The step that gives the output; by default the one that no other step needs.
            config: Settings of the pipeline, and defaults for its steps.
            step_configs: Settings by step id; they override the settings of the step itself.
            contracts: Contracts by step id, such as a `ContractRegistry`; they override those of the steps.
            accepts: The inputs of a run: types by name, or a TypedDict, model or dataclass with these names
                as fields. Inputs with other names pass unchecked.
            version: Name of this version of the definition. It is on record with its runs, and in the error
                if the definition has changed since a run was started.

        Raises:
            PipelineValidationError: the pipeline cannot run. The error lists every problem.
            ConfigurationError: an option is invalid.
        """
        if not isinstance(name, str) or not name:
            raise ConfigurationError("name", name, "a non-empty string")
        if not isinstance(steps, Mapping):
            raise ConfigurationError("steps", steps, "a mapping of step ids to steps")
        check_config(config)
        check_version(version)
        self.name, self.version = name, version
        self.steps: Mapping[str, BaseStep[DepsT, Any]] = MappingProxyType(dict(steps))
        self.config: PipelineConfig = config or PipelineConfig()
        self._accepts = None if accepts is None else Accepted(accepts)
        plan = build_plan(name, self.steps, dependencies, output_step, step_configs, contracts, self._accepts)
        self.contracts: Mapping[str, Contract] = MappingProxyType(dict(contracts or {}))
        own = {step_id: one.config for step_id, one in self.steps.items()}
        configs = resolve_all(own, step_configs or {}, pipeline=self.config)
        self._setup = PipelineSetup(
            name=name,
            plan=plan,
            steps=self.steps,
            configs=configs,
            contracts=bind_contracts(self.steps, self.contracts),
            exempt=frozenset(
                step_id for step_id, resolved in configs.items() if resolved.on_error == "continue"
            ),
            max_concurrency=self.config.max_concurrency,
            said=self.contracts,
        )
        self._limits = limits_in(self.config)
        self._past_runs = PastRuns()
        self._execution = Execution(
            self.kind,
            name,
            self.config,
            self._limits,
            RunHooks.of(
                Hooks.of(self.config), {step_id: resolved.hooks for step_id, resolved in configs.items()}
            ),
            self._accepts,
            self.estimate,
        )

    def __repr__(self) -> str:
        return f"Pipeline({self.name!r}, {len(self.steps)} steps)"

    # --- shape ---

    @property
    def dependencies(self) -> Mapping[str, tuple[str, ...]]:
        """For every step, by id, the ids of the steps that it needs directly; an empty tuple for none."""
        return self._setup.plan.dependencies

    @property
    def output_step(self) -> str:
        """Id of the step whose output is the pipeline's output."""
        return self._setup.plan.output_step

    def declared_output(self, step_id: str | None = None) -> Annotation | None:
        """Return the declared type of the output of a step, by default of the output step.

        A contract of the step decides first. Return `None` if no type is declared.

        Raises:
            KeyError: there is no step with this id.
        """
        step_id = step_id or self.output_step
        return declared_output(self.steps[step_id], self.contracts.get(step_id))

    @property
    def levels(self) -> list[list[str]]:
        """Ids of the steps, in lists by level: the first list has the steps that need no other step.

        The level of a step is the length of the longest chain of steps before it. Levels are for display: a
        run starts each step as soon as its own dependencies are done.
        """
        return self._setup.plan.levels()

    def to_mermaid(self, result: PipelineResult[Any] | None = None) -> str:
        """Return the pipeline as the text of a Mermaid diagram.

        With a result, the diagram is of the run that gave it, and marks what each step did.
        """
        from fastroai.drawing import mermaid

        return mermaid(self._drawing(result))

    def to_svg(self, result: PipelineResult[Any] | None = None) -> str:
        """Return the pipeline as an SVG image, as text.

        With a result, the image is of the run that gave it, and marks what each step did.
        """
        from fastroai.drawing import svg

        return svg(self._drawing(result))

    def _drawing(self, result: PipelineResult[Any] | None) -> Drawing:
        from fastroai.store.reading.run_drawing import draw_shape

        return draw_shape(self.definition) if result is None else result.trace.drawing()

    def replay(self, trace: RunTrace) -> Divergence | None:
        """Repeat the decisions of a run on its recorded outcomes, and return the first difference, if any.

        `None` means that this pipeline would have started, skipped and ended the same. A `Divergence` has the
        position in the log, and both decisions. Nested pipelines and routers are compared, too. No step is
        run and nothing is sent. `trace.replay(self)` does the same.

        Raises:
            ConfigurationError: it is the trace of a run of another kind, such as that of a graph. (The trace
                of a pipeline with another name is a difference.)
        """
        (orchestration,) = self.orchestrations()
        return first_divergence(orchestration, trace)

    def orchestrations(self) -> tuple[Orchestration, ...]:
        """Return what `replay` needs to decide as a run does: one `Orchestration`, that of this pipeline.

        It holds the steps and their settings, and the orchestrations of the pipelines and routers that steps
        run. `replay` calls this; you need not.
        """
        nested = {
            step_id: one.inner.orchestrations()
            for step_id, one in self.steps.items()
            if isinstance(one, NestedStep) and isinstance(one.inner, Orchestrated)
        }
        return (Orchestration(self._setup, nested),)

    # --- running ---

    @estimating
    async def estimate(
        self,
        inputs: InputT = None,  # type: ignore[assignment]
        deps: DepsT = None,  # type: ignore[assignment]
    ) -> Quote:
        """Estimate the cost of `execute` with these inputs: at least, expected, at most, and why.

        It sends no request. The amounts of the quote are in US dollars; `upper_usd` is `None` if nothing
        limits the cost. `quote.parts` has the quote of each step. Steps of agents and nested pipelines
        have one; other steps can return one from `BaseStep.estimate`. Any other step is arbitrary code: only
        its own budget, or that of the pipeline, limits its cost. Then the expected cost is the mean of the
        last runs in this process, if there were any. The least cost assumes that the run finishes, and that
        no conversation stops it early.

        Functions that make prompts and inputs are called, and their exceptions are raised. If one of them
        needs the output of a step, the quote is for any prompt.

        Raises:
            ConfigurationError: `inputs` is not a mapping.
        """
        check_mapping(inputs)
        data = StepData(
            RunData(self.name, (self.name,)),
            MappingProxyType({} if inputs is None else inputs),
            OutputsToCome(self._setup.plan.dependencies),
        )
        quotes = await estimate_steps(self.steps, self._setup.configs, data, deps, self._limits)
        quote = total(self.name, self._setup.plan, self._setup.exempt, quotes, self._past_runs)
        return quote.within(*(self._limits or NO_LIMITS).budgets)

    estimate_sync: Estimates[DepsT, InputT, Quote] = blocking_twin(estimate, of="pipeline")

    def as_step(
        self,
        inputs: Callable[[StepContext[DepsT]], Mapping[str, Any]] | None = None,
        *,
        config: StepConfig | None = None,
    ) -> BaseStep[DepsT, OutputT]:
        """Return this pipeline as a step of another. The step has the pipeline's output.

        The spending of the pipeline is part of the step's. If the pipeline fails, so does the step.

        Args:
            inputs: A function of the `StepContext` that returns this pipeline's inputs; by default they are
                the outer run's, and the outputs of the step's direct dependencies under their ids, which
                replace inputs of the same name.
            config: Settings of the step. Set `total_timeout` to limit its time: `timeout` raises
                `ConfigurationError`.
        """
        return NestedStep(self, inputs, config or StepConfig())  # pyright: ignore[reportArgumentType]

    async def run_inside(self, inputs: Mapping[str, Any], context: StepContext[Any]) -> OutputT:
        """Run the pipeline inside a step, and return its output. The step of `as_step` calls this.

        `context` is that of the step: the pipeline gets its `deps` and shared objects. If a conversation
        stops the pipeline early, its incomplete `ConversationState` is returned, which stops the run around
        it, too.

        Raises:
            StepExecutionError: a step failed, so that there is no output.
            BudgetExceeded: a budget stopped the pipeline.
            ConfigurationError: the pipeline is paused, and no store keeps the run around it.
        """
        request = RunRequest(inputs, context.deps, context=context.shared, is_step=True)
        return output_inside(await self._begin(request), context)

    def _keeper(self, store: RunStore) -> RunKeeper:
        return RunKeeper(
            definition=self.definition,
            input_types={} if self._accepts is None else self._accepts.types,
            output_types=self._setup.declared,
            store=store,
            durability=self.config.durability,
            on_changed=self.config.on_changed,
            codec=self.config.codec,
            terms=self.config.lease_terms,
        )

    @cached_property
    def definition(self) -> dict[str, JsonValue]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Shape of the pipeline as plain data.

        A run can be resumed if the parts that it has reached have the same shape, or with `force`.
        """
        # All that decides which steps run after which others, and no prompts, code, time limits, retries and
        # budgets: these may change before a run is resumed.
        plan, configs = self._setup.plan, self._setup.configs
        return {
            "name": self.name,
            "steps": {
                step_id: {
                    "needs": list(plan.dependencies[step_id]),
                    "on_error": configs[step_id].on_error,
                    "runs": definition_inside(step),
                }
                for step_id, step in self.steps.items()
            },
            "output_step": plan.output_step,
            **({} if self.version is None else {"version": self.version}),
        }

    def rows_target(self) -> RowTarget[OutputT]:
        """Return the object with which `map` runs this pipeline for each row. Call `map` instead.

        A row has the inputs of a run, and gets the output of that run.
        """
        return RunRows(
            door=self,
            returns=self.declared_output(),
            steps=self.steps,
            estimate=self.estimate,
            parameters=parameters_of(self._accepts),
        )

    async def _execute(self, request: RunRequest[DepsT]) -> PipelineResult[OutputT]:
        return (await self._perform(self._setup, request)).result()

    async def _perform(
        self, setup: PipelineSetup, request: RunRequest[DepsT], scope: Scope | None = None
    ) -> PipelineRun:
        """Run the pipeline to its end. `setup` is its own, or one with steps that were made for this run."""
        execution = self._execution
        scope = scope or execution.scope(request)
        run: PipelineRun | None = None
        try:
            async with AsyncExitStack() as stack:
                opened = await execution.open(stack, request, scope, self.definition)
                run = PipelineRun(setup, opened, request)
                finish = await execution.perform(opened, run.runner, run.decisions)
                if finish.raised is not None:
                    raise finish.raised
        except BaseException as error:
            if run is not None:
                attach_trace(error, run.log)  # pyright: ignore[reportArgumentType]
                await execution.tell_end(run.runner, error)
                if isinstance(error, FastroAIError):
                    error.step_outputs, error.run_id = run.outputs, scope.run_id
            raise
        opened.halt_around(finish)
        self._past_runs.add(scope.known_spending.usage)
        return run
