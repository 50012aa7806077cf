"""Accounts of spend limits that earlier versions of FastroAI have counted, in tables and keys of their own.

They are not read. A limit that started from zero beside them would not hold, so it is refused.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from fastroai.errors import ConfigurationError
from fastroai.store.connections import Connections
from fastroai.store.run_offloading import OffloadingRunStore
from fastroai.store.run_postgres import PostgresRunStore
from fastroai.store.run_redis import RedisRunStore
from fastroai.store.run_sqlite import SQLiteRunStore
from fastroai.store.run_store import RunStore
from fastroai.usage.spend_store import SpendAccount

if TYPE_CHECKING:
    from psycopg import Connection
    from redis.commands.core import Script

ConnectionT = TypeVar("ConnectionT")

_EXPECTED: Final = (
    "a place where no earlier version of FastroAI has counted: {what} cannot be read any more, and would "
    "start from zero. Give another {place}, and lower the limits there by what was spent: SpendBook.set_limit"
)
_QUERY: Final = (
    "SELECT 1 FROM {0} WHERE account_key = coalesce({1}, account_key) "
    "AND time_window = coalesce({1}, time_window) LIMIT 1"
)


class EarlierSpending(Generic[ConnectionT]):
    """What an earlier version has counted at one place."""

    def __init__(
        self,
        connections: Connections[ConnectionT],
        place: str,
        has: Callable[[ConnectionT, SpendAccount | None], bool],
    ) -> None:
        """`has` looks for an account, or for any; `place` says of what kind the place is."""
        self._connections, self._place, self._has = connections, place, has

    async def refuse(self, account: SpendAccount | None) -> None:
        """Raise `ConfigurationError` if an earlier version has counted for an account, or for any."""
        if await self._connections.run(lambda connection: self._has(connection, account)):
            what = f"the account {account.key!r} ({account.window})" if account else "what it has counted"
            expected = _EXPECTED.format(what=what, place=self._place)
            raise ConfigurationError("store", self._connections.driver.name, expected)


def earlier_in(runs: RunStore) -> EarlierSpending[Any] | None:
    """Return what an earlier version has counted where a store of runs is; `None` where none could."""
    if isinstance(runs, OffloadingRunStore):
        return earlier_in(runs.store)
    if isinstance(runs, SQLiteRunStore):
        return _in_sqlite(runs.connections)
    if isinstance(runs, RedisRunStore):
        return _in_redis(runs.connections, runs.prefix)
    return _in_postgres(runs.connections, runs.schema) if isinstance(runs, PostgresRunStore) else None


def _in_sqlite(connections: Connections[sqlite3.Connection]) -> EarlierSpending[Any]:
    """Return what an earlier version has counted in a file."""

    def has(connection: sqlite3.Connection, account: SpendAccount | None) -> bool:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'spend_account'").fetchone():
            return False
        return connection.execute(_QUERY.format("spend_account", "?"), _named(account)).fetchone() is not None

    return EarlierSpending(connections, "file", has)


def _in_redis(connections: Connections[Script], prefix: str) -> EarlierSpending[Any]:
    """Return what an earlier version has counted under a prefix."""

    def has(script: Script, account: SpendAccount | None) -> bool:
        client = script.registered_client
        if account is not None:
            return bool(client.exists(f"{prefix}:{{{account.window}:{account.key}}}:account"))
        literal = re.sub(r"([\\*?\[\]])", r"\\\1", prefix)
        return any(True for _ in client.scan_iter(f"{literal}:{{*}}:account", count=1_000))

    return EarlierSpending(connections, "prefix", has)


def _in_postgres(connections: Connections[Connection[tuple[Any, ...]]], schema: str) -> EarlierSpending[Any]:
    """Return what an earlier version has counted in a schema."""

    def has(connection: Connection[tuple[Any, ...]], account: SpendAccount | None) -> bool:
        table = f'"{schema}".spend_account'
        if connection.execute("SELECT to_regclass(%s)", [table]).fetchone() == (None,):
            return False
        query = _QUERY.format(table, "%s::text").encode()
        return connection.execute(query, _named(account)).fetchone() is not None

    return EarlierSpending(connections, "schema", has)


def _named(account: SpendAccount | None) -> tuple[str | None, str | None]:
    return (None, None) if account is None else (account.key, account.window)
