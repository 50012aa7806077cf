"""What a run has spent, and when its steps ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

from fastroai.records import RequestRecord, Usage
from fastroai.runtime import Scope
from fastroai.usage import UsageReport
from fastroai.usage.report_rows import model_of


@dataclass(slots=True)
class StepTiming:
    """When a step ran, in milliseconds from the start of the run."""

    started_ms: float
    finished_ms: float

    @property
    def duration_ms(self) -> float:
        """Wall time of the step, retries included."""
        return self.finished_ms - self.started_ms


class RunUsage:
    """What a whole run has spent."""

    def __init__(self, scope: Scope) -> None:
        """From the scope of a run that has ended."""
        with scope.lock:
            self._usage, self._records = scope.usage.copy(), tuple(scope.records)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(total_cost_usd={self.total_cost_usd}, total_tokens={self.total_tokens}, "
            f"requests={self.request_count})"
        )

    @cached_property
    def by_model(self) -> Mapping[str, Usage]:
        """Usage by `provider:model`; by `model` alone where no provider is known."""
        usages: dict[str, Usage] = {}
        for record in self._records:
            usages.setdefault(model_of(record), Usage()).add(record)
        return usages

    @property
    def records(self) -> tuple[RequestRecord, ...]:
        """Every request of the run, in the order in which they ended."""
        return self._records

    def model_dump(self) -> dict[str, object]:
        """Return the sums as values that JSON can hold, once they are dumped with a result."""
        return {"total": self.total, "cost_complete": self.cost_complete, "by_model": self.by_model}

    def report(self) -> UsageReport:
        """What the run cost, by step, agent, model, tool, variant and outcome, to print or to pass on."""
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
