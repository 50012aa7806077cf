"""A store of runs in one SQLite file, for the processes of one machine."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from fastroai.errors import ConfigurationError, RevisionConflict
from fastroai.records import Duration
from fastroai.runtime.options import seconds_above_zero
from fastroai.store.backends.connections import Connections
from fastroai.store.backends.kept_at import KeptAt
from fastroai.store.backends.run_arguments import (
    KeyRange,
    check_largest_value,
    check_position,
    check_values,
    key_bytes,
)
from fastroai.store.backends.sqlite_file import SQLiteFile, file_path
from fastroai.store.clock import check_clock, utc_now
from fastroai.store.reading.reads_runs import ReadsRuns
from fastroai.store.run_store import LARGEST_VALUE, LAST_POSITION, StoredKey, StoredValues

# The place of a value is the number of its key, shifted by the bits of a position, plus its position. So the
# values of a key are side by side, in order, without another index to write.
_SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS run_key (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE)",
    "CREATE TABLE IF NOT EXISTS run_value (place INTEGER PRIMARY KEY, value BLOB NOT NULL)",
)
# After the last value that was appended comes a mark: the integer 0, which is no value (values are bytes). If
# that value is lost, the mark shows that it was there. The next append puts a value in the place of the mark.
# The mark is on the page that is written anyway. A counter beside the key would cost twice as much.
_MARK: Final = 0
# The place of the last value of a key, even if that value is lost.
_LAST_PLACE: Final = (
    "(SELECT place - (typeof(value) = 'integer') FROM run_value "
    "WHERE place BETWEEN id << 32 AND (id << 32) + 4294967295 ORDER BY place DESC LIMIT 1)"
)
# A key has a value from the first write on: without one, it had one at least.
_KEY: Final = f"SELECT id, coalesce({_LAST_PLACE} & 4294967295, 1) FROM run_key WHERE key = ?"
_VALUES: Final = "SELECT CAST(value AS BLOB) FROM run_value WHERE place BETWEEN ? AND ? ORDER BY place"
_LIST: Final = (
    "SELECT key, CAST(coalesce(value, '') AS BLOB), coalesce(last & 4294967295, 1) "
    f"FROM (SELECT key, {_LAST_PLACE} AS last FROM run_key WHERE key >= ? AND key < ? ORDER BY key LIMIT ?) "
    "LEFT JOIN run_value ON place = last ORDER BY key"
)
_SIGN: Final = 2**31
"""The number from which on SQLite takes the user version of a file for a negative one."""


class SQLiteRunStore(ReadsRuns, KeptAt):
    """A `RunStore` in a file, for the processes of one machine. It needs no server.

    The file must be on a local disk: SQLite's locks do not hold on network file systems. Stored values
    survive the death of every process, and with `fsync` that of the machine.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        fsync: bool = False,
        timeout: Duration = 5.0,
        clock: Callable[[], datetime] = utc_now,
        largest_value: int | None = LARGEST_VALUE,
    ) -> None:
        """Configure the store. The file is opened, and made if there is none, when the store is first used.

        Args:
            path: The file; its folder exists.
            fsync: Wait for the disk at every write, which takes milliseconds on some disks. Without it, a
                power failure can lose the last writes, but never damages earlier ones.
            timeout: Seconds to wait for other processes, before the store counts as unavailable.
            clock: Returns the time, with its time zone. It must be the same for all processes, like the clock
                of a machine.
            largest_value: Most bytes in one value; `None` for the limit of SQLite, 1 GB.

        Raises:
            ConfigurationError: `path` is not the path of a file, or another option is invalid.
        """
        check_largest_value(largest_value)
        check_clock("clock", clock)
        if not isinstance(fsync, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError("fsync", fsync, "True or False")
        self.largest_value = largest_value
        self._clock = clock
        self._driver = SQLiteFile(
            file_path(path, "MemoryRunStore(), and MemorySpendStore() for spend limits"),
            seconds_above_zero("timeout", timeout),
            _SCHEMA,
            "run_value",
            synchronous="FULL" if fsync else "NORMAL",
        )
        # One connection, because SQLite has one writer at a time.
        self.connections = Connections(self._driver, limit=1)
        """Connections to where the store keeps its keys."""

    def __repr__(self) -> str:
        return f"SQLiteRunStore({self._driver.path!r})"

    async def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
        """See `RunStore`."""
        name = key_bytes(key)
        check_values(values, revision)
        await self._write(key, revision, lambda connection: _append(connection, name, values, revision))

    async def read(self, key: str, *, after: int = 0) -> StoredValues:
        """See `RunStore`."""
        name = key_bytes(key)
        check_position("after", after)

        def operation(connection: sqlite3.Connection) -> StoredValues:
            with self._driver.transaction(connection, "DEFERRED"):
                first, revision = _find(connection, name)
                found = connection.execute(_VALUES, (first + after + 1, first + revision)).fetchall()
            now = self._clock().astimezone(UTC)
            return StoredValues(values=tuple(value for (value,) in found), revision=revision, now=now)

        return await self.connections.run(operation)

    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        """See `RunStore`."""
        name = key_bytes(key)
        check_values([value], revision)
        await self._write(key, revision, lambda connection: _replace(connection, name, value, revision))

    async def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        """See `RunStore`."""
        keys = KeyRange.of(prefix, after, limit)

        def operation(connection: sqlite3.Connection) -> Sequence[tuple[bytes, bytes, int]]:
            with self._driver.transaction(connection, "DEFERRED"):
                return connection.execute(_LIST, (*keys, limit)).fetchall()

        found = await self.connections.run(operation)
        return [StoredKey(key=key.decode(), value=value, revision=revision) for key, value, revision in found]

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        """See `DeletesAtRevision`."""
        name = key_bytes(key)
        await self._write(key, revision, lambda connection: _delete(connection, name, revision))

    async def aclose(self) -> None:
        """Close the file. It is opened again when it is used again."""
        await self.connections.aclose()
        self._driver.forget()

    async def _write(
        self, key: str, revision: int | None, write: Callable[[sqlite3.Connection], int]
    ) -> None:
        """Write in a transaction. `write` returns the revision that the key had, as `revision` expects it."""

        def operation(connection: sqlite3.Connection) -> int:
            with self._driver.transaction(connection):
                return write(connection)

        actual = await self.connections.run(operation)
        if revision is not None and actual != revision:
            raise RevisionConflict(key, revision, actual)


def _find(connection: sqlite3.Connection, name: bytes) -> tuple[int, int]:
    """Return the place before the first value of a key, and the key's revision; zeros if there is no key."""
    found = connection.execute(_KEY, (name,)).fetchone()
    return (found[0] << 32, found[1]) if found else (0, 0)


def _append(connection: sqlite3.Connection, name: bytes, values: Sequence[bytes], revision: int) -> int:
    """Append values, if the key is at this revision. Return the revision that it had."""
    first, actual = _find(connection, name)
    if actual == revision and values:
        _insert(connection, first or _new_key(connection, name), [*values, _MARK], revision)
    return actual


def _replace(connection: sqlite3.Connection, name: bytes, value: bytes, revision: int) -> int:
    """Replace the values of a key, if it is at this revision. Return the revision that it had."""
    first, actual = _find(connection, name)
    if actual == revision:
        _clear(connection, first)
        after = revision or _new_after(connection)
        _insert(connection, first or _new_key(connection, name), [value], after)
    return actual


def _delete(connection: sqlite3.Connection, name: bytes, revision: int | None) -> int:
    """Delete a key, if it is at this revision, or whatever it is at. Return the revision that it had."""
    first, actual = _find(connection, name)
    if revision in (None, actual):
        if revision is not None and revision > _new_after(connection):
            signed = revision if revision < _SIGN else revision - 2 * _SIGN
            connection.execute(f"PRAGMA user_version = {signed}")
        _clear(connection, first)
        connection.execute("DELETE FROM run_key WHERE key = ?", (name,))
    return actual


def _new_after(connection: sqlite3.Connection) -> int:
    """Return the position after which replaced keys begin: the highest revision at which one was deleted."""
    (signed,) = connection.execute("PRAGMA user_version").fetchone()
    return int(signed) % (2 * _SIGN)


def _new_key(connection: sqlite3.Connection, name: bytes) -> int:
    number = connection.execute("INSERT INTO run_key (key) VALUES (?)", (name,)).lastrowid
    assert number is not None
    return number << 32


def _insert(connection: sqlite3.Connection, first: int, values: Sequence[bytes | int], revision: int) -> None:
    connection.executemany(
        "REPLACE INTO run_value (place, value) VALUES (?, ?)",
        enumerate(values, first + revision + 1),
    )


def _clear(connection: sqlite3.Connection, first: int) -> None:
    connection.execute("DELETE FROM run_value WHERE place BETWEEN ? AND ?", (first, first + LAST_POSITION))
