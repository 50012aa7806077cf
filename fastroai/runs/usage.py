"""What a pipeline run gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, Generic, Literal, TypeAlias

from typing_extensions import TypeVar

from fastroai.records import RequestRecord, Usage
from fastroai.runtime import Scope
from fastroai.steps import ConversationState, StepUsage
from fastroai.store.live_log import RunLog
from fastroai.store.trace import RunTrace
from fastroai.usage import UsageReport

Quality: TypeAlias = Literal["clean", "degraded"]

OutputT = TypeVar("OutputT", default=Any, covariant=True)


@dataclass(slots=True)
class StepTiming:
    """When a step ran, in milliseconds from the start of the run."""

    started_ms: float
    finished_ms: float

    @property
    def duration_ms(self) -> float:
        """Wall time of the step, retries included."""
        return self.finished_ms - self.started_ms


class PipelineUsage:
    """What a whole run has spent, and each step of it."""

    def __init__(
        self, scope: Scope, step_scopes: Mapping[str, Scope], timings: Mapping[str, StepTiming]
    ) -> None:
        """From the scopes of a run that has ended."""
        with scope.lock:
            self._usage, self._records = scope.usage.copy(), tuple(scope.records)
        self._step_scopes, self._timings = step_scopes, timings
        self.processing_time_ms = max((timing.finished_ms for timing in timings.values()), default=0.0)
        """Wall time from the start of the run to the end of its last step, in milliseconds."""

    def __getstate__(self) -> dict[str, object]:
        """Plain data for pickling and copying: the steps' usage instead of their live scopes."""
        return {**self.__dict__, "steps": self.steps, "_step_scopes": {}}

    def within(self, scope: Scope) -> PipelineUsage:
        """The same steps, with the totals of a scope around the run."""
        return PipelineUsage(scope, self._step_scopes, self._timings)

    def __repr__(self) -> str:
        return (
            f"PipelineUsage(total_cost_usd={self.total_cost_usd}, total_tokens={self.total_tokens}, "
            f"requests={self.request_count})"
        )

    @cached_property
    def steps(self) -> Mapping[str, StepUsage]:
        """Usage of every step that started, by step id."""
        return {
            step_id: StepUsage.of_scope(scope, self._timings[step_id].duration_ms)
            for step_id, scope in self._step_scopes.items()
        }

    @property
    def by_step(self) -> Mapping[str, StepUsage]:
        """The same as `steps`."""
        return self.steps

    @cached_property
    def by_model(self) -> Mapping[str, Usage]:
        """Usage by `provider:model`."""
        usages: dict[str, Usage] = {}
        for record in self._records:
            usages.setdefault(f"{record.provider}:{record.model}", Usage()).add(record)
        return usages

    @property
    def records(self) -> tuple[RequestRecord, ...]:
        """Every request of the run, in the order in which they ended."""
        return self._records

    def report(self) -> UsageReport:
        """What the run cost, by step, agent, model, tool and outcome, to print or to pass on."""
        return UsageReport.of(self._records)

    @property
    def total(self) -> Usage:
        """Everything, as one sum."""
        return self._usage

    @property
    def total_cost_usd(self) -> Decimal:
        """Exact known cost, in US dollars."""
        return self._usage.cost_usd

    @property
    def total_cost_microcents(self) -> int:
        """`total_cost_usd` in microcents ($1 = 1,000,000), rounded once, half to even."""
        return self._usage.cost_microcents

    @property
    def total_cost_dollars(self) -> float:
        """`total_cost_usd` as a float, for display."""
        return self._usage.cost_dollars

    @property
    def cost_complete(self) -> bool:
        """Whether the cost is everything: nothing unpriced, nothing unmeasured."""
        return self._usage.cost_complete

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self._usage.total_tokens

    @property
    def total_input_tokens(self) -> int:
        """Tokens sent, cached ones included."""
        return self._usage.input_tokens

    @property
    def total_output_tokens(self) -> int:
        """Tokens received, reasoning included."""
        return self._usage.output_tokens

    @property
    def total_cache_read_tokens(self) -> int:
        """Input tokens read from providers' caches."""
        return self._usage.cache_read_tokens

    @property
    def total_cache_write_tokens(self) -> int:
        """Input tokens written to providers' caches."""
        return self._usage.cache_write_tokens

    @property
    def total_input_audio_tokens(self) -> int:
        """Audio tokens sent."""
        return self._usage.input_audio_tokens

    @property
    def total_output_audio_tokens(self) -> int:
        """Audio tokens received."""
        return self._usage.output_audio_tokens

    @property
    def total_reasoning_tokens(self) -> int:
        """Thinking tokens, where providers say."""
        return self._usage.reasoning_tokens

    @property
    def request_count(self) -> int:
        """Requests that were sent and not refused."""
        return self._usage.request_count

    @property
    def agent_calls(self) -> int:
        """Agent runs, at any depth."""
        return self._usage.agent_calls

    @property
    def unpriced_requests(self) -> int:
        """Requests for whose model no price is known."""
        return self._usage.unpriced_requests

    @property
    def unmeasured_requests(self) -> int:
        """Requests that were sent and whose usage never came."""
        return self._usage.unmeasured_requests


@dataclass(frozen=True, kw_only=True)
class PipelineResult(Generic[OutputT]):
    """The result of a run that was not stopped by a failure."""

    output: OutputT | None
    """Output of the output step; `None` if that failed, was skipped, or the run stopped early."""
    output_step: str
    """The step that gives the output."""
    step_outputs: Mapping[str, Any]
    """Outputs of all steps that finished, by step id."""
    usage: PipelineUsage
    errors: Mapping[str, BaseException] = field(default_factory=dict)
    """Failures of steps with `on_error="continue"`, by step id."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Steps that did not run, with the cause, by step id."""
    conversation_state: ConversationState[Any] | None = None
    """The state that stopped the run, or that the output step gave."""
    stopped_early: bool = False
    """Whether a step returned an incomplete `ConversationState`."""
    run_id: str
    timings: Mapping[str, StepTiming] = field(default_factory=dict)
    """When each step ran, by step id."""
    critical_path: tuple[str, ...] = ()
    """The chain of steps that the run had to wait for, first to last."""

    quality: Quality = "clean"
    """`"degraded"`: a step failed with `on_error="continue"`, or an answer that was used broke off before its
    end, or came without its usage. Nested pipelines count."""
    log: RunLog = field(repr=False, compare=False)
    """What `trace` is made of."""
    routes: tuple[str, ...] = ()
    """For a router: the pipelines that it tried, in order; the last one gave the result."""

    @property
    def trace(self) -> RunTrace:
        """What happened: every attempt at every step, why it was made, what it was given, gave and cost.

        That of the outermost pipeline of the run, for nested ones too.
        """
        return self.log.trace

    @property
    def ok(self) -> bool:
        """Whether no step failed."""
        return not self.errors

    def within(self, scope: Scope, *, routes: tuple[str, ...]) -> PipelineResult[OutputT]:
        """The same result with the usage of a scope around the run: what a router spent is part of it."""
        return replace(
            self, usage=self.usage.within(scope), run_id=scope.run_id, routes=(*routes, *self.routes)
        )


def quality_of(scope: Scope, errors: Mapping[str, BaseException], steps: Mapping[str, Scope]) -> Quality:
    """How good a run was that ended without a failure."""
    degraded = bool(errors) or any(step.degraded for step in steps.values())
    return "degraded" if degraded or any(record.is_doubtful for record in scope.records) else "clean"
