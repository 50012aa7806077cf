"""The last calls and requests of an agent, from which quotes and budgets expect the next ones."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from fastroai.forks import in_forked_process
from fastroai.records import exact_sum, ratio

if TYPE_CHECKING:
    from fastroai.calls.response import ChatResponse

REMEMBERED: Final = 50
"""The most calls, and requests under budgets, that are remembered for each model."""
MODELS_REMEMBERED: Final = 16

PastT = TypeVar("PastT")
UsualT = TypeVar("UsualT")


_lock = threading.Lock()
"""One lock for all agents, which hold it for some microseconds: an agent that is idle should be small."""


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


in_forked_process(_after_fork)


class Past(Generic[PastT, UsualT]):
    """The last calls or requests of one agent, by model. Safe to use from several threads."""

    __slots__ = ("_past", "_tell")

    def __init__(self, tell: Callable[[Collection[PastT]], UsualT]) -> None:
        """`tell` computes the usual call or request from some past ones."""
        self._tell = tell
        self._past: dict[str, tuple[deque[PastT], UsualT | None]] = {}
        """For each model, the last ones, and the usual one if it has been asked for since."""

    def add(self, model: str, one: PastT) -> None:
        """Remember a call or a request."""
        with _lock:
            if model not in self._past and len(self._past) >= MODELS_REMEMBERED:
                del self._past[next(iter(self._past))]
            past, _ = self._past.get(model, (deque[PastT](maxlen=REMEMBERED), None))
            past.append(one)
            self._past[model] = past, None

    def usual(self, model: str) -> UsualT | None:
        """Return the usual call or request to a model; `None` if there was none."""
        with _lock:
            past, usual = self._past.get(model, (None, None))
            if past is not None and usual is None:
                usual = self._tell(past)
                self._past[model] = past, usual
            return usual


@dataclass(frozen=True, slots=True)
class PastCall:
    """A call that was answered."""

    cost_usd: Decimal
    """The cost of the whole call, with retries, and agents that its tools called."""
    requests: int
    """Requests to the model that was asked first."""
    input_tokens: int
    """Input tokens of the first request."""
    output_tokens: int


@dataclass(frozen=True, slots=True)
class UsualCall:
    """The mean of some past calls."""

    calls: int
    cost_usd: Decimal
    requests: Decimal
    input_tokens: int
    output_tokens: int

    @classmethod
    def of(cls, calls: Collection[PastCall]) -> UsualCall:
        """Return the mean of some calls."""
        count = len(calls)
        return cls(
            calls=count,
            cost_usd=ratio(exact_sum(call.cost_usd for call in calls), count),
            requests=ratio(sum(call.requests for call in calls), count),
            input_tokens=round(sum(call.input_tokens for call in calls) / count),
            output_tokens=round(sum(call.output_tokens for call in calls) / count),
        )


class PastCalls(Past[PastCall, UsualCall]):
    """The last calls of one agent, by the model that each asked first."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(UsualCall.of)

    def learn(self, response: ChatResponse[Any]) -> None:
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
        self.add(model, call)


@dataclass(frozen=True, slots=True)
class PastRequest:
    """A request under a budget whose answer came to its end."""

    output_tokens: int
    tokens: int
    cost_usd: Decimal
    bound_tokens: int
    """The most tokens that a request with this answer could have had, by the bound of its input. Without such
    a bound, as with web searches, the tokens that are usual before anything is known."""
    bound_usd: Decimal
    """The most US dollars that it could have cost; or the usual cost, likewise."""


@dataclass(frozen=True, slots=True)
class UsualRequest:
    """The mean figures of some past requests, from which the next one is expected."""

    longest_answer: int
    """The length that few answers exceed, in tokens: the longest of n answers, and one n-th more."""
    output_tokens: int
    """The mean of the output tokens, rounded up."""
    share_of_usd: Decimal
    """Their cost, as a share of the most that they could have cost with the same answers."""
    share_of_tokens: Decimal

    @classmethod
    def of(cls, requests: Collection[PastRequest]) -> UsualRequest:
        """Return the figures of some past requests."""
        count = len(requests)
        output = sum(map(attrgetter("output_tokens"), requests))
        longest = max(map(attrgetter("output_tokens"), requests))
        bound_usd = exact_sum(map(attrgetter("bound_usd"), requests))
        bound_tokens = sum(map(attrgetter("bound_tokens"), requests))
        tokens = sum(map(attrgetter("tokens"), requests))
        cost_usd = exact_sum(map(attrgetter("cost_usd"), requests))
        return cls(
            # Of n + 1 answers, the last is the longest with a chance of 1 in n + 1.
            longest_answer=-(-longest * (count + 1) // count),
            output_tokens=-(-output // count),
            share_of_usd=ratio(cost_usd, bound_usd) if bound_usd else Decimal(1),
            share_of_tokens=ratio(tokens, bound_tokens) if bound_tokens else Decimal(1),
        )


PastRequests: TypeAlias = Past[PastRequest, UsualRequest]
"""The last requests of one agent under budgets, by model."""
