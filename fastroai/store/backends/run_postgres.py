"""Runs in PostgreSQL, for the processes of many machines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from fastroai.errors import RevisionConflict
from fastroai.other_names import other_names
from fastroai.records import Duration
from fastroai.store.backends.connections import Connections
from fastroai.store.backends.kept_at import KeptAt
from fastroai.store.backends.postgres_server import PostgresServer
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
from fastroai.store.hints import Listener
from fastroai.store.reading.reads_runs import ReadsRuns
from fastroai.store.reading.run_index import Begun, Doomed
from fastroai.store.record.headers import BEGINS_WITHIN
from fastroai.store.run_store import LARGEST_VALUE, LAST_POSITION, StoredKey, StoredValues

if TYPE_CHECKING:
    from psycopg import Connection

_CONNECTIONS: Final = 4
_LONGEST_WAIT: Final = 60.0
_SLACK: Final = 30.0
"""Seconds for which changes of a key are announced after the last wait, because followers soon come back."""
_LOOK: Final = "SELECT revision FROM {schema}.run_key WHERE key = %s FOR SHARE"
_READ: Final = """
    SELECT run_key.revision, clock_timestamp(), run_value.value
    FROM (SELECT %s::bytea AS key) AS asked
    LEFT JOIN {schema}.run_key USING (key)
    LEFT JOIN {schema}.run_value ON run_value.key_id = run_key.id
        AND run_value.position > %s AND run_value.position <= %s
    ORDER BY run_value.position
"""
_LIST: Final = """
    SELECT run_key.key, coalesce(run_value.value, ''), run_key.revision
    FROM {schema}.run_key
    LEFT JOIN {schema}.run_value ON run_value.key_id = run_key.id AND run_value.position = run_key.revision
    WHERE run_key.key >= %s AND run_key.key < %s ORDER BY run_key.key LIMIT %s
"""
_STALE: Final = """
    SELECT run_key.id, run_key.revision, run_key.key, run_id IS NOT NULL, coalesce(run_value.value, '')
    FROM {schema}.run_header JOIN {schema}.run_key ON run_key.id = run_header.key_id
    LEFT JOIN {schema}.run_value ON run_value.key_id = run_key.id AND run_value.position = run_key.revision
    WHERE run_header.stale = 1 LIMIT %s
"""
_FOUND: Final = """
    SELECT found.run_id, found.place, coalesce(run_value.value, ''), run_key.revision
    FROM ({found}) AS found JOIN {schema}.run_key ON run_key.id = found.id
    LEFT JOIN {schema}.run_value ON run_value.key_id = run_key.id AND run_value.position = run_key.revision
    ORDER BY found.place {way}, found.run_id
"""
_STATUS: Final = "SELECT EXISTS (SELECT FROM {schema}.run_header WHERE stale = 1), clock_timestamp()"
_ORPHANS: Final = """
    SELECT one.key, (SELECT value FROM {schema}.run_value WHERE key_id = one.id ORDER BY position LIMIT 1)
    FROM {schema}.run_key AS one WHERE one.key >= 'log:' AND one.key < 'log;' AND NOT EXISTS (
        SELECT FROM {schema}.run_key
        WHERE key = 'run:'::bytea || substring(one.key FROM 5 FOR greatest(length(one.key) - 37, 0))
    )
"""
_CATCH_UP: Final = """
    SELECT {schema}.run_catch_up_v1(number, revision, header, spent)
    FROM unnest(%s::bigint[], %s::bigint[], %s::json[], %s::json[]) AS one (number, revision, header, spent)
