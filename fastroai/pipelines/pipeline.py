"""`Pipeline`: steps and their dependencies, run as parallel as they allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from time import perf_counter
from types import MappingProxyType
from typing import Any, Generic

from typing_extensions import TypeVar

from fastroai.errors import ConfigurationError, FastroAIError
from fastroai.pipelines.drawing import critical_path, draw_mermaid
from fastroai.pipelines.estimate import PastRuns, estimate_steps, total
from fastroai.pipelines.machine import PipelineMachine
from fastroai.pipelines.nesting import NestedStep
from fastroai.pipelines.plan import build_plan
from fastroai.pipelines.result import OutputT, PipelineResult, PipelineUsage
from fastroai.pipelines.runner import PipelineRunner
from fastroai.pipelines.stream import PipelineStream
from fastroai.records import first_given
from fastroai.runtime import (
    Clock,
    Listener,
    RunFinished,
    RunStarted,
    Scope,
    current_scope,
    run_blocking,
)
from fastroai.steps import (
    BaseStep,
    ConversationState,
    PipelineConfig,
    ResolvedConfig,
    StepConfig,
    StepContext,
)
from fastroai.steps.config import limits_in, resolve
from fastroai.steps.context import RunFacts
from fastroai.steps.estimating import OutputsToCome
from fastroai.steps.outputs import Outputs
from fastroai.tracing import NoOpTracer, Tracer, attributes, log_metrics
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
        self._plan = build_plan(name, self.steps, dependencies, output_step, step_configs)
        self._configs = _resolve_all(self.steps, step_configs or {}, self.config)
        self._exempt = frozenset(
            step_id for step_id, resolved in self._configs.items() if resolved.on_error == "continue"
        )
        self._limits = limits_in(self.config)
        self._calculator = CostCalculator()
        self._past_runs = PastRuns()

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

    @property
    def levels(self) -> list[list[str]]:
        """Steps by how many others must come before them; for reading, the run has no such barrier."""
        return self._plan.levels()

    def to_mermaid(self) -> str:
        """The pipeline as a Mermaid state diagram."""
        return draw_mermaid(self._plan)

    # --- running ---

    async def execute(
        self, inputs: Mapping[str, Any] | None = None, deps: DepsT | None = None, tracer: Tracer | None = None
    ) -> PipelineResult[OutputT]:
        """Run the pipeline to its result.

        Args:
            inputs: What steps read with `ctx.get_input`.
            deps: What steps find as `ctx.deps`, and agents called by `ctx.run` too.
            tracer: Where spans go; by default that of the run around this one.

        Raises:
            StepExecutionError: a step failed, after its retries. It has the outputs and the usage of what
                finished.
            CostBudgetExceeded: a budget of this pipeline, or of the run around it, is used up.
            TimeLimitExceeded: `total_timeout` ran out.
        """
        return await self._execute(inputs, deps, tracer, None)

    def execute_sync(
        self, inputs: Mapping[str, Any] | None = None, deps: DepsT | None = None, tracer: Tracer | None = None
    ) -> PipelineResult[OutputT]:
        """`execute` for scripts and worker threads.

        Raises:
            RunningLoopError: this thread runs an event loop; await `execute`.
        """
        return run_blocking(
            lambda: self.execute(inputs, deps, tracer),
            called="pipeline.execute_sync",
            instead="pipeline.execute",
        )

    def stream(
        self, inputs: Mapping[str, Any] | None = None, deps: DepsT | None = None, tracer: Tracer | None = None
    ) -> PipelineStream[OutputT]:
        """Run the pipeline and iterate what happens, as typed events; `stream.result` has the result after.

            async with pipeline.stream(inputs) as stream:
                async for event in stream:
                    match event:
                        case TextChunk(step_id=step_id, text=text): ...
                        case StepFinished(step_id=step_id, usage=usage): ...

        Leaving early cancels the run. What `execute` raises is raised at the end of the iteration.
        """
        return PipelineStream(lambda listener: self._execute(inputs, deps, tracer, listener))

    async def estimate(self, inputs: Mapping[str, Any] | None = None, deps: DepsT | None = None) -> Quote:
        """What `execute` with these inputs costs: at least, expected, at most, and why. Sends no request.

        `quote.parts` has each step: those of agents and nested pipelines are known, and others may say it
        themselves (`BaseStep.estimate`). Any other step is arbitrary code: without a budget of its own, or
        of the pipeline, nothing bounds it. At least is for runs that finish, without a conversation that
        stops them early.

        Functions that make prompts and inputs are called. Where they ask for the output of a step, the
        quote is for any prompt.
        """
        if inputs is not None and not isinstance(inputs, Mapping):
            raise ConfigurationError("inputs", inputs, "a mapping of names to values")
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

    async def _execute(
        self,
        inputs: Mapping[str, Any] | None,
        deps: DepsT | None,
        tracer: Tracer | None,
        listener: Listener | None,
    ) -> PipelineResult[OutputT]:
        if inputs is not None and not isinstance(inputs, Mapping):
            raise ConfigurationError("inputs", inputs, "a mapping of names to values")
        parent = current_scope()
        if tracer is None and parent is not None:
            tracer = parent.tracer
        scope = Scope(
            "pipeline",
            self.name,
            parent=parent,
            limits=self._limits,
            deps=deps,
            tracer=tracer if first_given(self.config.trace, default=True) else NoOpTracer(),
            listener=listener,
        )
        runner: PipelineRunner | None = None
        try:
            async with scope, AsyncExitStack() as stack:
                await self._enter(stack, scope)
                facts = RunFacts(
                    pipeline=self.name,
                    path=scope.path,
                    inputs=MappingProxyType(dict(inputs or {})),
                    outputs=Outputs(self._plan.dependencies),
                    calculator=self._calculator,
                )
                runner = PipelineRunner(
                    plan=self._plan,
                    steps=self.steps,
                    configs=self._configs,
                    machine=PipelineMachine(
                        self._plan, exempt=self._exempt, max_concurrency=self.config.max_concurrency
                    ),
                    scope=scope,
                    facts=facts,
                    deps=deps,
                    tracer=tracer,
                )
                await _run_told(runner, scope, self.name, tuple(self.steps))
                self._past_runs.add(scope.spent())
                return self._result(runner, facts, scope)
        except FastroAIError as error:
            if runner is not None:
                error.step_outputs, error.run_id = dict(runner.facts.outputs.values), scope.run_id
            raise

    async def _enter(self, stack: AsyncExitStack, scope: Scope) -> None:
        """Open the span and start the clock of the whole run."""
        if (tracer := scope.tracer) is not None:
            trace_id = await stack.enter_async_context(
                tracer.span(
                    attributes.pipeline_span(self.name),
                    **attributes.pipeline_attributes(name=self.name, run_id=scope.run_id),
                )
            )
            stack.callback(lambda: log_metrics(tracer, trace_id, attributes.usage_attributes(scope.spent())))
        seconds = first_given(self.config.total_timeout, default=None)
        if seconds is not None:
            clock = await stack.enter_async_context(Clock(seconds, f"pipeline {self.name!r}"))
            scope.add_clock(clock)
            stack.callback(scope.remove_clock, clock)

    def _result(self, runner: PipelineRunner, facts: RunFacts, scope: Scope) -> PipelineResult[OutputT]:
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
            timings=runner.timings,
            critical_path=critical_path(self._plan, runner.timings),
        )


async def _run_told(runner: PipelineRunner, scope: Scope, name: str, steps: tuple[str, ...]) -> None:
    """Run, tell listeners of the start and the end, and raise what stopped the run."""
    if scope.listener is None:
        await runner.run()
    else:
        started = perf_counter()
        await scope.emit(RunStarted(run_id=scope.run_id, pipeline=name, path=scope.path, steps=steps))
        await runner.run()
        await scope.emit(
            RunFinished(
                run_id=scope.run_id,
                pipeline=name,
                path=scope.path,
                usage=scope.spent(),
                duration_ms=(perf_counter() - started) * 1000,
                error=runner.failure,
            )
        )
    if runner.failure is not None:
        raise runner.failure


def _resolve_all(
    steps: Mapping[str, BaseStep[Any, Any]], step_configs: Mapping[str, StepConfig], config: PipelineConfig
) -> dict[str, ResolvedConfig]:
    """Settings of every step; steps with the same settings share one."""
    known: dict[tuple[StepConfig | None, StepConfig], ResolvedConfig] = {}
    resolved: dict[str, ResolvedConfig] = {}
    for step_id, step in steps.items():
        named = step_configs.get(step_id)
        key = (named, step.config)
        if key not in known:
            known[key] = resolve(*(own for own in key if own is not None), pipeline=config)
        resolved[step_id] = known[key]
    return resolved


def _first_incomplete(
    outputs: Mapping[str, object], order: Mapping[str, object]
) -> ConversationState[Any] | None:
    """Of the states that asked to stop, the first in declaration order."""
    for step_id in order:
        output = outputs.get(step_id)
        if isinstance(output, ConversationState) and output.is_incomplete:
            return output
    return None
