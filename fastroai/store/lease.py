"""The lease of a run, by which only one process has it. A thread renews it, which no step can block."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary, ref

from fastroai.errors import ConfigurationError, RevisionConflict, RunTakenOver
from fastroai.forks import in_forked_process
from fastroai.runtime.budgets.spend_upkeep import RENEWALS_PER_LEASE
from fastroai.runtime.concurrency.sync import in_background
from fastroai.runtime.concurrency.tasks import end_task
from fastroai.runtime.options import check_seconds
from fastroai.runtime.owner import steady_seconds
from fastroai.store.reading.index import add_to_index, leave_index, store_time
from fastroai.store.record.entries import RunHeader
from fastroai.store.record.headers import (
    decode_header,
    first_due,
    header_key,
    replace_header,
    utc_day,
)
from fastroai.store.run_store import RunStore, StoredValues, deletes_at_revision

_LONGEST: Final = 86_400
"""Longest lease, in seconds."""
_LOOKS: Final = 10
"""The number of times that the background loop looks for leases to renew, between two renewals of each."""
_TRIES: Final = 10

logger = logging.getLogger("fastroai.store")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """How long a process keeps a run after it has stopped renewing its lease."""

    seconds: float = 30.0
    """Seconds after which a process counts as dead if it has not renewed its lease."""
    max_stall: float = 600.0
    """Seconds for which the lease is renewed while the event loop of the run is blocked."""

    def __post_init__(self) -> None:
        check_seconds("max_stall", self.max_stall, zero=True)
        check_seconds("lease", self.seconds, zero=True)
        if not 0 < self.seconds <= _LONGEST:
            raise ConfigurationError("lease", self.seconds, f"seconds, above 0 and at most {_LONGEST:,}")

    def lease(self, header: RunHeader, now: datetime, began: float, **changes: Any) -> RunHeader:
        """Return the header of a run that a process takes now, with these changes of other fields.

        `now` is by the clock of the store. `began` is by the steady clock, before the store was asked.
        """
        until = now + timedelta(seconds=self.seconds)
        days = {*header.later_days, utc_day(now), utc_day(until)} - {utc_day(header.started_at)}
        leased: dict[str, Any] = {
            "lease_until": until,
            "steady_until": began + self.seconds,
            "updated_at": now,
            "later_days": tuple(sorted(days)),
        }
        return replace(header, **(leased | changes))


DEFAULT_TERMS: Final = LeaseTerms()


class Lease:
    """The lease of one run, from when this process takes the run until `stop`."""

    def __init__(
        self, store: RunStore, header: RunHeader, terms: LeaseTerms, *, was_taken_up: bool = False
    ) -> None:
        """Begin to renew the lease of a header that is on record. Call this on the event loop of the run.

        `was_taken_up` says that another process has had the run before.
        """
        assert header.owner is not None
        assert header.steady_until is not None
        self.header, self.terms = header, terms
        self.progress: Callable[[], dict[str, Any]] = dict
        """Returns the fields of the header that say how far the run is, which each renewal puts on record."""
        self.store, self._run_id, self._was_taken_up = store, header.run_id, was_taken_up
        self._between = terms.seconds / RENEWALS_PER_LEASE
        self._until = header.steady_until
        """Time at which the lease ends, by the steady clock, unless a renewal succeeded whose answer was
        lost."""
        self._next = self._until - self._between * (RENEWALS_PER_LEASE - 1)
        """Time of the next renewal."""
        self._pulse = _Pulse.here()
        self._is_stalled = False
        """Whether the event loop of the run has given no sign of life for longer than `max_stall`."""
        self._renewed: tuple[RunHeader, int] | None = None
        """The header as the last renewal has written it, and its revision."""
        self._lock = threading.Lock()
        self._renewal: asyncio.Task[None] | None = None
        """The renewal in progress, on the background loop."""
        self._is_over = False
        _leases.add(self)

    @property
    def now(self) -> datetime:
        """Time by the store's clock, counted on since this process took the run, even if clocks are set."""
        assert self.header.steady_until is not None
        since = steady_seconds() - (self.header.steady_until - self.terms.seconds)
        return self.header.updated_at + timedelta(seconds=since)

    @property
    def has_ended(self) -> bool:
        """Whether the lease is over, for example because the process or its machine was suspended."""
        return steady_seconds() >= self._until and not self._is_over

    async def renew(self) -> None:
        """Renew the lease, even after its end, if nobody has taken the run meanwhile. From any event loop.

        Errors of the store are raised as they are.

        Raises:
            RunTakenOver: another process has the run, or the run was deleted.
        """
        await asyncio.wrap_future(in_background(self._renew_anew()))

    async def write(self, **changes: Any) -> None:
        """Change the header, if this process still has the run. Raises the errors of the store."""
        began = steady_seconds()
        found = await self.store.read(header_key(self._run_id))
        if (held := self._held(found)) is None:
            logger.warning("run %r: %s; its end is only in its log", self._run_id, _why_lost(found))
            return
        changes["due_at"] = first_due(changes.get("due_at"), held.due_at)
        if "lease_until" in changes and changes["lease_until"] is None:
            changes["steady_until"] = None
        header = self.terms.lease(held, found.now, began, **changes)
        await add_to_index(self.store, header, before=held)
        await replace_header(self.store, header, found.revision)
        await leave_index(self.store, held, header)

    async def stop(self) -> None:
        """Stop renewing the lease. No renewal is in progress when this returns."""
        _leases.remove(self)
        with self._lock:
            self._is_over = True
            renewal = self._renewal
        if renewal is not None:
            await asyncio.wrap_future(in_background(end_task(renewal)))
        self.progress = dict  # that of a run refers to the run, which refers to this lease

    def falls_due(self, now: float) -> bool:
        """Return whether it is time to renew the lease; if so, once. `now` is by the steady clock."""
        if now < self._next:
            return False
        self._next = now + self._between
        return True

    def renew_soon(self, moment: Moment | None) -> None:
        """Begin to renew the lease, unless the event loop of the run is blocked. On the background loop.

        With the `moment` at which this was decided, the header is read only if somebody has changed it since
        the last renewal. This is for stores in which a revision never comes again.
        """
        if not self._look_for_life():
            self._begin_renewal(moment)

    def _begin_renewal(self, moment: Moment | None = None) -> asyncio.Task[None] | None:
        with self._lock:
            if self._renewal is None and not self._is_over:
                self._renewal = asyncio.get_running_loop().create_task(self._renew(moment))
                self._renewal.add_done_callback(self._note_renewal)
            return self._renewal

    def _note_renewal(self, renewal: asyncio.Task[None]) -> None:
        self._renewal = None
        if renewal.cancelled() or (error := renewal.exception()) is None:
            return
        if isinstance(error, RunTakenOver):
            _leases.remove(self)
        else:
            logger.warning("run %r: its lease could not be renewed: %s", self._run_id, error)

    async def _renew_anew(self) -> None:
        """Begin a new renewal of the lease, after one that may be in progress from before a suspension."""
        for _ in range(2):
            renewal = self._begin_renewal()
            if renewal is None:
                return  # the run has ended
            await asyncio.wait([renewal])
            if renewal.cancelled():
                return
            renewal.result()
            if steady_seconds() < self._until:
                return

    async def _renew(self, moment: Moment | None) -> None:
        known = None if moment is None else self._renewed
        self._renewed = None
        for left in reversed(range(_TRIES)):
            if known is None or moment is None:
                began = steady_seconds()
                found = await self.store.read(header_key(self._run_id))
                if (held := self._held(found)) is None:
                    logger.warning("run %r: %s, so its lease is not renewed", self._run_id, _why_lost(found))
                    raise RunTakenOver(self._run_id)
                known, moment = (held, found.revision), Moment(found.now, began)
            before, revision = known
            header = self.terms.lease(before, moment.now, moment.steady, **self.progress())
            is_new_day = header.later_days != before.later_days
            if is_new_day:
                await add_to_index(self.store, header, before=before)
            try:
                await replace_header(self.store, header, revision)
            except RevisionConflict:  # somebody has sent a message, or has taken the run
                if not left:
                    raise
                known = None
                continue
            self._until = moment.steady + self.terms.seconds
            self._renewed = header, revision + 1
            if self._was_taken_up:  # the process that had the run before may have removed entries late
                await add_to_index(self.store, header)
            return

    def _held(self, found: StoredValues) -> RunHeader | None:
        """Return the header that was found if this process has the run. Messages may have changed it."""
        held = decode_header(self._run_id, found.values[-1]) if found.values else None
        return held if held is not None and held.owner == self.header.owner else None

    def _look_for_life(self) -> bool:
        """Return whether the event loop of the run has not run for longer than `max_stall`."""
        if not self._pulse.ask():  # its loop is closed, so nobody goes on with the run
            _leases.remove(self)
            return True
        was_stalled = self._is_stalled
        self._is_stalled = steady_seconds() - self._pulse.turned > self.terms.max_stall
        if self._is_stalled and not was_stalled:
            message = "run %r: its event loop has been blocked for %g s; the lease is not renewed meanwhile"
            logger.warning(message, self._run_id, self.terms.max_stall)
        return self._is_stalled


