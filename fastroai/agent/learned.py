"""What an agent's last calls were like: what a quote expects of the next one."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from fastroai.records import exact_sum, ratio

if TYPE_CHECKING:
    from fastroai.calls.response import ChatResponse

CALLS_REMEMBERED: Final = 50
"""Of each model that an agent asks."""
MODELS_REMEMBERED: Final = 16


@dataclass(frozen=True, slots=True)
class PastCall:
    """One call that was answered."""

    cost_usd: Decimal
    """Of all of it: retries, and agents that its tools called, included."""
    requests: int
    """Requests to the model that was asked first."""
    input_tokens: int
    """Of the first request."""
    output_tokens: int


@dataclass(frozen=True, slots=True)
class UsualCall:
    """The mean of some past calls."""

    calls: int
    cost_usd: Decimal
    requests: Decimal
    input_tokens: int
    output_tokens: int


@dataclass(slots=True)
class Learned:
    """The last calls of one agent, by the model that each asked first. Safe to use from several threads."""

    _calls: dict[str, deque[PastCall]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, response: ChatResponse[Any]) -> None:
        """Remember a call, if all of its cost is known."""
        records, usage = response.records, response.usage
        if not records or not usage.cost_complete:
            return
        model = records[0].model  # the first request of a call ends before any of its tools begins
        requests = input_tokens = 0
        for record in records:
            if record.model == model and record.outcome == "settled":
                input_tokens = input_tokens if requests else record.tokens.input_tokens
                requests += 1
        call = PastCall(
            cost_usd=usage.cost_usd,
            requests=requests,
            input_tokens=input_tokens,
            output_tokens=usage.output_tokens,
        )
        with self._lock:
            if model not in self._calls:
                if len(self._calls) >= MODELS_REMEMBERED:
                    del self._calls[next(iter(self._calls))]
                self._calls[model] = deque(maxlen=CALLS_REMEMBERED)
            self._calls[model].append(call)

    def usual(self, model: str) -> UsualCall | None:
        """What a call that asks this model is usually like; `None` if there was none."""
        with self._lock:
            calls = list(self._calls.get(model, ()))
        if not calls:
            return None
        count = len(calls)
        return UsualCall(
            calls=count,
            cost_usd=ratio(exact_sum(call.cost_usd for call in calls), count),
            requests=ratio(sum(call.requests for call in calls), count),
            input_tokens=round(sum(call.input_tokens for call in calls) / count),
            output_tokens=round(sum(call.output_tokens for call in calls) / count),
        )
