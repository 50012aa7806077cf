"""The usage of a run, and the times of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, TypeVar

from fastroai.records import AgentCallUsage, RequestRecord, SumsOfUsage, Usage
from fastroai.runtime import Scope
from fastroai.steps import StepUsage
from fastroai.tracing import TraceSpan
from fastroai.usage import UsageReport
from fastroai.usage.reports.report_rows import model_of


@dataclass(slots=True)
class StepTiming:
    """Start and end of a step, in milliseconds from the start of the run."""

    started_ms: float
    finished_ms: float

    @property
    def duration_ms(self) -> float:
        """Wall time of the step, retries included."""
        return self.finished_ms - self.started_ms


class RunUsage(SumsOfUsage):
    """The usage of a whole run."""

    _records: tuple[RequestRecord, ...] = ()
    _agent_calls: tuple[AgentCallUsage, ...] = ()
    _tried: tuple[str, ...] = ()

    def __init__(self, scope: Scope) -> None:
        """Read the usage from the scope of a run that has ended."""
        self._usage, self._span = Usage(), scope.span
        if scope.has_spent:
            with scope.tree.lock:
                spending = scope.spending
                self._usage, self._records = spending.usage.copy(), tuple(spending.records)
                self._agent_calls = spending.agent_calls
        if scope.routes:
            self._tried = tuple(route.variant for route in scope.routes)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(cost_usd={self.cost_usd}, total_tokens={self.total_tokens}, "
            f"requests={self.request_count})"
        )

    def __add__(self, other: Self) -> Self:
        """Return the sum of two runs, such as those of one pipeline. It has no `span`, which is one run's."""
        together = copy(self)
        values = vars(together)
        for derived in ("by_model", "by_variant"):
            values.pop(derived, None)
        values.update(self._added(other))
        return together

    def __radd__(self, other: int) -> Self:
        """Return this usage, if `sum` adds it to its first 0."""
        if other != 0:
            return NotImplemented
        return self

    def _added(self, other: Any) -> dict[str, object]:
        """Return the attributes of the sum of both, by name."""
        return {
            "_usage": self._usage + other._usage,
            "_records": self._records + other._records,
            "_agent_calls": self._agent_calls + other._agent_calls,
            "_tried": self._tried + other._tried,
            "_span": None,
        }

    @cached_property
    def by_model(self) -> Mapping[str, Usage]:
        """Usage by `provider:model`, or by `model` alone if the provider is not known."""
        usages: dict[str, Usage] = {}
        for record in self._records:
            usages.setdefault(model_of(record), Usage()).add(record)
        return usages

    @cached_property
    def by_variant(self) -> Mapping[str, Usage]:
        """Usage by the variant that a router chose around a request, as in `report().by_variant`.

        A variant is named as it is registered; one of a router in a router, after that router's own variant:
        `long/formal`. Variants that this process has tried and that sent no request are among them.
        """
        usages = {variant: Usage() for variant in self._tried}
        for record in self._records:
            if record.variant is not None:
                usages.setdefault(record.variant, Usage()).add(record)
        return usages

    @property
    def records(self) -> tuple[RequestRecord, ...]:
        """Records of all requests of the run, in the order in which the requests ended."""
        return self._records

    def model_dump(self) -> dict[str, object]:
        """Return the sums as values that JSON can hold, once they are dumped with a result."""
        return {
            "total": self.total,
            "cost_complete": self.cost_complete,
            "by_model": self.by_model,
            "by_variant": self.by_variant,
        }

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self.report()._repr_mimebundle_()

    def report(self) -> UsageReport:
        """Return a report of the costs by step, agent, model, tool, variant and outcome."""
        return UsageReport.of(self._records)

    @property
    def usage(self) -> Usage:
        """The usage of the whole run, as one sum."""
        return self._usage

    @property
    def total(self) -> Usage:
        """The same as `usage`."""
        return self._usage

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
        """Thinking tokens, for providers that report them."""
        return self._usage.reasoning_tokens

    @property
    def agent_calls(self) -> tuple[AgentCallUsage, ...]:
        """The agent runs, at any depth, each by itself, in the order of their starts."""
        return self._agent_calls

    @property
    def agent_call_count(self) -> int:
        """Number of agent runs, at any depth."""
        return self._usage.agent_call_count

    @property
    def total_tool_call_count(self) -> int:
        """Number of calls of function tools that the models of all agents asked for."""
        return sum(call.tool_call_count for call in self._agent_calls)

    @property
    def span(self) -> TraceSpan | None:
        """The span of the run, where a tracer made one. Of a run in several processes, that of the last."""
        return self._span


KeyT = TypeVar("KeyT")


def steps_together(
    one: Mapping[KeyT, StepUsage], other: Mapping[KeyT, StepUsage]
) -> Mapping[KeyT, StepUsage]:
    """Return the usage of the steps of two runs."""
    return {key: one.get(key, StepUsage()) + other.get(key, StepUsage()) for key in {**one, **other}}
