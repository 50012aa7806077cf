"""One SQLite file that several processes use."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

from fastroai.errors import ConfigurationError, StoreUnavailable

_ADVICE: Final = {
    sqlite3.SQLITE_FULL: "make room on its disk",
    sqlite3.SQLITE_BUSY: "see which other process holds it, or give a longer timeout",
    sqlite3.SQLITE_READONLY: "let this user write to the file, those beside it (-wal, -shm) and the folder",
    sqlite3.SQLITE_PERM: "let this user read and write the file",
    sqlite3.SQLITE_CANTOPEN: "make its folder, and let this user write there",
    sqlite3.SQLITE_NOTADB: "give the path of another file",
    sqlite3.SQLITE_CORRUPT: "put back a copy of the file, or give the path of another",
}
_OTHERWISE: Final = "see that its disk is there and works"


def file_path(path: str | os.PathLike[str], in_memory: str) -> str:
    """The absolute path of a file.

    Raises:
        ConfigurationError: it is no file's. `in_memory` is what there is instead.
    """
    name = os.fspath(path)
    if not name or name.startswith(":memory:"):
        raise ConfigurationError("path", name, f"a file; in memory, there is {in_memory}")
    return os.path.abspath(name)


@dataclass(frozen=True)
class SQLiteFile:
    """Opens the file for `Connections`, in WAL mode, and makes the tables where there are none."""

    path: str
    timeout: float
    schema: Sequence[str]
    """The statements that make the tables, if the last one's table or index is not there."""
    last_made: str
    """The name of that."""
    error: type[StoreUnavailable]
    synchronous: Literal["NORMAL", "FULL"] = "NORMAL"
    """NORMAL is safe against the death of processes, FULL against that of the machine."""
    errors: tuple[type[Exception], ...] = (sqlite3.Error,)

    @property
    def name(self) -> str:
        """The store, as its errors name it."""
        return f"SQLite {self.path}"

    def connect(self) -> sqlite3.Connection:
        """Open the file."""
        connection = sqlite3.connect(
            self.path, timeout=self.timeout, isolation_level=None, check_same_thread=False
        )
        try:
            _switch_to_wal(connection, self.timeout)
            connection.execute(f"PRAGMA synchronous = {self.synchronous}")
            # Where syncing alone stops at the disk's cache, which is on macOS.
            connection.execute(f"PRAGMA fullfsync = {self.synchronous == 'FULL'}")
            self._create_tables(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _create_tables(self, connection: sqlite3.Connection) -> None:
        is_made = "SELECT 1 FROM sqlite_master WHERE name = ?"
        if connection.execute(is_made, [self.last_made]).fetchone() is None:
            with transaction(connection):
                for statement in self.schema:
                    connection.execute(statement)

    def close(self, connection: sqlite3.Connection) -> None:
        """Close the file."""
        connection.close()

    def hang_up(self, connection: sqlite3.Connection) -> None:
        """End a statement that takes too long."""
        connection.interrupt()

    def is_lost(self, error: Exception) -> bool:
        """Never: a file has no line that could be cut."""
        return False

    def unavailable(self, reason: str, error: Exception | None) -> StoreUnavailable:
        """The error of the store."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        return self.error(self.name, reason, _ADVICE.get(code, _OTHERWISE))


@contextmanager
def transaction(
    connection: sqlite3.Connection, kind: Literal["IMMEDIATE", "DEFERRED"] = "IMMEDIATE"
) -> Iterator[None]:
    """The only one that writes, from its beginning; if deferred, one that only reads."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _switch_to_wal(connection: sqlite3.Connection, timeout: float) -> None:
    end = time.monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # Where several processes do this at once, SQLite does not wait by itself.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return
