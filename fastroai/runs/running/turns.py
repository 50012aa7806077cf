"""Turns of callers that wait to go on with a run while a process has it."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import Final, Literal, TypeAlias, get_args

import anyio

from fastroai.errors import ConfigurationError, RevisionConflict, RunExists, RunInProgress, RunNotFound
from fastroai.records import Duration, in_seconds
from fastroai.runs.openings import OnExisting, Opening
from fastroai.runtime import current_scope
from fastroai.runtime.options import check_seconds
from fastroai.store.reading.following import LATEST, SLOWER, SOONEST
from fastroai.store.record.headers import FoundHeader, line_key, read_header
from fastroai.store.record.log_of_scope import run_of
from fastroai.store.record.runs import DurableRun, LogMoved
from fastroai.store.run_store import RunStore, StoredValues

OnBusy: TypeAlias = Literal["reject", "enqueue", "interrupt"]
"""Behavior of a caller while a process has the run that it wants to go on with."""
_ON_BUSY: Final = get_args(OnBusy)

LONGEST: Final = 100
"""Largest number of callers that can wait for one run."""
_TICKET: Final = 10.0
"""Seconds after which a waiting caller counts as gone, unless it has renewed its place in the line."""
_MOST_MOVES: Final = 10
"""Times that a run is opened anew because its log has moved."""
_LAST_WORDS: Final = 2.0
"""Seconds that a caller may take to leave the line."""

logger = logging.getLogger("fastroai.runs")


@dataclass(frozen=True, slots=True)
class WhenBusy:
    """Options of a caller for a run that a process has: what to do, and for how long to wait."""

    do: OnBusy
    seconds: Duration

    def __post_init__(self) -> None:
        if self.do not in _ON_BUSY:
            expected = f"one of {', '.join(map(repr, _ON_BUSY))}"
            raise ConfigurationError("on_busy", self.do, expected)
        check_seconds("busy_timeout", self.seconds, zero=True)


DO_NOT_WAIT: Final = WhenBusy("reject", 60.0)
"""Options of a caller that does not wait, the default, with the seconds for which others wait by default."""


def when_busy(do: OnBusy, seconds: Duration) -> WhenBusy:
    """Return checked options. Those that most callers have are checked once, not for each run."""
    return DO_NOT_WAIT if do == "reject" and seconds == DO_NOT_WAIT.seconds else WhenBusy(do, seconds)


def check_existing(on_existing: OnExisting, busy: WhenBusy, run_id: str | None) -> None:
    """Check that options do not contradict each other. Raises `ConfigurationError`."""
    if on_existing not in get_args(OnExisting):
        expected = f"one of {', '.join(map(repr, get_args(OnExisting)))}"
        raise ConfigurationError("on_existing", on_existing, expected)
    if on_existing == "fail" and busy.do != "reject":
        others = "'resume' or 'replace'" if busy.do == "interrupt" else "'resume', 'return' or 'replace'"
        expected = f"{others} with on_busy={busy.do!r}: with 'fail', a call ends at once if the run exists"
        raise ConfigurationError("on_existing", on_existing, expected)
    if on_existing == "return" and busy.do == "interrupt":
        expected = "'enqueue' with on_existing='return': an interrupted run has no result"
        raise ConfigurationError("on_busy", busy.do, expected)
    if run_id is None:
        raise ConfigurationError("run_id", None, f"the id of the run, with on_existing={on_existing!r}")
    if run_of(current_scope()) is not None:
        expected = "'fail' inside of another run: a nested run has the id of that run"
        raise ConfigurationError("on_existing", on_existing, expected)


class Turn(AsyncExitStack):
    """The turn of a caller to go on with a run. Callers that wait are in a line, which the store keeps.

    The line decides which of the waiting callers goes first. The lease and the revision of the header decide,
    as for every run, that only one process has the run: so a caller that does not wait can be faster.
    """

    def __init__(
        self, store: RunStore, run_id: str, busy: WhenBusy, interrupt: Callable[[], Awaitable[None]]
    ) -> None:
        """Prepare a turn. `interrupt` is a function that cancels the run, in whichever process it runs."""
        super().__init__()
        around = run_of(current_scope())
        if busy.do != "reject" and around is not None and around.run_id == run_id:
            raise ConfigurationError(
                "on_busy", busy.do, "'reject', because a call inside the run would wait for itself"
            )
        self._store, self._run_id, self._busy, self._interrupt = store, run_id, busy, interrupt
        self._id, self._ends = uuid.uuid4().hex, monotonic() + in_seconds(busy.seconds)
        self._key = ""
        """Key of the line in which this caller is; empty outside of a line."""
        self._interrupted: set[str | None] = set()
        self._moves = 0
        """How often the log has moved while the run was opened."""
        self._is_opening = self._has_begun = False
        self.push_async_callback(self._leave_in_time)

    async def wait(self) -> None:
        """Wait until no process has the run, and no caller that came earlier waits for it.

        Raises:
            RunInProgress: the time to wait is over, or too many callers wait.
        """
        pause, self._is_opening = SOONEST, False
        while self._busy.do != "reject":
            try:
                found = await read_header(self._store, self._run_id)
            except RunNotFound:
                return
            is_first, is_free = await self._is_first(found), not found.is_running
            if is_first and is_free:
                return
            if monotonic() >= self._ends:
                raise found.in_progress()
            if is_first and self._busy.do == "interrupt" and found.header.owner not in self._interrupted:
                self._interrupted.add(found.header.owner)
                await self._interrupt()
            await asyncio.sleep(pause)
            pause = min(pause * SLOWER, LATEST)

    def waits_again(self, lost: RunInProgress | RunExists) -> bool:
        """Return whether to wait again, after another caller was faster, or an earlier owner wrote late."""
        if self._has_begun or lost.run_id != self._run_id:
            return False
        if isinstance(lost, LogMoved):
            self._moves += 1
            return self._moves <= _MOST_MOVES
        return self._is_opening if isinstance(lost, RunExists) else self._busy.do != "reject"

    def ending_with(self, opening: Opening) -> Opening:
        """Return an opening that ends this turn once the run is open, so that the next caller can go on."""

        async def open_run(given: Mapping[str, object]) -> DurableRun:
            self._is_opening = True
            run = await opening.open(given)
            self._has_begun = True
            await self._leave()
            return run

        return replace(opening, open=open_run)

    # --- the line ---

    async def _is_first(self, found: FoundHeader) -> bool:
        """Return whether no earlier caller waits. A caller that has to wait is in the line afterwards."""
        key = line_key(found.header)
        while True:
            stored = await self._store.read(key)
            line = _living(stored)
            if self._id not in line:
                if not line and not found.is_running:
                    return True
                if len(line) >= LONGEST:
                    raise found.in_progress()
            if line.get(self._id, 0.0) < stored.now.timestamp() + _TICKET / 2:
                line[self._id] = stored.now.timestamp() + _TICKET
                if not await self._put(key, line, stored.revision):
                    continue
                self._key = key
            return next(iter(line)) == self._id

    async def _put(self, key: str, line: Mapping[str, float], revision: int) -> bool:
        """Write the line, unless somebody has changed it. Return whether it is written."""
        with suppress(RevisionConflict):
            await self._store.compare_and_set(key, json.dumps(line).encode(), revision=revision)
            return True
        return False

    async def _leave_in_time(self) -> None:
        if self._key:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_LAST_WORDS):
                await self._leave()

    async def _leave(self) -> None:
        key, self._key = self._key, ""
        try:
            while key:
                stored = await self._store.read(key)
                line = _living(stored)
                if line.pop(self._id, None) is None:
                    return
                if not await self._put(key, line, stored.revision):
                    continue
                if not line:
                    await self._store.delete(key)  # a caller that joins just now sees that its place is gone
                return
        except Exception as error:  # a store of the user can raise anything; the place in the line runs out
            logger.warning("run %r: it could not be removed from its queue: %s", self._run_id, error)


def _living(stored: StoredValues) -> dict[str, float]:
    """Return the waiting callers in order, each with the time until which it counts as waiting."""
    line: dict[str, float] = json.loads(stored.values[-1]) if stored.values else {}
    return {one: until for one, until in line.items() if until > stored.now.timestamp()}
