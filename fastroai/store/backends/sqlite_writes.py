"""Writes to one SQLite file, of which those that wait at the same time are in one transaction."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from fastroai.forks import in_forked_process
from fastroai.store.backends.connections import Connections, retrieve, wait_uncancelled
from fastroai.store.backends.sqlite_file import SQLiteFile

T = TypeVar("T")

MOST_WRITES: Final = 256
"""Most writes of one transaction."""
_OF_NO_WRITE: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_INTERRUPT)
"""Errors of a transaction that do not come from one of its writes."""


class SQLiteWrites:
    """Performs writes in the order in which they come. Each is committed before its caller goes on.

    A transaction, and waking another thread after it, cost more than the writes in it. So all writes that
    come while the file is busy, of any runs and event loops, are in the next transaction.
    """

    def __init__(self, driver: SQLiteFile, connections: Connections[sqlite3.Connection]) -> None:
        """`connections` has at most one connection, so that one transaction comes after the other."""
        self._driver, self._connections = driver, connections
        self._start()
        in_forked_process(self._start)

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._line: dict[_Waiting[Any], None] = {}
        """The writes that are in no transaction yet, in order."""
        self._is_at_work = self._has_begun = False
        """Whether a transaction is on its way, after which those in line come; and whether it has begun."""
        self._one_by_one = 0
        """The number of writes in line that get a transaction each, because theirs failed together."""

    async def perform(self, write: Callable[[sqlite3.Connection], T]) -> T:
        """Perform a write in a transaction, and return its result. A write that fails may be called again.

        If this is cancelled in line, the write is left out; later, its end is awaited first.

        Raises:
            RunStoreUnavailable: the write failed, or took too long.
        """
        waiting = _Waiting(write)
        with self._lock:
            self._line[waiting] = None
            is_first, self._is_at_work = not self._is_at_work, True
        if is_first:
            try:
                self._begin()
            except BaseException:  # no thread can be started
                self._left_out(waiting)
                raise
        try:
            await asyncio.wait([waiting.answer], timeout=self._connections.patience)
        except asyncio.CancelledError:
            if not self._left_out(waiting):
                await wait_uncancelled(waiting.answer, self._connections.patience)
            waiting.answer.add_done_callback(retrieve)
            raise
        if not waiting.answer.done():
            self._left_out(waiting)
            waiting.answer.cancel()
            raise self._connections.no_answer()
        try:
            return waiting.answer.result()
        except self._driver.errors as error:
            raise self._connections.failure(error) from error

    def _left_out(self, waiting: _Waiting[Any]) -> bool:
        """Take a write out of the line. Return whether it was still there."""
        with self._lock:
            return self._line.pop(waiting, waiting) is None

    def _begin(self) -> None:
        self._has_begun = False
        try:
            transaction = self._connections.submit(self._commit_next)
        except BaseException:
            self._is_at_work = False
            raise
        transaction.add_done_callback(self._go_on)

    # --- in the thread of the connection ---

    def _commit_next(self, connection: sqlite3.Connection) -> None:
        group = self._take()
        if not group:
            return  # their callers were cancelled
        try:
            with self._driver.transaction(connection):
                for waiting in group:
                    waiting.result = waiting.write(connection)
        except Exception as error:
            if len(group) == 1 or getattr(error, "sqlite_errorcode", 0) & 0xFF in _OF_NO_WRITE:
                _tell(group, error)
            else:
                self._put_back(group)
            raise
        _tell(group, None)

    def _take(self) -> Sequence[_Waiting[Any]]:
        with self._lock:
            self._has_begun = True
            group = list(islice(self._line, 1 if self._one_by_one else MOST_WRITES))
            self._one_by_one = max(0, self._one_by_one - 1)
            for waiting in group:
                del self._line[waiting]
        return group

    def _put_back(self, group: Sequence[_Waiting[Any]]) -> None:
        with self._lock:
            self._line = dict.fromkeys(group) | self._line
            self._one_by_one = len(group)

    def _go_on(self, transaction: Future[None]) -> None:
        """Begin the next transaction if writes are in line. If the file was not opened, they have failed."""
        error = transaction.exception()
        with self._lock:
            unreached = [] if self._has_begun else [*self._line]
            for waiting in unreached:
                del self._line[waiting]
            self._is_at_work = bool(self._line)
        _tell(unreached, error)
        if self._is_at_work:
            self._begin()


class _Waiting(Generic[T]):
    """A write whose caller waits for its answer."""

    __slots__ = ("answer", "loop", "result", "write")

    def __init__(self, write: Callable[[sqlite3.Connection], T]) -> None:
        self.write = write
        self.result: T
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[T] = self.loop.create_future()


def _tell(group: Sequence[_Waiting[Any]], error: BaseException | None) -> None:
    """Give all callers their answers, and wake each event loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[_Waiting[Any]]] = {}
    for waiting in group:
        loops.setdefault(waiting.loop, []).append(waiting)
    for loop, of_loop in loops.items():
        with suppress(RuntimeError):  # it is closed, so nobody waits there
            loop.call_soon_threadsafe(_answer, of_loop, error)


def _answer(group: Sequence[_Waiting[Any]], error: BaseException | None) -> None:
    for waiting in group:
        if waiting.answer.done():
            continue  # its caller was cancelled, or has waited for too long
        if error is None:
            waiting.answer.set_result(waiting.result)
        else:
            waiting.answer.set_exception(error)
