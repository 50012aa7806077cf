"""Writes the facts of one run to a store: in order, several at a time, and again where the store fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Final, Literal, TypeVar

from fastroai.errors import (
    FastroAIError,
    RevisionConflict,
    RunStoreUnavailable,
    RunTakenOver,
    ScopeClosedError,
)
from fastroai.runtime import backoff_delay
from fastroai.runtime.concurrency.tasks import end_task
from fastroai.runtime.concurrency.wakeup import running_loop
from fastroai.runtime.fact_base import Fact
from fastroai.runtime.facts import QuestionAsked, WaitStarted
from fastroai.store.reading.run_quality import QualityOnRecord
from fastroai.store.reading.run_spending import SpendingOnRecord
from fastroai.store.record.entry_sizes import entry_for
from fastroai.store.record.packed import PackedFacts
from fastroai.store.record.payloads import PayloadCodec
from fastroai.store.run_store import RunStore, largest_value

T = TypeVar("T")

Durability = Literal["sync", "async"]
"""When the run goes on after a fact: `sync`, when the fact is stored; `async`, at once."""

LINGER: Final = 0.05
"""Seconds for which an entry that nobody waits for is held back, so that others can be stored with it."""
MOST_UNSTORED: Final = 1_000
"""Most entries that may be unstored with `durability="async"`. A caller that adds more waits."""
ENTRIES_AT_ONCE: Final = 500
PATIENCE: Final = 8
"""Times that a write is tried. The pauses between are 13 s together at most."""

logger = logging.getLogger("fastroai.store")


class Journal:
    """Writes the log of one run, which only one process does at a time.

    `note` adds an entry that may be lost with the process, `commit` one that may not.
    """

    def __init__(
        self,
        store: RunStore,
        run_id: str,
        key: str,
        *,
        revision: int,
        durability: Durability = "sync",
        codec: PayloadCodec | None = None,
        before: Iterable[Fact] = (),
    ) -> None:
        """`key` is the key of the log. `codec` seals texts and names here; payloads are sealed already.

        `before` are the facts that earlier processes have put on record.
        """
        self._store, self._run_id, self._key = store, run_id, key
        self._largest = largest_value(store)
        self._first = self.revision = revision
        """Number of entries that the store has for sure; at first, those of earlier processes."""
        self._durability, self._codec = durability, codec
        self._loop = asyncio.get_running_loop()
        self.entries = PackedFacts()
        """The facts that this process has added, if `keeps_entries`."""
        self.keeps_entries = True
        """Whether the facts stay in memory. A run of rows reads them in its store."""
        self.spending, self.quality = SpendingOnRecord(), QualityOnRecord()
        """What the whole run has spent, and how it went: before this process, and in it."""
        for entry in before:
            self._count(entry)
        self.halting: dict[int, QuestionAsked | WaitStarted] = {}
        """The questions and waits of steps among these facts, each by its number among them, from 1."""
        self._checked: tuple[Fact, bytes] | None = None
        """The entry that was checked last, as it is stored: most are added next."""
        self._waiting: list[bytes] = []
        self._written = self._added = 0
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self.failure: FastroAIError | None = None
        """The error after which nothing more can be written, if there is one."""
        self._closed = False

    @property
    def position(self) -> int:
        """The position in the log of the entry that was added last. On the loop of the run."""
        return self._first + self._added

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended, so that nothing more is written."""
        return self._closed or self._loop.is_closed()

    def note(self, entry: Fact) -> None:
        """Add an entry that is written soon, at the latest with the next commit. From any thread.

        An entry that comes after the end of the run is dropped.

        Raises:
            ValueNotStorable: the entry is larger than the store takes.
        """
        if running_loop() is not self._loop:
            with suppress(RunStoreUnavailable):  # the codec failed, and fails again on the loop
                self.check(entry)
            with suppress(RuntimeError):  # its loop is closed, so the run has ended
                # In two turns of the loop, as `commit` takes: else it would come before an entry that the
                # same thread has committed, and a log with an end before its beginning cannot be read.
                self._loop.call_soon_threadsafe(self._loop.call_soon, self.note, entry)
            return
        if self._closed:
            return
        self._add(entry)
        if self._writer is None and self._alarm is None:
            self._alarm = self._loop.call_later(LINGER, self._write_soon)

    def check(self, entry: Fact) -> None:
        """Make sure that an entry is not too large, before anything depends on it. From any thread.

        The entry does not change any more.

        Raises:
            ValueNotStorable: it is larger than the store takes.
            RunStoreUnavailable: the codec fails.
        """
        self._checked = entry, self._encoded(entry)

    def _encoded(self, entry: Fact) -> bytes:
        return entry_for(self._largest, entry, self._codec)

    async def commit(self, entry: Fact) -> None:
        """Write an entry, and wait until it is stored; with `durability="async"`, only until there is room.

        Can be called from any event loop while the loop of the run is running. If the caller is cancelled
        while it waits, the entry is written all the same.

        Raises:
            RunStoreUnavailable: the store has failed in all attempts.
            RunTakenOver: another process writes this log now, or the run was deleted.
            ScopeClosedError: the run has ended.
            ValueNotStorable: the entry is larger than the store takes.
        """
        self._check()
        if running_loop() is self._loop:
            await self._commit(entry)
        else:
            ended = asyncio.run_coroutine_threadsafe(self._commit(entry), self._loop)
            await asyncio.shield(asyncio.wrap_future(ended))

    async def _commit(self, entry: Fact) -> None:
        self._check()
        self._add(entry)
        await self.kept()

    async def kept(self) -> None:
        """Wait until everything that was added is as safe as `durability` says. On the loop of the run.

        Raises as `commit`.
        """
        self._check()
        self._write_soon()
        if self._durability == "sync":
            await self._stored(self._added)
        elif self._added - self._written > MOST_UNSTORED:
            await self._stored(self._added - MOST_UNSTORED)

    async def flush(self) -> None:
        """Wait until everything is stored. Raises as `commit`."""
        self._check()
        if self._written < self._added:
            self._write_soon()
            await self._stored(self._added)

    async def aclose(self) -> None:
        """Write the remaining entries, unless the store has failed. Then stop all work of the journal."""
        try:
            if self.failure is None and not self._closed:
                await self.flush()
        finally:
            await self.abandon()

    def give_up(self, error: Exception) -> FastroAIError:
        """Write nothing more, because of an exception of the store, or because another process has the run.

        Return the exception that commits raise from now on. From any thread.
        """
        self.failure = error if isinstance(error, FastroAIError) else _broken(self._store, error)
        return self.failure

    async def abandon(self) -> None:
        """Write nothing more, even if entries remain."""
        self._closed = True
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        try:
            if self._writer is not None:
                await end_task(self._writer)
        finally:
            self._tell()

    def _add(self, entry: Fact) -> None:
        checked, self._checked = self._checked, None
        try:
            is_checked = checked is not None and checked[0] is entry
            stored = checked[1] if checked and is_checked else self._encoded(entry)
        except RunStoreUnavailable as error:  # the codec failed
            self.failure = error
            self._tell()
            return
        self._waiting.append(stored)
        if self.keeps_entries:
            self.entries.append(entry)
        self._count(entry)
        self._added += 1
        if isinstance(entry, QuestionAsked | WaitStarted):
            self.halting[self._added] = entry

    def _count(self, entry: Fact) -> None:
        self.spending.read(entry)
        self.quality.read(entry)

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self.has_ended:
            raise ScopeClosedError((f"run {self._run_id!r}",))

    async def _stored(self, number: int) -> None:
        future = self._loop.create_future()
        self._waiters.append((number, future))
        await future

    # --- writing ---

    def _write_soon(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._writer is None and self._waiting and self.failure is None and not self._closed:
            # In a context of its own, because the task outlives the step that started it.
            self._writer = self._loop.create_task(self._write_all(), context=Context())

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                count = await self._write(self._waiting[:ENTRIES_AT_ONCE])
                del self._waiting[:count]
                self._written += count
                self._tell()
        except Exception as error:
            self.give_up(error)
            self._tell()
        finally:
            self._writer = None

    def _tell(self) -> None:
        """Wake callers whose entries are stored. If nothing more can be stored, wake all with an error."""
        left: list[tuple[int, asyncio.Future[None]]] = []
        for number, future in self._waiters:
            if future.done():
                continue
            if number <= self._written:
                future.set_result(None)
            elif self.failure is not None:
                future.set_exception(self.failure)
            elif self._closed:
                future.set_exception(ScopeClosedError((f"run {self._run_id!r}",)))
            else:
                left.append((number, future))
        self._waiters = left

    async def _write(self, entries: Sequence[bytes]) -> int:
        """Write entries, and return how many of them are stored now."""
        stored = await patiently(self._run_id, lambda: self._append(entries))
        self.revision += stored
        return stored

    async def _append(self, entries: Sequence[bytes]) -> int:
        try:
            await self._store.append(self._key, entries, revision=self.revision)
        except RevisionConflict:
            return await self._found(entries)
        return len(entries)

    async def _found(self, entries: Sequence[bytes]) -> int:
        """Return how many entries of a write whose answer was lost are stored.

        More entries may have been added since that write, so only the first may be stored. If another process
        has the run, the log has its entries; if the run was deleted, or the store has lost it, the log has
        none of ours.
        """
        found = await self._store.read(self._key, after=self.revision)
        stored = found.values
        if not stored or stored != tuple(entries[: len(stored)]):
            raise RunTakenOver(self._run_id, found.revision < self.revision)
        return len(stored)


async def patiently(run_id: str, operation: Callable[[], Awaitable[T]]) -> T:
    """Repeat an operation of a store while the store is unavailable, `PATIENCE` times at most."""
    attempt = 1
    while True:
        try:
            return await operation()
        except RunStoreUnavailable as error:
            if attempt >= PATIENCE:
                raise
            delay = backoff_delay(attempt, 0.1)
            logger.warning("run %r: %s; trying again in %.1f s", run_id, error, delay)
            attempt += 1
            await asyncio.sleep(delay)


def _broken(store: RunStore, error: Exception) -> RunStoreUnavailable:
    """Return an error for an unexpected exception of a store, so that nobody waits for ever."""
    unavailable = RunStoreUnavailable(repr(store), f"{type(error).__name__}: {error}")
    unavailable.__cause__ = error
    return unavailable
