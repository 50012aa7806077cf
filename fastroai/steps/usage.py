"""The spending of one step."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any, Final

from fastroai.records import EXACT, AgentCallUsage, RequestRecord, Usage, usd_to_microcents
from fastroai.runtime import Scope
from fastroai.tracing import TraceSpan
from fastroai.usage import UsageReport

if TYPE_CHECKING:
    from fastroai.calls.response import ChatResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class StepUsage:
    """Cost, tokens and time of a step, over all its attempts and the agents that it calls.

    Costs are in US dollars, times in milliseconds. Add usages with `+` or `sum`. `cost_usd` has only known
    costs: `cost_complete` says whether it is the whole cost.
    """

    cost_usd: Decimal = Decimal(0)
    """Exact, in US dollars."""
    cost_complete: bool = True
    """Whether `cost_usd` is the whole cost: nothing is unpriced or unmeasured."""
    committed_usd: Decimal = Decimal(0)
    """`cost_usd` plus the bounds of unmeasured requests: the sum that budgets read."""
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    input_audio_tokens: int = 0
    output_audio_tokens: int = 0
    reasoning_tokens: int = 0
    request_count: int = 0
    failed_requests: int = 0
    unpriced_requests: int = 0
    unmeasured_requests: int = 0
    agent_call_count: int = 0
    """Agent runs, at any depth: retried ones, and agents called by tools, included."""
    processing_time_ms: float = 0.0
    """Wall time, in milliseconds."""
    records: tuple[RequestRecord, ...] = ()
    """Records of all requests, in the order in which these ended."""
    agent_calls: tuple[AgentCallUsage, ...] = ()
    """The agent runs, each by itself, in the order of their starts."""
    step_span: TraceSpan | None = field(default=None, compare=False)
    """The span of the step, where a tracer made one in this process; of a sum, that of its only part with
    a span."""

    @classmethod
    def of_scope(cls, scope: Scope, processing_time_ms: float) -> StepUsage:
        """Return the usage so far of a scope: a step, or another part of a run that counts its own spending.

        It is a snapshot, with `processing_time_ms` as its time. Later spending does not change it.
        """
        with scope.tree.lock:
            return cls(
                **_counts(scope.spending.usage),
                processing_time_ms=processing_time_ms,
                records=tuple(scope.spending.records),
                agent_calls=scope.spending.agent_calls,
                step_span=scope.span,
            )

    @classmethod
    def from_chat_response(cls, response: ChatResponse[Any]) -> StepUsage:
        """Return the usage of one agent call, to add to that of others with `+` or `sum`.

        It includes the agents that tools of the call have run. It has no `step_span`.
        """
        return cls(
            **_counts(response.usage),
            processing_time_ms=response.processing_time_ms,
            records=response.records,
            agent_calls=response.agent_calls,
        )

    def __add__(self, other: StepUsage) -> StepUsage:
        """Return the sum of both: of visits to a node, or of steps. Times add up too."""
        with localcontext(EXACT):
            sums = {
                one.name: getattr(self, one.name) + getattr(other, one.name)
                for one in fields(self)
                if one.name not in ("cost_complete", "step_span")
            }
        spans = [one.step_span for one in (self, other) if one.step_span is not None]
        return StepUsage(
            **sums,
            cost_complete=self.cost_complete and other.cost_complete,
            step_span=spans[0] if len(spans) == 1 else None,
        )

    def __radd__(self, other: int) -> StepUsage:
        """Return this usage, if `sum` adds it to its first 0."""
        return self if other == 0 else NotImplemented

    def report(self) -> UsageReport:
        """Return the step's cost as a report by agent, model, tool, tag and outcome, to print or pass on."""
        return UsageReport.of(self.records)

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together: the same as `tokens`."""
        return self.tokens

    @property
    def total_tool_call_count(self) -> int:
        """Number of calls of function tools that models asked for, those of nested agents included."""
        return sum(call.tool_call_count for call in self.agent_calls)

    @property
    def cost_microcents(self) -> int:
        """`cost_usd`, the known cost, in microcents ($1 has 1,000,000), rounded once, half to even."""
        return usd_to_microcents(self.cost_usd)

    @property
    def cost_dollars(self) -> float:
        """`cost_usd`, the known cost in US dollars, as a float, for display."""
        return float(self.cost_usd)


_COUNTED: Final = tuple(
    one.name for one in fields(StepUsage) if one.name in Usage.__slots__ or hasattr(Usage, one.name)
)
"""The fields of a step's usage that a `Usage` has, too."""


def _counts(usage: Usage) -> dict[str, Any]:
    return {name: getattr(usage, name) for name in _COUNTED}
