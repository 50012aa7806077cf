"""Runs in PostgreSQL, for the processes of many machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from fastroai.errors import RevisionConflict
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
from fastroai.store.hints import Listener
from fastroai.store.reading.reads_runs import ReadsRuns
from fastroai.store.run_store import LARGEST_VALUE, StoredKey, StoredValues

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
    LEFT JOIN {schema}.run_value ON run_value.key_id = run_key.id AND run_value.position > %s
    ORDER BY run_value.position
"""
_LIST: Final = """
    SELECT run_key.key, coalesce(run_value.value, ''), run_key.revision
    FROM {schema}.run_key
    LEFT JOIN {schema}.run_value ON run_value.key_id = run_key.id AND run_value.position = run_key.revision
    WHERE run_key.key >= %s AND run_key.key < %s ORDER BY run_key.key LIMIT %s
"""


class PostgresRunStore(ReadsRuns, KeptAt):
    """A `RunStore` in PostgreSQL 12 or later, for the processes of many machines.

    Its tables and functions are in a schema of their own, made on first use. The user of the database needs
    the right to create that schema, or to use an existing one. A connection pooler in between must pool
    sessions, not statements.
    """

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
        """See `RunStore`."""
        name = key_bytes(key)
        check_values(values, revision)
        append = "SELECT {schema}.run_append_v1(%s, %s, %s::bytea[])"
        self._expect(key, revision, await self._query(append, name, revision, [*values]))

    async def read(self, key: str, *, after: int = 0) -> StoredValues:
        """See `RunStore`."""
        name = key_bytes(key)
        check_position("after", after)
        found = await self._query(_READ, name, after)
        revision, now, _ = found[0]
        values = tuple(value for _, _, value in found if value is not None)
        return StoredValues(values=values, revision=revision or 0, now=now.astimezone(UTC))

    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        """See `RunStore`."""
        name = key_bytes(key)
        check_values([value], revision)
        replace = "SELECT {schema}.run_replace_v1(%s, %s, %s)"
        self._expect(key, revision, await self._query(replace, name, revision, value))

    async def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        """See `RunStore`."""
        keys = KeyRange.of(prefix, after, limit)
        found = await self._query(_LIST, *keys, limit)
        return [
            StoredKey(key=name.decode(), value=value, revision=revision) for name, value, revision in found
        ]

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        """See `DeletesAtRevision`."""
        answer = await self._query("SELECT {schema}.run_delete_v2(%s, %s::bigint)", key_bytes(key), revision)
        if revision is not None:
            self._expect(key, revision, answer)

    async def changed(self, key: str, *, revision: int, timeout: float) -> None:
        """See `HintsChanges`."""
        name, seconds = key_bytes(key), min(timeout, _LONGEST_WAIT)

        async def look() -> int:
            await self._query("SELECT {schema}.run_follow_v1(%s, %s)", name, seconds + _SLACK)
            found = await self._query(_LOOK, name)
            return found[0][0] if found else 0

        await self._listener.changed(name, look, revision=revision, timeout=seconds)

    async def aclose(self) -> None:
        """Close the idle connections. New ones are opened when it is used again."""
        await self._listener.aclose()
        await self.connections.aclose()

    def _listening(self) -> _Notifications:
        connection = self._driver.connect()
        connection.execute(f'LISTEN "{self._driver.schema}"'.encode())  # the schema is an identifier
        return _Notifications(connection)

    async def _query(self, query: str, *parameters: object) -> Sequence[tuple[Any, ...]]:
        statement = query.format(schema=f'"{self._driver.schema}"').encode()  # the schema is an identifier
        return await self.connections.run(
            lambda connection: connection.execute(statement, parameters, binary=True).fetchall()
        )

    @staticmethod
    def _expect(key: str, revision: int, answer: Sequence[tuple[Any, ...]]) -> None:
        if (in_the_way := answer[0][0]) is not None:
            raise RevisionConflict(key, revision, in_the_way)


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