"""
_REPLACE_HEADER: Final = "SELECT {schema}.run_replace_header_v1(%s, %s, %s, %s::json, %s::json)"
_BEGIN: Final = "SELECT {schema}.run_begin_v1(%s, %s, %s, %s::json, %s::json, %s, %s::bytea[])"
_DELETE_RUNS: Final = (
    "SELECT {schema}.run_delete_runs_v1(%s::bytea[], %s::bigint[], %s::bytea[], %s::bytea[])"
)


_DIALECT: Final = Dialect(
    "{schema}.run_header",
    "{schema}.run_spent",
    contains="position(?::bytea in {}) > 0",
    is_lost="NOT EXISTS (SELECT FROM {schema}.run_value WHERE run_value.key_id = run_header.key_id)",
    headers_of=_FOUND,
)


@other_names()
class PostgresRunStore(FindsRunsInSql, ReadsRuns, KeptAt):
    """A `RunStore` in PostgreSQL 12 or later, for the processes of many machines.

    It connects when it is first used, and creates its own schema then. The user of the database needs the
    right to create that schema, or to use an existing one. A connection pooler in between must pool by
    session (`pool_mode = session` in PgBouncer), not by transaction or statement.

    `dsn` is a URL or connection string, as libpq takes it. `timeout` is in seconds. `largest_value` is the
    most bytes of a value that a run may store; `None` for the limit of PostgreSQL, 1 GB. A step with a larger
    value fails with `ValueNotStorable`.

    Raises:
        ConfigurationError: the connection string cannot be read, or another argument is invalid.
        MissingExtraError: psycopg is not installed (the extra `postgres`).
    """

    _dialect = _DIALECT

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "fastroai",
        timeout: Duration = 5.0,
        largest_value: int | None = LARGEST_VALUE,
    ) -> None:
        """Configure the store, which connects when it is first used.

        Args:
            dsn: A URL or connection string, as libpq takes it.
            schema: The schema for the tables.
            timeout: Seconds to wait for a connection, and for an answer.
            largest_value: Most bytes in one value; `None` for the limit of PostgreSQL, 1 GB.

        Raises:
            ConfigurationError: the connection string cannot be read, the schema is no plain name, or the
                timeout is not above 0.
            MissingExtraError: psycopg is not installed (the extra `postgres`).
        """
        check_largest_value(largest_value)
        self.largest_value = largest_value
        self.schema = schema
        """The schema of the tables."""
        self._driver = PostgresServer(dsn, schema, timeout)
        self._address = self._driver.address
        self.connections = Connections(self._driver, _CONNECTIONS)
        """Connections to where the store keeps its keys."""
        self._listener = Listener(self._driver.name, self._listening, self._driver.errors)

    def __repr__(self) -> str:
        return f"<PostgresRunStore {self._driver.name!r} schema={self.schema!r}>"

    async def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
        """Add values to a key after position `revision`, which must be its last one: all of them or none.

        A key that does not exist has revision 0. Without values, only the revision is checked.

        Raises:
            RevisionConflict: the last position of the key is not `revision`.
            ConfigurationError: the key or the revision is invalid, or a value is not bytes.
            RunStoreUnavailable: the server cannot be reached, or does not answer in time.
        """
        name = key_bytes(key)
        check_values(values, revision)
        append = "SELECT {schema}.run_append_v1(%s, %s, %s::bytea[])"
        self._expect(key, revision, await self._query(append, name, revision, [*values]))

    async def read(self, key: str, *, after: int = 0, limit: int | None = None) -> StoredValues:
        """Return the values of a key at positions above `after`, in order, and the revision of the key.

        The revision is the position of its last value; 0 if the key does not exist. `limit` is the most
        values to return, from the first on; by default all. `now` of the result is the time by the clock of
        the server, in UTC.

        Raises:
            ConfigurationError: the key or `after` is invalid.
            RunStoreUnavailable: the server cannot be reached, or does not answer in time.
        """
        name = key_bytes(key)
        check_position("after", after)
        last = LAST_POSITION if limit is None else min(LAST_POSITION, after + limit)
        found = await self._query(_READ, name, after, last)
        revision, now, _ = found[0]
        values = tuple(value for _, _, value in found if value is not None)
        return StoredValues(values=values, revision=revision or 0, now=now.astimezone(UTC))

    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        """Replace all values of a key by one, after position `revision`, which must be its last one.

        A key that does not exist has revision 0. The new value is at position `revision` + 1; of a new key,
        it can be at a later one, above each revision at which a key was deleted.

        Raises:
            RevisionConflict: the last position of the key is not `revision`.
            ConfigurationError: the key or the revision is invalid, or the value is not bytes.
            RunStoreUnavailable: the server cannot be reached, or does not answer in time.
        """
        name = key_bytes(key)
        check_values([value], revision)
        rows = index_of(key, value) if key.startswith(HEADERS) else None
        if rows is None:
            replace = "SELECT {schema}.run_replace_v1(%s, %s, %s)"
            answer = await self._query(replace, name, revision, value)
        else:
            answer = await self._query(_REPLACE_HEADER, name, revision, value, *_as_json(rows))
        self._expect(key, revision, answer)

    async def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        """Return the first `limit` keys that begin with `prefix` and come after the key `after`, in order.

        Each comes with its last value and its revision. The order is that of code points. For the next page,
        give the last key of this one as `after`. After the last page comes an empty one.

        Raises:
            ConfigurationError: `limit` is below 1, or `prefix` or `after` is not text that a key can have.
            RunStoreUnavailable: the server cannot be reached, or does not answer in time.
        """
        keys = KeyRange.of(prefix, after, limit)
        found = await self._query(_LIST, *keys, limit)
        return [
            StoredKey(key=name.decode(), value=value, revision=revision) for name, value, revision in found
        ]

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        """Delete a key with all its values; with `revision`, only if that is its last position.

        Without `revision`, nothing happens if the key does not exist. After a deletion with a revision, every
        new key of the store that `compare_and_set` makes, whatever its name, begins above that revision. So a
        late write to the old key fails.

        Raises:
            RevisionConflict: the last position of the key is not `revision`, or the key is gone.
            ConfigurationError: the key is invalid.
            RunStoreUnavailable: the server cannot be reached, or does not answer in time.
        """
        answer = await self._query("SELECT {schema}.run_delete_v2(%s, %s::bigint)", key_bytes(key), revision)
        if revision is not None:
            self._expect(key, revision, answer)

    # --- the index of runs ---

    async def begin_run(self, begun: Begun) -> None:
        """Write the header and the log of a new run, together or not at all.

        The header is a summary of the run, by which the index finds it from then on.

        Raises:
            RevisionConflict: the last position of the key of the header is not `begun.revision`.
            RunStoreUnavailable: the server cannot be reached, or does not answer in time.
        """
        header, log = key_bytes(begun.key), key_bytes(begun.log_key)
        check_values([begun.value], begun.revision)
        check_values(begun.entries, 0)
        rows = index_of(begun.key, begun.value)
        assert rows is not None
        written = (header, begun.revision, begun.value, *_as_json(rows), log, [*begun.entries])
        self._expect(begun.key, begun.revision, await self._query(_BEGIN, *written))

    async def delete_runs(self, doomed: Sequence[Doomed]) -> Sequence[bool]:
        """Delete runs whose headers still have the given revisions, each with its other keys.

        The result has, for each run in the order given, whether it was deleted: `False` if its header is gone
        or has another revision. As with `delete` with a revision, no new header has such a revision again.

        Raises:
            RunStoreUnavailable: the server cannot be reached, or does not answer in time.
        """
        keys = [one.key.encode() for one in doomed]
        others = [(other.encode(), one.key.encode()) for one in doomed for other in one.others]
        gone = await self._query(
            _DELETE_RUNS,
            keys,
            [one.revision for one in doomed],
            [other for other, _ in others],
            [key for _, key in others],
        )
        known = {key for (key,) in gone}
        return [key in known for key in keys]

    async def index_anew(self) -> None:
        """Mark the whole index of runs as out of date. The next query rebuilds it from the headers.

        It is for a store in which somebody has changed rows by hand.

        Raises:
            RunStoreUnavailable: the server cannot be reached, or does not answer in time.
        """
        await self._query("SELECT {schema}.run_index_anew_v1()")

    async def forget_orphans(self) -> None:
        """Delete the logs of runs without a header that began over an hour ago, and other keys of these runs.

        They are left when a process dies while it begins or deletes a run. `RunHistory.purge` calls this.

        Raises:
            RunStoreUnavailable: the server cannot be reached, or does not answer.
        """
        found = await self._query(_ORPHANS)
        if found:
            before = (await self._query("SELECT clock_timestamp()"))[0][0] - BEGINS_WITHIN
            for key, entry in found:
                for one in keys_of_orphan(key.decode(), entry, before):
                    await self.delete(one)

    async def _look(self, questions: Sequence[Statement]) -> tuple[Sequence[Rows], datetime] | None:
        status = self._statement(_STATUS)
        asked = [(self._statement(one.sql.replace("?", "%s")), one.parameters) for one in questions]

        def operation(connection: Connection[tuple[Any, ...]]) -> tuple[Sequence[Rows], datetime] | None:
            with connection.transaction():
                connection.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                ((is_behind, now),) = connection.execute(status, binary=True).fetchall()
                if is_behind:
                    return None
                found = [connection.execute(sql, values, binary=True).fetchall() for sql, values in asked]
            return found, now.astimezone(UTC)

        return await self.connections.run(operation)

    async def _catch_up(self) -> None:
        """Read stale headers into the index."""
        found = await self._query(_STALE, STALE_AT_ONCE)
        if found:
            read = ((number, revision, *_read_again(*others)) for number, revision, *others in found)
            await self._query(_CATCH_UP, *([*column] for column in zip(*read, strict=True)))

    async def changed(self, key: str, *, revision: int, timeout: float) -> None:
        """Wait until a key has another revision than this, for at most `timeout` seconds.

        It returns at once if the key has another one already. It is only a hint: it can return although
        nothing has changed, or miss a change until the timeout. So read the key afterwards, and call again. A
        wait lasts at most 60 seconds.

        Raises:
            RunStoreUnavailable: the server cannot be reached, or does not answer in time.
        """
        name, seconds = key_bytes(key), min(timeout, _LONGEST_WAIT)

        async def look() -> int:
            await self._query("SELECT {schema}.run_follow_v1(%s, %s)", name, seconds + _SLACK)
            found = await self._query(_LOOK, name)
            return found[0][0] if found else 0

        await self._listener.changed(name, look, revision=revision, timeout=seconds)

    async def aclose(self) -> None:
        """Close the idle connections. The store opens new ones when it is used again."""
        await self._listener.aclose()
        await self.connections.aclose()

    def _listening(self) -> _Notifications:
        connection = self._driver.connect()
        connection.execute(f'LISTEN "{self._driver.schema}"'.encode())  # the schema is an identifier
        return _Notifications(connection)

    async def _query(self, query: str, *parameters: object) -> Sequence[tuple[Any, ...]]:
        statement = self._statement(query)
        return await self.connections.run(
            lambda connection: connection.execute(statement, parameters, binary=True).fetchall()
        )

    def _statement(self, query: str) -> bytes:
        return query.replace("{schema}", f'"{self._driver.schema}"').encode()  # the schema is an identifier

    @staticmethod
    def _expect(key: str, revision: int, answer: Sequence[tuple[Any, ...]]) -> None:
        if (in_the_way := answer[0][0]) is not None:
            raise RevisionConflict(key, revision, in_the_way)


def _read_again(name: bytes, is_known: bool, value: bytes) -> tuple[str | None, str | None]:
    """Return the rows of a stale header as JSON; `None` if it cannot be read, and stays where it was."""
    key = name.decode()
    rows = index_of(key, value)
    if rows is None and not is_known:
        rows = IndexedHeader(unreadable(key), ())
    return (None, None) if rows is None else _as_json(rows)


def _as_json(rows: IndexedHeader) -> tuple[str, str]:
    """Return the rows of a run in the index as JSON, by column; texts as PostgreSQL reads bytes."""
    header, *spent = (
        {name: _hexadecimal(value) for name, value in zip(columns, row, strict=True)}
        for columns, row in [(HEADER_COLUMNS, rows.header), *((SPENT_COLUMNS, row) for row in rows.spent)]
    )
    return json.dumps(header), json.dumps(spent)


def _hexadecimal(value: bytes | int | None) -> str | int | None:
    return f"\\x{value.hex()}" if isinstance(value, bytes) else value


class _Notifications:
    """A connection that listens to the channel on which the functions announce the keys that they change."""

    def __init__(self, connection: Connection[tuple[Any, ...]]) -> None:
        self._connection = connection

    def hear(self, seconds: float) -> Iterator[bytes]:
        """See `Line`."""
        for notification in self._connection.notifies(timeout=seconds, stop_after=1):
            yield bytes.fromhex(notification.payload)

    def close(self) -> None:
        """See `Line`."""
        self._connection.close()
