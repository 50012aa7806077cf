"""Accounts of spend limits that earlier versions of FastroAI have counted, in tables and keys of their own.

They are not read. A limit that started from zero beside them would not hold, so it is refused.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fastroai.errors import ConfigurationError
from fastroai.store.backends.connections import Connections
from fastroai.store.backends.run_offloading import OffloadingRunStore
from fastroai.store.backends.run_postgres import PostgresRunStore
from fastroai.store.backends.run_redis import RedisRunStore
from fastroai.store.backends.run_sqlite import SQLiteRunStore
from fastroai.store.run_store import RunStore
from fastroai.usage.shared.spend_store import SpendAccount

if TYPE_CHECKING:
    from psycopg import Connection
    from redis.commands.core import Script

T = TypeVar("T")

_EXPECTED: Final = (
    "a new {place}: this one has the spending that an earlier version of FastroAI counted for {what}, and "
    "this version cannot read it. Give another {place}, and lower the limits there by the amounts spent, "
    "with SpendBook.set_limit"
)
_QUERY: Final = (
    "SELECT 1 FROM {0} WHERE account_key = coalesce({1}, account_key) "
    "AND time_window = coalesce({1}, time_window) LIMIT 1"
)


async def refuse_earlier(runs: RunStore, account: SpendAccount | None) -> None:
    """Refuse a store of runs at whose place an earlier version has counted for an account; `None`: for any.

    Raises:
        ConfigurationError: an earlier version has counted there.
    """
    while isinstance(runs, OffloadingRunStore):
        runs = runs.store
    if isinstance(runs, SQLiteRunStore):
        await _refuse(runs.connections, "file", _in_sqlite(account), account)
    elif isinstance(runs, RedisRunStore):
        await _refuse(runs.connections, "prefix", _in_redis(runs.prefix, account), account)
    elif isinstance(runs, PostgresRunStore):
        await _refuse(runs.connections, "schema", _in_postgres(runs.schema, account), account)


async def _refuse(
    connections: Connections[T], place: str, has: Callable[[T], bool], account: SpendAccount | None
) -> None:
    if await connections.run(has):
        what = f"the limit {account.key!r} ({account.window})" if account else "its limits"
        expected = _EXPECTED.format(what=what, place=place)
        raise ConfigurationError("store", connections.driver.name, expected)


def _in_sqlite(account: SpendAccount | None) -> Callable[[sqlite3.Connection], bool]:
    def has(connection: sqlite3.Connection) -> bool:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'spend_account'").fetchone():
            return False
        return connection.execute(_QUERY.format("spend_account", "?"), _named(account)).fetchone() is not None

    return has


def _in_redis(prefix: str, account: SpendAccount | None) -> Callable[[Script], bool]:
    def has(script: Script) -> bool:
        client = script.registered_client
        if account is not None:
            return bool(client.exists(f"{prefix}:{{{account.window}:{account.key}}}:account"))
        literal = re.sub(r"([\\*?\[\]])", r"\\\1", prefix)
        return any(True for _ in client.scan_iter(f"{literal}:{{*}}:account", count=1_000))

    return has


def _in_postgres(schema: str, account: SpendAccount | None) -> Callable[[Connection[tuple[Any, ...]]], bool]:
    def has(connection: Connection[tuple[Any, ...]]) -> bool:
        table = f'"{schema}".spend_account'
        if connection.execute("SELECT to_regclass(%s)", [table]).fetchone() == (None,):
            return False
        query = _QUERY.format(table, "%s::text").encode()
        return connection.execute(query, _named(account)).fetchone() is not None

    return has


def _named(account: SpendAccount | None) -> tuple[str | None, str | None]:
    return (None, None) if account is None else (account.key, account.window)
