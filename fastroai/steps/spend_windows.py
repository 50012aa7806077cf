"""Runs that meet a spend limit and wait for its next window: `SpendLimit(on_limit="wait")`."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from itertools import count
from typing import Final, Never, TypeVar

from typing_extensions import override

from fastroai.errors import SpendLimitExceeded
from fastroai.human.waiting import Awaited, StepWait, end_wait, state_of
from fastroai.runtime import Scope
from fastroai.runtime.budgets.shared_reservation import Stopped
from fastroai.runtime.budgets.stops import refused
from fastroai.runtime.facts import WaitEnded
from fastroai.runtime.scope import RUNS
from fastroai.steps.durability import step_place
from fastroai.store.record.log import Log
from fastroai.store.record.log_of_scope import log_of
from fastroai.usage.money import format_cost

_SAME_CLOCK: Final = 60.0
"""Seconds by which the clocks of two stores may differ without being different clocks."""

T = TypeVar("T")


async def or_wait(scope: Scope, admission: Awaitable[T], what: Stopped) -> T:
    """Return what an admission in a scope gives. If a spend limit lets the run wait, halt the step instead.

    `what` is to be admitted.

    Raises:
        Halted: the step waits for the next window of a spend limit.
        SpendLimitExceeded: waiting is not possible: outside of runs, or because of the limit's `deadline`.
        ConfigurationError: no store keeps the run.
    """
    try:
        admitted = await admission
    except SpendLimitExceeded as stop:
        if stop.may_wait:
            await _wait_or_raise(scope, stop, what)
        raise
    if scope.bounds.ceilings and (log := log_of(scope)) is not None and log.waited:
        _end_waits(scope, log, what)
    return admitted


@dataclass(frozen=True, kw_only=True)
class SpendWindow(Awaited[None]):
    """A wait for the next window of a spend limit. It is over when a request is admitted."""

    what = "spend_limit"
    name: str
    stop: SpendLimitExceeded | None = None

    @override
    async def look(self, wait: StepWait) -> WaitEnded | None:
        """Wait for the next window. Raises the refusal if that opens after the deadline of the limit."""
        stop = self.stop
        assert stop is not None
        assert stop.resets_in is not None
        now = wait.now
        began = now if wait.began is None else wait.began
        opens = now + stop.resets_in.total_seconds()
        if stop.deadline is not None and opens > began + stop.deadline.total_seconds():
            raise stop
        wait.deadline = opens
        if stop.resets_at is not None:
            # If the clocks of the stores are all but the same, all runs that wait for it are due at once.
            resets_at = stop.resets_at.timestamp()
            if now < resets_at and abs(resets_at - opens) < _SAME_CLOCK:
                wait.deadline = resets_at
        wait.why = _why(stop)
        return None


async def _wait_or_raise(scope: Scope, stop: SpendLimitExceeded, what: Stopped) -> Never:
    """Halt the step around a scope, or raise the refusal and tell of it."""
    step = _step_of_run(scope)
    try:
        if step is not None:
            place = step_place(step)
            awaited = SpendWindow(name=stop.key, stop=stop)
            ordinal = _ordinal(awaited, step, place, stop.window, what)
            try:
                await awaited.waited(step, place, step.ordinal, ordinal)
            except SpendLimitExceeded:
                if state_of(awaited, step, place, ordinal) == "open":
                    end_wait(awaited, step, place, ordinal, in_vain=True)
                raise
        raise stop
    except SpendLimitExceeded:
        await scope.emit(refused(scope, stop))
        raise


def _end_waits(scope: Scope, log: Log, what: Stopped) -> None:
    """Note that the step around a scope waits no longer for windows of the limits that have admitted it."""
    step = _step_of_run(scope)
    if step is None:
        return
    place = step_place(step)
    if log.waits_in(place):
        return  # another request of the step has halted it meanwhile
    for ceiling in scope.bounds.ceilings:
        if ceiling.waits:
            awaited = SpendWindow(name=ceiling.account.key)
            ordinal = _ordinal(awaited, step, place, ceiling.account.window, what)
            if state_of(awaited, step, place, ordinal) == "open":
                end_wait(awaited, step, place, ordinal)


def _step_of_run(scope: Scope) -> Scope | None:
    """Return the step that halts: that of the innermost run around a scope. `None` outside of runs."""
    if log_of(scope) is None:
        return None
    return next((one for one in scope.lineage() if one.parent is not None and one.parent.kind in RUNS), None)


def _ordinal(awaited: SpendWindow, step: Scope, place: str, window: str, what: Stopped) -> str:
    """Return the name of the step's present wait for a window. All requests of the step share the wait."""
    names = (f"{window} {what} {number}" for number in count(1))
    return next(name for name in names if state_of(awaited, step, place, name) != "over")


def _why(stop: SpendLimitExceeded) -> str:
    spent = f"{format_cost(stop.actual_usd)} of {format_cost(stop.budget_usd)} is spent"
    needed = stop.requested_usd
    return spent if needed is None else f"{format_cost(needed)} is needed, and {spent}"
