"""Events that listeners of a run are told besides its facts, and the listeners."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from fastroai.errors import BudgetExceeded, ContractViolation
from fastroai.records import RequestRecord
from fastroai.runtime.facts import RunEvent
from fastroai.runtime.wakeup import running_loop

logger = logging.getLogger("fastroai.runtime")


@dataclass(slots=True, kw_only=True)
class ContractViolated(RunEvent):
    """What a step takes or gives is not what its contract says; the step fails with `error`."""

    step_id: str | None
    """`None` for the inputs of a run."""
    error: ContractViolation


@dataclass(slots=True, kw_only=True)
class TextChunk(RunEvent):
    """A step streamed some text through `ctx.run_stream`."""

    step_id: str
    text: str


@dataclass(slots=True, kw_only=True)
class SpendRecorded(RunEvent):
    """A request ended in the account, or `record_usage` added to it."""

    record: RequestRecord
    scope_path: tuple[str, ...]
    """Where it was made, from the outermost scope inwards."""


@dataclass(slots=True, kw_only=True)
class BudgetWarning(RunEvent):
    """A share of a budget, or of a `SpendLimit`, is spent.

    Each share in `warn_at` is told at most once: of a budget in a run, also if that is resumed; of a
    `SpendLimit` in a window, among all processes that share it.
    """

    scope_path: tuple[str, ...]
    """Where the budget is set."""
    share: Decimal
    """How much of it is spent, from 0 to 1."""
    threshold: float
    """The share to warn of that is reached."""
    limit_usd: Decimal | None = None
    """The limit in US dollars, where it is one of money."""
    coded_usd: Decimal | None = None
    """The limit in code; `None` unless `limit_usd` was set by hand for the window of a `SpendLimit`."""
    key: str | None = None
    """Whose spending it is, for a `SpendLimit`."""
    window: str | None = None
    """The window of a `SpendLimit`: `hour`, `day`, `month` or `total`."""


@dataclass(slots=True, kw_only=True)
class BudgetRefused(RunEvent):
    """A budget stopped a request before it was sent, or the answer that it could not pay for to the end."""

    error: BudgetExceeded


@dataclass(slots=True, kw_only=True)
class BudgetWaiting(RunEvent):
    """A request has waited for a second for what others have reserved. Told once for each request."""

    scope_path: tuple[str, ...]
    """Where the budget is set that has too little left."""
    waits_for: str
    """What there is too little of, in words: `$0.014 of a budget of $0.05, of which $0.002 is left`."""
    held_by: tuple[str, ...]
    """Requests in flight that have reserved it, those with the largest part first: where they were made, the
    model, and how much."""
    advice: str
    """What to set so that it need not wait."""

    def __str__(self) -> str:
        held_by = ", ".join(self.held_by) or "requests in flight"
        return f"{self.waits_for}; held by {held_by}. To wait less: {self.advice}"


@dataclass(slots=True, kw_only=True)
class CircuitOpened(RunEvent):
    """A `CircuitBreaker` lets no more requests through to a provider; the last failure was in this run."""

    provider: str
    last_failure: str
    cooldown: float
    """Seconds until some requests may try again."""
    agent: str | None = None
    """The agent whose breaker it is; `None` for that of a `ProviderLimit`."""


@dataclass(slots=True, kw_only=True)
class CircuitClosed(RunEvent):
    """A `CircuitBreaker` lets requests through again: one of this run was answered."""

    provider: str
    agent: str | None = None


Listener: TypeAlias = Callable[[RunEvent], Awaitable[None]]
"""Takes each event of a run as it happens. It may wait, which holds the run back."""


def on_this_loop(listener: Listener) -> Listener:
    """The same listener, called on the loop that runs here, whichever loop an event comes from."""
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
    """What tells the one and then the other, of those that there are."""
    if inner is None or outer is None:
        return inner or outer

    async def tell(event: RunEvent) -> None:
        await inner(event)
        await outer(event)

    return tell


def harmless(handler: Callable[[Any], object], name: str) -> Listener:
    """Return a listener that calls a handler of the user's, async or not, whose errors it logs."""

    async def listen(event: RunEvent) -> None:
        try:
            told = handler(event)
            if inspect.isawaitable(told):
                await told
        except Exception:
            logger.exception("%s failed on %s; the run is not affected", name, type(event).__name__)

    return listen


def of_warnings(handler: Callable[[Any], object], is_own: Callable[[BudgetWarning], bool]) -> Listener:
    """Return a listener that calls a handler with the warnings of one budget or spend limit."""
    tell = harmless(handler, "on_warning")

    async def listen(event: RunEvent) -> None:
        if isinstance(event, BudgetWarning) and is_own(event):
            await tell(event)

    return listen