class Moment(NamedTuple):
    """A moment by two clocks."""

    now: datetime
    """By the clock of a store."""
    steady: float
    """By the steady clock, before the store was asked."""


class _Pulse:
    """The signs of life of one event loop, for all runs on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)
        self._is_asked = False
        self.turned = steady_seconds()
        """Time at which the loop was last seen to run."""

    @classmethod
    def here(cls) -> _Pulse:
        """Return the pulse of the running loop, which has just been seen to run."""
        loop = asyncio.get_running_loop()
        pulse = _pulses.get(loop)
        if pulse is None:
            pulse = _pulses[loop] = cls(loop)
        pulse._turn()
        return pulse

    def ask(self) -> bool:
        """Ask the loop for a sign of life, if that is not under way. Return whether the loop is open."""
        loop = self._loop()
        if loop is None or loop.is_closed():
            return False
        if not self._is_asked:
            self._is_asked = True
            try:
                loop.call_soon_threadsafe(self._turn)
            except RuntimeError:  # it was closed meanwhile
                return False
        return True

    def _turn(self) -> None:
        self.turned, self._is_asked = steady_seconds(), False


_pulses: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Pulse]] = WeakKeyDictionary()
in_forked_process(_pulses.clear)


def _why_lost(found: StoredValues) -> str:
    """Return the reason why a header that was found is not the one of this process."""
    if found.values:
        return "another process has taken it over"
    return "its header is gone from the store: the run was deleted, or the store has lost it"


class _Leases:
    """The leases of this process, renewed on the background loop: steps can block the loops of runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: dict[float, set[Lease]] = {}
        """The leases by their length in seconds. One task renews those of a length."""

    def add(self, lease: Lease) -> None:
        """Renew a lease from now on."""
        seconds = lease.terms.seconds
        with self._lock:
            is_new = seconds not in self._live
            self._live.setdefault(seconds, set()).add(lease)
        if is_new:
            in_background(self._renew_all(seconds))

    def remove(self, lease: Lease) -> None:
        """Stop renewing a lease."""
        with self._lock:
            self._live.get(lease.terms.seconds, set()).discard(lease)

    async def _renew_all(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds / RENEWALS_PER_LEASE / _LOOKS)
            if not self._renew_due(seconds):
                return

    def _renew_due(self, seconds: float) -> bool:
        """Return whether there are leases of this length. It is a call, so that no frame keeps their runs."""
        with self._lock:
            leases = tuple(self._live[seconds])
            if not leases:
                del self._live[seconds]
                return False
        now, due = steady_seconds(), dict[int, list[Lease]]()
        for lease in leases:
            if lease.falls_due(now):
                due.setdefault(id(lease.store), []).append(lease)
        for together in due.values():
            in_background(_renew_together(together))
        return True


async def _renew_together(leases: Sequence[Lease]) -> None:
    """Begin to renew leases in one store, which is asked for the time once."""
    moment = await _moment_in(leases[0].store)
    for lease in leases:
        lease.renew_soon(moment)


async def _moment_in(store: RunStore) -> Moment | None:
    """Return the present moment; `None` if the store does not tell, or may give a revision again."""
    if not deletes_at_revision(store):
        return None
    steady = steady_seconds()
    try:
        return Moment(await store_time(store), steady)
    except Exception:  # a store can be the user's; each renewal asks it again, and says that it fails
        return None


_leases = _Leases()


def _after_fork() -> None:
    """Renew no lease in a forked process: the runs belong to its parent."""
    global _leases
    _leases = _Leases()


in_forked_process(_after_fork)
