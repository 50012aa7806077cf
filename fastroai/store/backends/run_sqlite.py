"""A store of runs in one SQLite file, for the processes of one machine."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

from fastroai.errors import ConfigurationError, RevisionConflict
from fastroai.other_names import other_names
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
from fastroai.store.backends.sql_index import (
    HEADER_COLUMNS,
    HEADERS,
    SPENT_COLUMNS,
    STALE_AT_ONCE,
    Dialect,
    FindsRunsInSql,
    IndexedHeader,
    Rows,
    Statement,
    index_of,
    keys_of_orphan,
    unreadable,
)
from fastroai.store.backends.sqlite_file import SQLiteFile, file_path
from fastroai.store.backends.sqlite_writes import SQLiteWrites
from fastroai.store.clock import check_clock, utc_now
from fastroai.store.reading.reads_runs import ReadsRuns
from fastroai.store.reading.run_index import Begun, Doomed
from fastroai.store.record.headers import BEGINS_WITHIN
from fastroai.store.run_store import LARGEST_VALUE, LAST_POSITION, StoredKey, StoredValues

T = TypeVar("T")

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
    "(SELECT run_value.place - (typeof(value) = 'integer') FROM run_value "
    "WHERE run_value.place BETWEEN id << 32 AND (id << 32) + 4294967295 "
    "ORDER BY run_value.place DESC LIMIT 1)"
)
# A key has a value from the first write on: without one, it had one at least.
_KEY: Final = f"SELECT id, coalesce({_LAST_PLACE} & 4294967295, 1) FROM run_key WHERE key = ?"
_KEYS: Final = f"SELECT id, key, coalesce({_LAST_PLACE} & 4294967295, 1) FROM run_key WHERE key IN"
_MOST_NAMES: Final = 500
"""Most names in one statement."""
_VALUES: Final = "SELECT CAST(value AS BLOB) FROM run_value WHERE place BETWEEN ? AND ? ORDER BY place"
_LIST: Final = (
    "SELECT key, CAST(coalesce(value, '') AS BLOB), coalesce(last & 4294967295, 1) "
    f"FROM (SELECT key, {_LAST_PLACE} AS last FROM run_key WHERE key >= ? AND key < ? ORDER BY key LIMIT ?) "
    "LEFT JOIN run_value ON place = last ORDER BY key"
)
_IS_HEADER: Final = f"substr({{}}.key, 1, {len(HEADERS)}) = X'{HEADERS.encode().hex()}'"
# A header without its columns is stale: its row is there because the file is from before there was an index,
# or an earlier version of FastroAI uses it at the same time. It is read into the index before that is used.
_INDEX: Final = (
    f"CREATE TABLE IF NOT EXISTS run_header (key_id INTEGER PRIMARY KEY, {', '.join(HEADER_COLUMNS)})",
    f"CREATE TABLE IF NOT EXISTS run_spent (key_id INTEGER, {', '.join(SPENT_COLUMNS)})",
    "CREATE INDEX IF NOT EXISTS run_spent_of ON run_spent (key_id)",
    "CREATE INDEX IF NOT EXISTS run_started ON run_header (started DESC, run_id)",
    "CREATE INDEX IF NOT EXISTS run_status ON run_header (status, started DESC, run_id)",
    "CREATE INDEX IF NOT EXISTS run_asks ON run_header (started DESC, run_id) WHERE questions > 0",
    "CREATE INDEX IF NOT EXISTS run_due ON run_header (pipeline, due) WHERE due IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS run_stale ON run_header (key_id) WHERE stale = 1",
    "INSERT OR IGNORE INTO run_header (key_id, stale) SELECT id, 1 FROM run_key "
    f"WHERE key >= X'{HEADERS.encode().hex()}' AND {_IS_HEADER.format('run_key')}",
    "CREATE TRIGGER IF NOT EXISTS run_header_changed AFTER INSERT ON run_value BEGIN "
    "UPDATE run_header SET stale = 1 WHERE key_id = NEW.place >> 32; END",
    "CREATE TRIGGER IF NOT EXISTS run_header_new AFTER INSERT ON run_key "
    f"WHEN {_IS_HEADER.format('NEW')} BEGIN "
    "INSERT INTO run_header (key_id, stale) VALUES (NEW.id, 1); END",
    "CREATE TRIGGER IF NOT EXISTS run_header_gone AFTER DELETE ON run_key "
    f"WHEN {_IS_HEADER.format('OLD')} BEGIN "
    "DELETE FROM run_header WHERE key_id = OLD.id; DELETE FROM run_spent WHERE key_id = OLD.id; END",
)
_INDEXED: Final = (
    f"UPDATE run_header SET {', '.join(f'{one} = ?' for one in HEADER_COLUMNS)} WHERE key_id = ?"
)
_SPENT: Final = f"INSERT INTO run_spent VALUES (?{', ?' * len(SPENT_COLUMNS)})"
_STALE: Final = (
    "SELECT id, key, run_id IS NOT NULL, CAST(coalesce(value, '') AS BLOB) FROM "
    f"(SELECT id, key, run_id, {_LAST_PLACE} AS last FROM run_header JOIN run_key ON id = key_id "
    "WHERE stale = 1 LIMIT ?) LEFT JOIN run_value ON run_value.place = last"
)
_FOUND: Final = (
    "SELECT found.run_id, found.place, CAST(coalesce(value, '') AS BLOB), coalesce(last & 4294967295, 1) "
    f"FROM (SELECT *, {_LAST_PLACE} AS last FROM ({{found}}) AS ids) AS found "
    "LEFT JOIN run_value ON run_value.place = last ORDER BY found.place {way}, found.run_id"
)
_DIALECT: Final = Dialect(
    "run_header",
    "run_spent",
    contains="instr({}, ?) > 0",
    is_lost="NOT EXISTS (SELECT 1 FROM run_value "
    "WHERE place BETWEEN key_id << 32 AND (key_id << 32) + 4294967295 AND typeof(value) = 'blob')",
    headers_of=_FOUND,
)
_ORPHANS: Final = (
    "SELECT key, (SELECT value FROM run_value "
    "WHERE place BETWEEN id << 32 AND (id << 32) + 4294967295 ORDER BY place LIMIT 1) "
    "FROM run_key AS one WHERE key >= X'6C6F673A' AND key < X'6C6F673B' "
    "AND NOT EXISTS (SELECT 1 FROM run_key "
    f"WHERE key = CAST('{HEADERS}' || substr(one.key, 5, length(one.key) - 37) AS BLOB))"
)
_SIGN: Final = 2**31
"""The number from which on SQLite takes the user version of a file for a negative one."""


@other_names()
class SQLiteRunStore(FindsRunsInSql, ReadsRuns, KeptAt):
    """A `RunStore` in a file, for the processes of one machine. It needs no server.

    The file is opened, and made if there is none, when the store is first used; its folder must exist. It
    must be on a local disk: SQLite's locks do not hold on network file systems. Stored values survive the
    death of every process, and with `fsync` that of the machine.

    `timeout` is the number of seconds to wait for other processes. `clock` gives the time, with its time
    zone. `largest_value` is the most bytes of a value that a run may store; `None` for the limit of SQLite, 1
    GB. A step with a larger value fails with `ValueNotStorable`.

    Raises:
        ConfigurationError: `path` is not the path of a file, as `":memory:"`, or another argument is invalid.
    """

    _dialect = _DIALECT

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
        check_clock(clock)
        if not isinstance(fsync, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError("fsync", fsync, "True or False")
        self.largest_value = largest_value
        self._clock = clock
        self._driver = SQLiteFile(
            file_path(path, "MemoryRunStore(), and MemorySpendStore() for spend limits"),
            seconds_above_zero("timeout", timeout),
            (*_SCHEMA, *_INDEX),
            "run_header_gone",
            synchronous="FULL" if fsync else "NORMAL",
        )
        # One connection, because SQLite has one writer at a time.
        self.connections = Connections(self._driver, limit=1)
        """Connections to where the store keeps its keys."""
        self._writes = SQLiteWrites(self._driver, self.connections)

    def __repr__(self) -> str:
        return f"SQLiteRunStore({self._driver.path!r})"

    async def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
        """Add values to a key after position `revision`, which must be its last one: all of them or none.

        A key that does not exist has revision 0. Without values, only the revision is checked.

        Raises:
            RevisionConflict: the last position of the key is not `revision`.
            ConfigurationError: the key or the revision is invalid, or a value is not bytes.
            RunStoreUnavailable: the file cannot be read or written, or was replaced.
        """
        name = key_bytes(key)
        check_values(values, revision)
        await self._write(key, revision, lambda connection: _append(connection, name, values, revision))

    async def read(self, key: str, *, after: int = 0, limit: int | None = None) -> StoredValues:
        """Return the values of a key at positions above `after`, in order, and the revision of the key.

        The revision is the position of its last value; 0 if the key does not exist. `limit` is the most
        values to return, from the first on; by default all. `now` of the result is the time by the clock of
        the store, in UTC.

        Raises:
            ConfigurationError: the key or `after` is invalid.
            RunStoreUnavailable: the file cannot be read or written, or was replaced.
        """
        name = key_bytes(key)
        check_position("after", after)

        def operation(connection: sqlite3.Connection) -> StoredValues:
            with self._driver.transaction(connection, "DEFERRED"):
                first, revision = _find(connection, name)
                last = revision if limit is None else min(revision, after + limit)
                found = connection.execute(_VALUES, (first + after + 1, first + last)).fetchall()
            now = self._clock().astimezone(UTC)
            return StoredValues(values=tuple(value for (value,) in found), revision=revision, now=now)

        return await self.connections.run(operation)

    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        """Replace all values of a key by one, after position `revision`, which must be its last one.

        A key that does not exist has revision 0. The new value is at position `revision` + 1; of a new key,
        it can be at a later one, above each revision at which a key was deleted.

        Raises:
            RevisionConflict: the last position of the key is not `revision`.
            ConfigurationError: the key or the revision is invalid, or the value is not bytes.
            RunStoreUnavailable: the file cannot be read or written, or was replaced.
        """
        name = key_bytes(key)
        check_values([value], revision)
        rows = index_of(key, value) if key.startswith(HEADERS) else None
        await self._write(key, revision, lambda connection: _replace(connection, name, value, revision, rows))

    async def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        """Return the first `limit` keys that begin with `prefix` and come after the key `after`, in order.

        Each comes with its last value and its revision. The order is that of code points. For the next page,
        give the last key of this one as `after`. After the last page comes an empty one.

        Raises:
            ConfigurationError: `limit` is below 1, or `prefix` or `after` is not text that a key can have.
            RunStoreUnavailable: the file cannot be read or written, or was replaced.
        """
        keys = KeyRange.of(prefix, after, limit)

        def operation(connection: sqlite3.Connection) -> Sequence[tuple[bytes, bytes, int]]:
            with self._driver.transaction(connection, "DEFERRED"):
                return connection.execute(_LIST, (*keys, limit)).fetchall()

        found = await self.connections.run(operation)
        return [StoredKey(key=key.decode(), value=value, revision=revision) for key, value, revision in found]

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        """Delete a key with all its values; with `revision`, only if that is its last position.

        Without `revision`, nothing happens if the key does not exist. After a deletion with a revision, every
        new key of the store that `compare_and_set` makes, whatever its name, begins above that revision. So a
        late write to the old key fails.

        Raises:
            RevisionConflict: the last position of the key is not `revision`, or the key is gone.
            ConfigurationError: the key is invalid.
            RunStoreUnavailable: the file cannot be read or written, or was replaced.
        """
        name = key_bytes(key)
        await self._write(key, revision, lambda connection: _delete(connection, name, revision))

    # --- the index of runs ---

    async def begin_run(self, begun: Begun) -> None:
        """Write the header and the log of a new run, together or not at all.

        The header is a summary of the run, by which the index finds it from then on.

        Raises:
            RevisionConflict: the last position of the key of the header is not `begun.revision`.
            RunStoreUnavailable: the file cannot be read or written, or was replaced.
        """
        header, log = key_bytes(begun.key), key_bytes(begun.log_key)
        check_values([begun.value], begun.revision)
        check_values(begun.entries, 0)
        rows = index_of(begun.key, begun.value)

        def write(connection: sqlite3.Connection) -> int:
            actual = _replace(connection, header, begun.value, begun.revision, rows)
            if actual == begun.revision:
                _append(connection, log, begun.entries, 0)
            return actual

        await self._write(begun.key, begun.revision, write)

    async def delete_runs(self, doomed: Sequence[Doomed]) -> Sequence[bool]:
        """Delete runs whose headers still have the given revisions, each with its other keys.

        The result has, for each run in the order given, whether it was deleted: `False` if its header is gone
        or has another revision. As with `delete` with a revision, no new header has such a revision again.

        Raises:
            RunStoreUnavailable: the file cannot be read or written, or was replaced.
        """
        return await self._writes.perform(lambda connection: _delete_runs(connection, doomed))

    async def forget_orphans(self) -> None:
        """Delete the logs of runs without a header that began over an hour ago, and other keys of these runs.

        They are left when a process dies while it begins or deletes a run. `RunHistory.purge` calls this.

        Raises:
            RunStoreUnavailable: the file cannot be read or written, or was replaced.
        """

        def write(connection: sqlite3.Connection) -> None:
            before = self._clock().astimezone(UTC) - BEGINS_WITHIN
            for key, entry in connection.execute(_ORPHANS).fetchall():
                for one in keys_of_orphan(key.decode(), entry, before):
                    _delete(connection, one.encode(), None)

        await self._writes.perform(write)

    async def index_anew(self) -> None:
        """Mark the whole index of runs as out of date. The next query rebuilds it from the headers.

        It is for a store in which somebody has changed rows by hand.

        Raises:
            RunStoreUnavailable: the file cannot be read or written, or was replaced.
        """
        await self._writes.perform(
            lambda connection: connection.execute("UPDATE run_header SET stale = 1").close()
        )

    async def _look(self, questions: Sequence[Statement]) -> tuple[Sequence[Rows], datetime] | None:
        def operation(connection: sqlite3.Connection) -> tuple[Sequence[Rows], datetime] | None:
            with self._driver.transaction(connection, "DEFERRED"):
                if connection.execute("SELECT 1 FROM run_header WHERE stale = 1 LIMIT 1").fetchone():
                    return None
                found = [connection.execute(one.sql, one.parameters).fetchall() for one in questions]
            return found, self._clock().astimezone(UTC)

        return await self.connections.run(operation)

    async def _catch_up(self) -> None:
        await self._writes.perform(_index_stale)

    async def aclose(self) -> None:
        """Close the file. The store opens it again when it is used again.

        It accepts another file at the path then.
        """
        await self.connections.aclose()
        self._driver.forget()

    async def _write(
        self, key: str, revision: int | None, write: Callable[[sqlite3.Connection], int]
    ) -> None:
        """Write in a transaction. `write` returns the revision that the key had, as `revision` expects it."""
        actual = await self._writes.perform(write)
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


def _replace(
    connection: sqlite3.Connection, name: bytes, value: bytes, revision: int, rows: IndexedHeader | None
) -> int:
    """Replace the values of a key, if it is at this revision. Return the revision that it had.

    `rows` are those of the key in the index, if it is that of a header which can be read.
    """
    first, actual = _find(connection, name)
    if actual == revision:
        _clear(connection, first)
        after = revision or _new_after(connection)
        first = first or _new_key(connection, name)
        _insert(connection, first, [value], after)
        if rows is not None:
            _index(connection, first >> 32, rows)
    return actual


def _index(connection: sqlite3.Connection, number: int, rows: IndexedHeader) -> None:
    """Put a header into the index."""
    connection.execute(_INDEXED, (*rows.header, number))
    connection.execute("DELETE FROM run_spent WHERE key_id = ?", (number,))
    if rows.spent:  # a run that goes on has no sum yet
        connection.executemany(_SPENT, [(number, *row) for row in rows.spent])


def _index_stale(connection: sqlite3.Connection) -> None:
    """Put stale headers into the index."""
    found = connection.execute(_STALE, (STALE_AT_ONCE,)).fetchall()
    for number, key, is_known, value in found:
        rows = index_of(key.decode(), value)
        if rows is not None:
            _index(connection, number, rows)
        elif is_known:  # it stays where it was when it could be read
            connection.execute("UPDATE run_header SET stale = 0, readable = 0 WHERE key_id = ?", (number,))
        else:
            connection.execute(_INDEXED, (*unreadable(key.decode()), number))


def _delete(connection: sqlite3.Connection, name: bytes, revision: int | None) -> int:
    """Delete a key, if it is at this revision, or whatever it is at. Return the revision that it had."""
    first, actual = _find(connection, name)
    if revision in (None, actual):
        if revision is not None:
            _note_deleted(connection, revision)
        _clear(connection, first)
        connection.execute("DELETE FROM run_key WHERE key = ?", (name,))
    return actual


def _delete_runs(connection: sqlite3.Connection, doomed: Sequence[Doomed]) -> Sequence[bool]:
    """Delete the runs whose headers are at these revisions. Return which of them are."""
    headers = {one.key.encode(): one for one in doomed}
    revisions = {name: revision for _, name, revision in _known(connection, [*headers])}
    gone = {name: one for name, one in headers.items() if revisions.get(name) == one.revision}
    _note_deleted(connection, max((one.revision for one in gone.values()), default=0))
    names = [*gone, *(other.encode() for one in gone.values() for other in one.others)]
    numbers = [number for number, _, _ in _known(connection, names)]
    places = [(number << 32, (number << 32) + LAST_POSITION) for number in numbers]
    connection.executemany("DELETE FROM run_value WHERE place BETWEEN ? AND ?", places)
    connection.executemany("DELETE FROM run_key WHERE id = ?", [(number,) for number in numbers])
    return [one.key.encode() in gone for one in doomed]


def _known(connection: sqlite3.Connection, names: Sequence[bytes]) -> Iterator[tuple[int, bytes, int]]:
    """Yield the numbers, names and revisions of those keys that there are."""
    for first in range(0, len(names), _MOST_NAMES):
        some = names[first : first + _MOST_NAMES]
        yield from connection.execute(f"{_KEYS} ({', '.join('?' * len(some))})", some)


def _note_deleted(connection: sqlite3.Connection, revision: int) -> None:
    """Let new keys begin after a revision at which a key is deleted."""
    if revision > _new_after(connection):
        signed = revision if revision < _SIGN else revision - 2 * _SIGN
        connection.execute(f"PRAGMA user_version = {signed}")


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
