"""The result of a pipeline run, and the output that a step around it gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, Generic, TypeAlias

from typing_extensions import TypeVar

from fastroai.errors import ConfigurationError, StepExecutionError
from fastroai.other_names import other_names
from fastroai.pipelines.plan import Plan
from fastroai.runs.result import RunResult
from fastroai.runs.running.units import BegunUnits
from fastroai.runs.stream import RunStream
from fastroai.runs.usage import RunUsage, StepTiming, steps_together
from fastroai.runtime import Scope
from fastroai.runtime.facts import ReasonCode, RunStatus, Wait
from fastroai.steps import ConversationState, StepContext, StepUsage
from fastroai.steps.context import scope_of
from fastroai.store.open_questions import Question
from fastroai.store.reading.run_quality import Quality
from fastroai.store.record.log import RunLog
from fastroai.tracing import TraceSpan

OutputT = TypeVar("OutputT", default=Any, covariant=True)


class PipelineUsage(RunUsage):
    """The cost, tokens and requests of a run of a pipeline, and of each of its steps.

    Its sums, such as `cost_usd`, are those of the whole run, with what it spent in earlier processes. `steps`
    has a `StepUsage` for each step, by id. The usages of several runs can be added.
    """

    def __init__(self, scope: Scope, units: BegunUnits, origin: float, since: float | None = None) -> None:
        """Take the scope of a run that has ended, and its steps.

        `origin` is the time from which the steps count theirs, and `since` the start of the run, if that
        differs.
        """
        super().__init__(scope)
        self._units, self._origin = units, origin
        self._before_ms = 0.0 if since is None else (origin - since) * 1000

    def __getstate__(self) -> dict[str, object]:
        """Plain data for pickling and copying: the steps' usage and times instead of their live scopes."""
        known = {"steps": self.steps, "timings": self.timings, "processing_time_ms": self.processing_time_ms}
        return {**self.__dict__, **known, "_units": BegunUnits()}

    def _added(self, other: Any) -> dict[str, object]:
        return {
            **super()._added(other),
            "steps": steps_together(self.steps, other.steps),
            "timings": {},
            "processing_time_ms": self.processing_time_ms + other.processing_time_ms,
        }

    def within(self, scope: Scope, since: float) -> PipelineUsage:
        """Return the usage of the run of a router around this one. `PipelineResult.within` calls this.

        The totals are those of `scope`, the scope of that run. The steps are the same, with their times
        counted from `since`, the start of that run as a value of `time.perf_counter`.
        """
        return PipelineUsage(scope, self._units, self._origin, since)

    def model_dump(self) -> dict[str, object]:
        """Return a dict of `total`, `cost_complete`, `by_model`, `by_variant` and `steps`, the usage by step.

        The values are objects, such as a `Usage`; `result.model_dump()` has them as values of JSON.
        """
        return {**super().model_dump(), "steps": self.steps}

    @cached_property
    def steps(self) -> Mapping[str, StepUsage]:
        """Usage of every step that started, by step id."""
        return {step_id: unit.usage for (step_id, _), unit in self._units.items()}

    @cached_property
    def timings(self) -> Mapping[str, StepTiming]:
        """When each step ran, by step id. Empty in a sum of runs, because they have no common start."""
        return {
            step_id: StepTiming(self._before_ms + unit.started_ms, self._before_ms + unit.finished_ms)
            for (step_id, _), unit in self._units.items()
            if unit.is_over
        }

    @cached_property
    def processing_time_ms(self) -> float:
        """Wall time from the start of the run to the end of its last step, in milliseconds."""
        return max((timing.finished_ms for timing in self.timings.values()), default=0.0)

    @property
    def by_step(self) -> Mapping[str, StepUsage]:
        """Usage of every step that started, a `StepUsage` by step id. It is the same as `steps`."""
        return self.steps

    # --- names of fastroai 0.6 ---

    @property
    def pipeline_span(self) -> TraceSpan | None:
        """The span of the run, if a tracer made one; otherwise `None`. It is the same as `span`."""
        return self.span

    @property
    def total_cost_usd(self) -> Decimal:
        """Exact known cost of the run in US dollars. It is the same as `cost_usd`."""
        return self.cost_usd

    @property
    def total_cost_microcents(self) -> int:
        """Known cost of the run in microcents ($1 = 1,000,000), rounded. It is `cost_microcents`."""
        return self.cost_microcents

    @property
    def total_cost_dollars(self) -> float:
        """Known cost of the run in US dollars as a float, for display. It is the same as `cost_dollars`."""
        return self.cost_dollars


