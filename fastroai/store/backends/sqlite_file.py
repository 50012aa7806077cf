"""One SQLite file that several processes use."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from fastroai.errors import ConfigurationError, RunStoreUnavailable

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
"""The mode of a new file, so that other users cannot read it. SQLite uses it for the files beside it, too."""
_OTHERWISE: Final = "see that its disk is there and works"
_PUT_BACK: Final = "put back the one that was there, or close the store, which then opens what is there"

_Identity: TypeAlias = tuple[int, int]
"""The device and the inode number of a file."""


def file_path(path: str | os.PathLike[str], in_memory: str) -> str:
    """Return the absolute path of a file.

    Raises:
        ConfigurationError: the path is not that of a file. `in_memory` names the store to use in memory
            instead.
    """
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(name, str) or not name or name.startswith(":memory:"):
        raise ConfigurationError("path", name, f"the path of a file; in memory, there is {in_memory}")
    if os.path.isdir(name):
        example = os.path.join(name, "runs.db")
        raise ConfigurationError("path", name, f"the path of a file, such as {example!r}; that is a folder")
    return os.path.abspath(name)


@dataclass
class SQLiteFile:
    """Opens the file for `Connections`, in WAL mode, and makes the tables where there are none.

    Once it has opened a file, it refuses any other file at that path. SQLite itself does not notice when its
    file is deleted or replaced, and later writes to that file would be lost.
    """

    path: str
    timeout: float
    schema: Sequence[str]
    """The statements that make the tables and indexes, run if the last of these does not exist."""
    last_made: str
    """The name of the table or index that the last statement makes."""
    synchronous: Literal["NORMAL", "FULL"] = "NORMAL"
    """NORMAL is safe against the death of processes, FULL against that of the machine."""
    errors: tuple[type[Exception], ...] = (sqlite3.Error,)
    address: None = None
    closes_before_fork: bool = True
    """SQLite keeps a table of its locks for the whole process, which a forked process would take for its own.

    https://www.sqlite.org/howtocorrupt.html#_carrying_an_open_database_connection_across_a_fork_
    """
    _opened: _Identity | None = field(default=None, init=False)
    _logs: dict[sqlite3.Connection, _Identity] = field(default_factory=dict, init=False)
    """The write-ahead log that each connection has open."""

    @property
    def name(self) -> str:
        """Name of the store in its errors."""
        return f"SQLite {self.path}"

    def connect(self) -> sqlite3.Connection:
        """Open the file."""
        if self._opened is not None:
            self._check_file()  # otherwise, SQLite would make a new file
        with suppress(OSError):  # it exists, or SQLite reports why it cannot be made
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL, _OWNER_ONLY))
        connection = sqlite3.connect(
            self.path, timeout=self.timeout, isolation_level=None, check_same_thread=False
        )
        try:
            self._check_application(connection)  # before anything is written: switching to WAL writes
            _switch_to_wal(connection, self.timeout)
            connection.execute(f"PRAGMA synchronous = {self.synchronous}")
            # On macOS, a plain sync stops at the cache of the disk.
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
            reason = "the file is a database of another program, and was not changed"
            raise RunStoreUnavailable(self.name, reason, _ADVICE[sqlite3.SQLITE_NOTADB])

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
        """Run a transaction: the only one that writes, from its start; if deferred, one that only reads.

        Raises:
            RunStoreUnavailable: the file was deleted or replaced since it was opened.
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
            reason = "another file has replaced its file since it was opened"
            raise RunStoreUnavailable(self.name, reason, _PUT_BACK)

    def _check_log(self, connection: sqlite3.Connection) -> None:
        """Refuse to go on if the write-ahead log was deleted: writes to it would be lost with the process."""
        if connection not in self._logs:
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()  # this opens the log
            self._logs[connection] = self._identity(f"{self.path}-wal", "its write-ahead log (-wal)")
        elif self._identity(f"{self.path}-wal", "its write-ahead log (-wal)") != self._logs[connection]:
            reason = "another write-ahead log (-wal) has replaced its own since it was opened"
            raise RunStoreUnavailable(self.name, reason, _PUT_BACK)

    def _identity(self, path: str, what: str) -> _Identity:
        try:
            status = os.stat(path)
        except OSError as error:
            reason = f"{what} was removed after it was opened ({error.strerror})"
            raise RunStoreUnavailable(self.name, reason, _PUT_BACK) from error
        return status.st_dev, status.st_ino

    def forget(self) -> None:
        """Accept any file at the path when it is opened again."""
        self._opened = None

    def close(self, connection: sqlite3.Connection) -> None:
        """Close a connection."""
        self._logs.pop(connection, None)
        connection.close()

    def hang_up(self, connection: sqlite3.Connection) -> None:
        """Interrupt a statement that takes too long."""
        connection.interrupt()

    def is_lost(self, error: Exception) -> bool:
        """Return `False`, because a connection to a file cannot be lost."""
        return False

    def unavailable(self, reason: str, error: Exception | None) -> RunStoreUnavailable:
        """Return the error of the store for a failure."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        return RunStoreUnavailable(self.name, reason, _ADVICE.get(code, _OTHERWISE))


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
