"""Follow a run in any process, fact by fact, while it goes on."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from fastroai.errors import ConfigurationError, RunNotFound
from fastroai.runtime.fact_base import Fact, Part
from fastroai.runtime.facts import RunFinished, RunResumed
from fastroai.store.hints import HintsChanges
from fastroai.store.record.entries import entry_in_store, locate
from fastroai.store.record.headers import check_whole, log_key, read_header
from fastroai.store.record.payloads import PayloadCodec
from fastroai.store.record.unsealing import unseal_entry, unseal_one
from fastroai.store.run_store import RunStore

SOONEST: Final = 0.02
"""Seconds between two reads of a store without hints, right after a change."""
LATEST: Final = 0.5
"""Seconds between two reads when nothing has changed for a while."""
SLOWER: Final = 1.5
"""Factor by which the pause grows with each read that finds nothing new."""
UNHINTED: Final = 10.0
"""Seconds after which a store with hints is read without one, because a hint can be lost."""


class FollowedRun:
    """Iterates the facts of a run with their positions, including future ones; `RunHistory.follow` makes it.

    Each item is a position and a fact (an entry of the log). It ends when the run has ended or paused, and
    waits for more if the process of the run has died. Between two facts it holds no task, lease or
    connection, so you need not close it. If a call of `anext` is cancelled, no fact is lost: the next call
    continues. `position` is that of the last fact that was returned: pass it as `after=` to continue
    elsewhere.
    """

    def __init__(self, store: RunStore, run_id: str, after: int, codec: PayloadCodec | None) -> None:
        self.run_id = run_id
        self.position = after
        """Position of the last fact that was returned. Pass it as `after=` to continue elsewhere."""
        self._store, self._codec = store, codec
        self._key = ""
        self._least = 0
        """Entries that the log has at least."""
        self._parts: dict[str, Part] = {}
        self._read_to = max(after - 1, 0)
        """Position up to which the log was read. Begins one lower, because that fact may be the end."""
        self._facts: deque[tuple[int, Fact]] = deque()
        self._has_ended = False
        self._pause = SOONEST

    def __repr__(self) -> str:
        return f"FollowedRun({self.run_id!r}, after={self.position})"

    def __aiter__(self) -> FollowedRun:
        return self

    async def __anext__(self) -> tuple[int, Fact]:
        """Return the next fact and its position. Raises as `RunHistory.follow`."""
        if not self._key:
            await self._open()
        while not self._facts:
            if self._has_ended:
                raise StopAsyncIteration
            if not await self._read():
                await self._wait()
        # The last fact is told when the run can be resumed: its process gives up the lease after that fact.
        while self._has_ended and len(self._facts) == 1 and await self._is_held():
            if not await self._read():
                await asyncio.sleep(SOONEST)
        self.position, fact = self._facts.popleft()
        return self.position, fact

    async def _open(self) -> None:
        header = (await read_header(self._store, self.run_id)).header
        self._least = header.log_revision
        self._parts[""] = Part(self.run_id, header.pipeline, (header.pipeline,))
        self._has_ended = header.status in ("finished", "failed", "cancelled")
        await self._read_on(log_key(header))
        self._key = log_key(header)

    async def _is_held(self) -> bool:
        """Return whether a process has the run."""
        try:
            return (await read_header(self._store, self.run_id)).is_running
        except RunNotFound:
            return False

    async def _read(self) -> bool:
        """Read new facts. Return whether there were any."""
        before = self._read_to
        await self._read_on(self._key)
        if self._read_to == before:
            return False
        self._pause = SOONEST
        return True

    async def _read_on(self, key: str) -> None:
        stored = await self._store.read(key, after=self._read_to)
        if not stored.revision:
            raise RunNotFound(self.run_id, repr(self._store))  # it was deleted since it was found
        check_whole(self.run_id, "log entries", stored, after=self._read_to, least=self._least)
        if stored.revision < self.position:
            expected = f"a position in the log of run {self.run_id!r}, which ends at {stored.revision}"
            raise ConfigurationError("after", self.position, expected)
        first = stored.revision - len(stored.values) + 1
        found = [
            (position, entry_in_store(self.run_id, position, value))
            for position, value in enumerate(stored.values, first)
        ]
        locate((fact for _, fact in found), self._parts)
        told = [
            (position, unseal_one(self.run_id, position, fact, lambda one: unseal_entry(one, self._codec)))
            for position, fact in found
        ]
        self._read_to = self._least = stored.revision
        for position, fact in told:
            if isinstance(fact, RunFinished | RunResumed):
                self._has_ended = isinstance(fact, RunFinished)
            if position > self.position:
                self._facts.append((position, fact))

    async def _wait(self) -> None:
        """Wait until there may be something new."""
        if isinstance(self._store, HintsChanges):
            await self._store.changed(self._key, revision=self._read_to, timeout=UNHINTED)
        else:
            await asyncio.sleep(self._pause)
            self._pause = min(self._pause * SLOWER, LATEST)