@other_names(
    attributes={
        "final_state": "result.output",
        "data": "result.output",
        "outputs": "result.step_outputs",
        "success": "result.ok",
    }
)
@dataclass(frozen=True, kw_only=True)
class PipelineResult(RunResult, Generic[OutputT]):
    """The result of a run of a pipeline or router that has finished, is paused or was cancelled.

    A run that fails raises its error instead, unless the step that failed has `on_error="continue"`: then
    `errors` has the failure. `status` says how the run ended, and `output` is `None` if it has no output.
    """

    output: OutputT | None
    """Output of the output step; `None` if that failed, was skipped, or the run stopped early."""
    output_step: str
    """The step whose output is the pipeline's output."""
    step_outputs: Mapping[str, Any]
    """Outputs of all steps that finished, by step id. Of a run that was resumed, those of earlier processes
    are decoded when they are read, which raises `RunCorrupt` if their step declares another type now."""
    usage: PipelineUsage  # pyright: ignore[reportIncompatibleMethodOverride]
    status: RunStatus = "finished"
    """`"paused"`: a step waits for an answer, a message or a time; its conversation needs more from the
    user; or a pause was asked for. `"cancelled"`: somebody called `cancel`. `resume` goes on with either."""
    reason: str = ""
    """Why the run ended in this way, for people."""
    reason_code: ReasonCode | None = None
    """Why the run ended in this way, as a word for programs."""
    resume_at: tuple[str, ...] = ()
    """The steps with which a run that is not finished goes on when it is resumed."""
    errors: Mapping[str, BaseException] = field(default_factory=dict)
    """Failures of steps with `on_error="continue"`, by step id."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Steps that did not run, with the cause, by step id."""
    conversation_state: ConversationState[Any] | None = None
    """The state that stopped the run, or that the output step gave."""
    stopped_early: bool = False
    """Whether a step returned an incomplete `ConversationState`."""
    waits: tuple[Wait, ...] = ()
    """The waits of the steps of a paused run, with their deadlines."""
    questions: tuple[Question, ...] = ()
    """The questions that a paused run waits for, in the order in which they were asked; see `ctx.ask`."""
    run_id: str
    quality: Quality = "clean"
    """`"degraded"`: a step failed with `on_error="continue"`, or an answer that was used broke off before its
    end, or came without its usage. Nested pipelines count."""
    log: RunLog = field(repr=False, compare=False)
    """The facts of the run, from which `trace` is made."""
    plan: Plan = field(repr=False, compare=False)
    """The plan of the pipeline, for `critical_path`."""
    routes: tuple[str, ...] = ()
    """The variants that routers in the run tried, in order, by the names under which they are registered: of
    the router that runs, or of routers that are steps. Those that only an earlier process has tried are known
    if they have sent a request, each name once; `BasePipeline.variant_in` reads a choice from the trace."""

    @property
    def route(self) -> str | None:
        """Name of the pipeline that a router in the run tried last; `None` if the run has no router.

        It is the last of `routes`. For a router, it names the pipeline that returned the result, also if that
        is one of a router in the router. If that pipeline has routers as steps, it is the last choice of
        these instead. If the run had finished before and is only read from the store, it can be an earlier
        choice or `None`: `routes` then lacks pipelines that sent no request.
        """
        return self.routes[-1] if self.routes else None

    @property
    def timings(self) -> Mapping[str, StepTiming]:
        """When each step ran, by step id: a `StepTiming` in milliseconds from the start of the run.

        Only steps that have ended are included.
        """
        return self.usage.timings

    @cached_property
    def critical_path(self) -> tuple[str, ...]:
        """Ids of the chain of steps that the run had to wait for, first to last.

        The last one is the step that ended last; each other is the dependency of the next that ended last.
        """
        return self.plan.critical_path(self.timings)

    @property
    def ok(self) -> bool:
        """True if no step failed: `errors` is empty. A paused or cancelled run can be `ok`: see `status`."""
        return not self.errors

    def within(self, scope: Scope, since: float) -> PipelineResult[OutputT]:
        """Return a copy of this result as the result of the run of a router that chose this pipeline.

        Routers call this. In the copy, `run_id`, `routes` and the totals of `usage` are those of the router's
        run, which has the scope `scope`. Times of steps are counted from `since`, a value of
        `time.perf_counter`.
        """
        usage = self.usage.within(scope, since)
        return replace(self, usage=usage, run_id=scope.run_id, routes=routes_of(scope))


def routes_of(scope: Scope) -> tuple[str, ...]:
    """Return the names of the variants that routers in a run have tried, in order.

    Of those that only an earlier process has tried, the ones that have spent something are known.
    """
    if not scope.routes and not scope.has_spent:
        return ()
    around = "" if scope.parent is None or scope.parent.variant is None else f"{scope.parent.variant}/"
    tried = {route.variant for route in scope.routes}
    earlier: dict[str, str] = {}
    for charge in scope.known_spending.charges:
        path, variant = around, charge.record.variant
        if variant is not None and variant.startswith(around) and variant not in tried:
            for name in variant.removeprefix(around).split("/"):
                path += name
                if path not in tried:
                    earlier[path] = name
                path += "/"
    return (*earlier.values(), *(route.name for route in scope.routes))


PipelineStream: TypeAlias = RunStream[PipelineResult[OutputT]]
"""The stream of a run of a pipeline: `result` is a `PipelineResult` once the iteration has ended."""


def output_inside(result: PipelineResult[OutputT], context: StepContext[Any]) -> OutputT:
    """Return the output of a step that ran a pipeline.

    A conversation that stopped the pipeline stops the outer run, too.

    Raises:
        StepExecutionError: the output step of the pipeline did not run, because of a failure inside.
        ConfigurationError: the pipeline is paused on a record of its own, as the run around has none.
    """
    scope_of(context).degraded |= result.quality == "degraded"
    if result.stopped_early:
        return result.conversation_state  # type: ignore[return-value]  # the outer runner looks for it
    if result.status == "paused":
        expected = (
            f"a store for the outermost run, because the pipeline of step {context.step_id!r} is paused as "
            f"{result.run_id!r} ({result.reason}), and only a stored run can wait for it"
        )
        raise ConfigurationError("store", None, expected)
    check_output(result)
    return result.output  # type: ignore[return-value]  # OutputT may itself include None


def check_output(result: PipelineResult[Any]) -> None:
    """Raise `StepExecutionError` if the output step did not run, because of a failure inside."""
    is_over = not result.stopped_early and result.status != "paused"
    if is_over and result.output_step not in result.step_outputs:
        step_id, error = next(iter(result.errors.items()))
        raise StepExecutionError(step_id, error) from error
