"""Writes to one SQLite file, of which those that wait at the same time are in one transaction."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from fastroai.forks import in_forked_process
from fastroai.store.backends.connections import Connections
from fastroai.store.backends.sqlite_file import SQLiteFile

T = TypeVar("T")

MOST_WRITES: Final = 256
"""Most writes of one transaction."""
_OF_NO_WRITE: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_INTERRUPT)
"""Errors that another process causes, or a caller that waits no longer, and no write."""


class SQLiteWrites:
    """Performs writes in the order in which they come. Each is committed before its caller goes on.

    A transaction costs more than the writes in it. So all writes that come while the file is busy, of any
    runs and event loops, are in the next transaction.
    """

    def __init__(self, driver: SQLiteFile, connections: Connections[sqlite3.Connection]) -> None:
        """`connections` has at most one connection, so that one transaction comes after the other."""
        self._driver, self._connections = driver, connections
        self._start()
        in_forked_process(self._start)

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._line: dict[_Waiting[Any], None] = {}
        """The writes that are not committed, in order."""

    async def perform(self, write: Callable[[sqlite3.Connection], T]) -> T:
        """Perform a write in a transaction, and return its result. `write` is called again if that fails.

        If this is cancelled, the write may be performed nevertheless; then it comes before all later ones.

        Raises:
            RunStoreUnavailable: the write failed, or took too long.
        """
        waiting = _Waiting(write)
        with self._lock:
            self._line[waiting] = None
        try:
            await self._connections.run(lambda connection: self._perform_up_to(waiting, connection))
        finally:
            self._leave([waiting])
        return waiting.result

    def _perform_up_to(self, last: _Waiting[Any], connection: sqlite3.Connection) -> None:
        """Perform the writes in line, up to one, in as few transactions as can be."""
        while not last.is_over:
            with self._lock:
                group = list(islice(self._line, MOST_WRITES))
            try:
                self._commit(group, connection)
            except Exception as error:
                if group == [last] or getattr(error, "sqlite_errorcode", 0) & 0xFF in _OF_NO_WRITE:
                    raise
                # Another write may have failed. That fails in its own turn, and none of the others with it.
                group = [last]
                self._commit(group, connection)
            self._leave(group)

    def _commit(self, group: Sequence[_Waiting[Any]], connection: sqlite3.Connection) -> None:
        with self._driver.transaction(connection):
            for waiting in group:
                waiting.result = waiting.write(connection)

    def _leave(self, group: Sequence[_Waiting[Any]]) -> None:
        with self._lock:
            for waiting in group:
                waiting.is_over = True
                self._line.pop(waiting, None)


class _Waiting(Generic[T]):
    """A write in line."""

    __slots__ = ("is_over", "result", "write")

    def __init__(self, write: Callable[[sqlite3.Connection], T]) -> None:
        self.write = write
        self.result: T
        self.is_over = False
        """Whether it is committed, or nobody waits for it any more."""
