"""Events of a run that listeners are told, some of which are notes on record; and functions for listeners."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, TypeAlias

from typing_extensions import override

from fastroai.data_kinds import Text
from fastroai.errors import BudgetExceeded, ContractViolation, RecordedError
from fastroai.records import RequestRecord
from fastroai.runtime.concurrency.wakeup import running_loop
from fastroai.runtime.fact_base import (
    FailureFacts,
    Notes,
    PlacedFact,
    Raised,
    RequestInLine,
    RunEvent,
    Telling,
)
from fastroai.usage.budget import Budget

logger = logging.getLogger("fastroai.runtime")


@dataclass(slots=True, kw_only=True)
class ContractViolated(RunEvent):
    """An input of a run, or an input or the output of a step, violates a contract.

    The run or the step fails with `error`.
    """

    step_id: str | None
    """The step; `None` if the inputs of a run violate the contract."""
    error: ContractViolation


@dataclass(slots=True, kw_only=True)
class TextChunk(RunEvent):
    """A step received a piece of text from a stream of `ctx.run_stream`. `text` is the new piece only."""

    step_id: str
    text: str


@dataclass(slots=True, kw_only=True)
class SpendRecorded(RunEvent):
    """Spending was counted: a request or a purchase (`spend`) ended, or `record_usage` was called.

    Each attempt at a request has its own event. Requests and purchases that cost nothing, because they were
    refused without a bill or released, have one, too; `record.outcome` is `released` then.
    """

    record: RequestRecord
    scope_path: tuple[str, ...]
    """The scope in which the money was spent: names from the outermost scope inwards."""


@dataclass(slots=True, kw_only=True)
class BudgetWarning(RunEvent):
    """The spending of a budget, or of a `SpendLimit`, has reached one of the shares in its `warn_at`.

    `threshold` is the share that is reached, and `share` is the share that is spent now; 1 is the whole
    limit.

    Each share in `warn_at` is reported at most once: for a budget, once in each run, step, call or
    `budget_scope` that has the budget, also if the run is resumed; for a `SpendLimit`, once in a window among
    all processes that share the limit, unless somebody raises the limit or resets the spending by hand.
    """

    scope_path: tuple[str, ...]
    """The scope of the budget: names from the outermost scope inwards."""
    share: Decimal
    """The share that is spent: 1 is the whole limit."""
    threshold: float
    """The share in `warn_at` that is reached."""
    limit_usd: Decimal | None = None
    """The limit in US dollars; `None` if the budget does not limit money."""
    coded_usd: Decimal | None = None
    """The limit in code; `None` unless `limit_usd` was set by hand for the window of a `SpendLimit`."""
    key: str | None = None
    """The key of the account of a `SpendLimit`: whose spending it is; `None` for a budget."""
    window: str | None = None
    """The window of a `SpendLimit`: `hour`, `day`, `month` or `total`; `None` for a budget."""
    budget: Budget | None = field(default=None, compare=False, repr=False)
    """The budget; `None` for a `SpendLimit`."""


@dataclass(slots=True, kw_only=True)
class BudgetRefused(PlacedFact, Notes):
    """A budget or spend limit refused a request, purchase, run or step, or cut off an answer.

    The event is also sent when `record_usage` records more spending after a budget was crossed. That spending
    is charged all the same. If a store keeps the run, the event is stored.
    """

    kind: ClassVar[str] = "budget_refused"
    identity: ClassVar = ("refusal", "place")
    failure: FailureFacts
    """The error, as it is on record."""
    raised: Raised = field(default=None, compare=False, repr=False)

    @property
    def error(self) -> BudgetExceeded | RecordedError:
        """The exception that the refusal raised: a `BudgetExceeded`, such as `CostBudgetExceeded`.

        In an event that was read from a store, a `RecordedError` with its type and message.
        """
        return self.raised if isinstance(self.raised, BudgetExceeded) else self.failure.as_error()

    @override
    def sentences(self, run: Telling) -> tuple[str, ...]:
        return (f"{self.place or 'the run'}: refused: {self.failure}",)


@dataclass(slots=True, kw_only=True)
class BudgetWaiting(RequestInLine):
    """A request has waited for a second for a budget or spend limit of which other requests hold the rest.

    The others have reserved money, tokens or requests, and may give some of it back. The event is sent once
    for each request that waits, and is stored if a store keeps the run.
    """

    kind: ClassVar[str] = "budget_waiting"
    has_waited: ClassVar = False
    scope_path: tuple[str, ...]
    """The scope of the budget that has too little left: names from the outermost scope inwards."""
    held_by: tuple[Text[str], ...]
    """Requests in flight with the largest reservations, largest first: the scope, the model, and the amount;
    for a spend limit, the processes that hold reservations."""
    advice: Text[str]
    """Options that would make the wait shorter, in words."""

    def __str__(self) -> str:
        held_by = ", ".join(self.held_by) or "requests in flight"
        return f"{self.waits_for}; held by {held_by}. To wait less: {self.advice}"

    @override
    def sentences(self, run: Telling) -> tuple[str, ...]:
        return (f"{self.place or 'the run'}: a request waits for {self.waits_for}",)


@dataclass(slots=True, kw_only=True)
class RequestWaited(RequestInLine):
    """A request has stopped waiting in line for a budget, a spend limit or a provider limit.

    Its turn has come, or it was refused or cancelled. `seconds` is the length of the wait. Waits of less
    than a second have no such event. If a store keeps the run, the event is stored.
    """

    kind: ClassVar[str] = "request_waited"
    has_waited: ClassVar = True
    seconds: float

    @override
    def sentences(self, run: Telling) -> tuple[str, ...]:
        return (f"{self.place or 'the run'}: a request has waited {self.seconds:.1f} s for {self.waits_for}",)


@dataclass(slots=True, kw_only=True)
class CircuitOpened(RunEvent):
    """After a failure in this run, a `CircuitBreaker` stops requests to a provider for `cooldown` seconds.

    `last_failure` is the message of that failure.
    """

    provider: str
    last_failure: str
    cooldown: float
    """Seconds until some requests may try again."""
    agent: str | None = None
    """The agent that has the breaker; `None` for the breaker of a `ProviderLimit`."""


@dataclass(slots=True, kw_only=True)
class CircuitClosed(RunEvent):
    """A `CircuitBreaker` lets all requests to a provider through again: a trial request succeeded.

    The trial request, which a half-open circuit lets through, was made in this run.
    """

    provider: str
    agent: str | None = None


Listener: TypeAlias = Callable[[RunEvent], Awaitable[None]]
"""Async function that takes each event of a run as it happens. The run waits while it awaits."""

OnEvent: TypeAlias = Callable[[RunEvent], Awaitable[None] | None]
"""Function of a user that takes each event of a run as it happens. Its exceptions are logged."""


def on_this_loop(listener: Listener) -> Listener:
    """Return a listener that calls `listener` on the loop that runs here, for events from any loop."""
    loop = running_loop()
    if loop is None:
        return listener

    async def tell(event: RunEvent) -> None:
        if loop is running_loop() or not loop.is_running():
            await listener(event)
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_told(listener, event), loop))

    return tell


async def _told(listener: Listener, event: RunEvent) -> None:
    await listener(event)


def both(inner: Listener | None, outer: Listener | None) -> Listener | None:
    """Return a listener that tells `inner` and then `outer`; `None` if both are."""
    if inner is None or outer is None:
        return inner or outer

    async def tell(event: RunEvent) -> None:
        await inner(event)
        await outer(event)

    return tell


def harmless(handler: Callable[[Any], object], name: str) -> Listener:
    """Return a listener that calls a handler of the user, async or not, and logs its errors."""

    async def listen(event: RunEvent) -> None:
        try:
            told = handler(event)
            if inspect.isawaitable(told):
                await told
        except Exception:
            logger.exception("%s failed on %s; the run is not affected", name, type(event).__name__)

    return listen


def listener_of(on_event: OnEvent | None) -> Listener | None:
    """Return the listener for the `on_event=` of a run; `None` without one."""
    return None if on_event is None else harmless(on_event, "on_event")


def of_warnings(handler: Callable[[Any], object], is_own: Callable[[BudgetWarning], bool]) -> Listener:
    """Return a listener that calls a handler with the warnings of one budget or spend limit."""
    tell = harmless(handler, "on_warning")

    async def listen(event: RunEvent) -> None:
        if isinstance(event, BudgetWarning) and is_own(event):
            await tell(event)

    return listen
