"""One SQLite file that several processes use."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

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
_APPLICATION_ID: Final = 0x46524149  # FRAI
"""The mark of a database of FastroAI, which the `file` command shows."""
_UNMARKED: Final = {"run_value", "spend_account"}
"""Tables of databases of FastroAI that were made before there was a mark."""
_OWNER_ONLY: Final = 0o600
"""The mode of a new file: others must not read what runs hold. SQLite gives it to the files beside it."""
_OTHERWISE: Final = "see that its disk is there and works"
_PUT_BACK: Final = "put back the one that was there, or close the store, which then opens what is there"

_Identity: TypeAlias = tuple[int, int]
"""Return the device and the inode number of a file."""


def file_path(path: str | os.PathLike[str], in_memory: str) -> str:
    """The absolute path of a file.

    Raises:
        ConfigurationError: it is no file's. `in_memory` is what there is instead.
    """
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(name, str) or not name or name.startswith(":memory:"):
        raise ConfigurationError("path", name, f"the path of a file; in memory, there is {in_memory}")
    return os.path.abspath(name)


@dataclass
class SQLiteFile:
    """Opens the file for `Connections`, in WAL mode, and makes the tables where there are none.

    It stays with the file that it has first opened. SQLite itself does not notice when that is deleted or
    replaced, and what it writes then is lost.
    """

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
    closes_before_fork: bool = True
    """SQLite keeps a table of its locks for the whole process, which a forked one would take for its own.
    https://www.sqlite.org/howtocorrupt.html#_carrying_an_open_database_connection_across_a_fork_
    """
    _opened: _Identity | None = field(default=None, init=False)
    _logs: dict[sqlite3.Connection, _Identity] = field(default_factory=dict, init=False)
    """The write-ahead log that the connections have open."""

    @property
    def name(self) -> str:
        """The store, as its errors name it."""
        return f"SQLite {self.path}"

    def connect(self) -> sqlite3.Connection:
        """Open the file."""
        if self._opened is not None:
            self._check_file()  # SQLite would make another where there is none
        with suppress(OSError):  # it is there, or SQLite says why it cannot be made
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL, _OWNER_ONLY))
        connection = sqlite3.connect(
            self.path, timeout=self.timeout, isolation_level=None, check_same_thread=False
        )
        try:
            self._check_application(connection)  # before anything is written: switching to WAL writes
            _switch_to_wal(connection, self.timeout)
            connection.execute(f"PRAGMA synchronous = {self.synchronous}")
            # Where syncing alone stops at the disk's cache, which is on macOS.
            connection.execute(f"PRAGMA fullfsync = {self.synchronous == 'FULL'}")
            self._create_tables(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_application(self, connection: sqlite3.Connection) -> None:
        """Refuse the database of another program, which must not be changed."""
        (found,) = connection.execute("PRAGMA application_id").fetchone()
        if found == _APPLICATION_ID:
            return
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if found or (tables and not tables & _UNMARKED):
            reason = "the file is a database of another program, and is left as it is"
            raise self.error(self.name, reason, _ADVICE[sqlite3.SQLITE_NOTADB])

    def _create_tables(self, connection: sqlite3.Connection) -> None:
        is_made = "SELECT 1 FROM sqlite_master WHERE name = ?"
        if connection.execute(is_made, [self.last_made]).fetchone() is None:
            with self.transaction(connection):
                connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                for statement in self.schema:
                    connection.execute(statement)

    @contextmanager
    def transaction(
        self, connection: sqlite3.Connection, kind: Literal["IMMEDIATE", "DEFERRED"] = "IMMEDIATE"
    ) -> Iterator[None]:
        """The only one that writes, from its beginning; if deferred, one that only reads.

        Raises:
            StoreUnavailable: the file was deleted or replaced since it was opened.
        """
        connection.execute(f"BEGIN {kind}")
        try:
            self._check_file()
            self._check_log(connection)
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _check_file(self) -> None:
        found = self._identity(self.path, "its file")
        if self._opened is None:
            self._opened = found
        elif self._opened != found:
            reason = "another file has taken the place of its own since that was opened"
            raise self.error(self.name, reason, _PUT_BACK)

    def _check_log(self, connection: sqlite3.Connection) -> None:
        """Refuse to go on if the log was deleted: what is written to it is lost with the process."""
        if connection not in self._logs:
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()  # which opens the log
            self._logs[connection] = self._identity(f"{self.path}-wal", "its write-ahead log (-wal)")
        elif self._identity(f"{self.path}-wal", "its write-ahead log (-wal)") != self._logs[connection]:
            reason = "another write-ahead log (-wal) has taken the place of its own since that was opened"
            raise self.error(self.name, reason, _PUT_BACK)

    def _identity(self, path: str, what: str) -> _Identity:
        try:
            status = os.stat(path)
        except OSError as error:
            reason = f"{what} is gone since it was opened ({error.strerror})"
            raise self.error(self.name, reason, _PUT_BACK) from error
        return status.st_dev, status.st_ino

    def forget(self) -> None:
        """Take whatever file is there when it is opened again."""
        self._opened = None

    def close(self, connection: sqlite3.Connection) -> None:
        """Close the file."""
        self._logs.pop(connection, None)
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
