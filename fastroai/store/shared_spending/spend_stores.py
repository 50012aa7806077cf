"""Stores of spending in a file and on servers: accounts in the store of runs of that kind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import datetime

from fastroai.errors import ConfigurationError
from fastroai.records import Duration
from fastroai.store.backends.adapter import adapt_run_store
from fastroai.store.backends.run_postgres import PostgresRunStore
from fastroai.store.backends.run_redis import RedisRunStore
from fastroai.store.backends.run_sqlite import SQLiteRunStore
from fastroai.store.clock import utc_now
from fastroai.store.opening import kind_and_place
from fastroai.store.run_store import RunStoreLike
from fastroai.store.shared_spending.spend_keyed import KeyedSpendStore
from fastroai.usage.shared.spend_store import SpendStore


class SQLiteSpendStore(KeyedSpendStore):
    """A `SpendStore` in an SQLite file: the processes of one machine count the spending of limits together.

        SpendLimit(usd=20, store=SQLiteSpendStore("spend.db"))

    It needs no server. The file is created when the store is first used; its folder must exist, on a local
    disk: SQLite's locks do not hold on network file systems. Counted spending survives the death of every
    process; a power failure can lose the last changes before it. If the file cannot be used, operations raise
    `SpendStoreUnavailable`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        timeout: Duration = 5.0,
        clock: Callable[[], datetime] = utc_now,
        steady_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Configure the store. The file is opened, and made if there is none, when the store is first used.

        Args:
            path: The file; its folder exists.
            timeout: Seconds to wait for other processes, before the store counts as unavailable.
            clock: Returns the calendar time, with its time zone. It names windows.
            steady_clock: Returns seconds that nobody can set. They end leases. Both clocks must be the same
                for all processes, like those of a machine.

        Raises:
            ConfigurationError: `path` is not the path of a file, or another option is invalid.
        """
        if not callable(steady_clock):
            expected = "a function that returns seconds, such as time.monotonic"
            raise ConfigurationError("steady_clock", steady_clock, expected)
        runs = SQLiteRunStore(path, timeout=timeout, clock=clock)
        super().__init__(runs, steady_clock=steady_clock)


class RedisSpendStore(KeyedSpendStore):
    """A `SpendStore` in Redis or Valkey: processes of many machines count the spending of limits together.

        SpendLimit(usd=20, store=RedisSpendStore("redis://localhost"))

    It needs redis-py (the extra `redis`), and connects when it is first used. If the server cannot be
    reached, operations raise `SpendStoreUnavailable`.

    The server must never drop data: no eviction (`maxmemory-policy noeviction`), and persistence, because a
    restart without it begins at zero. A replica that takes over may lack the last writes.
    """

    def __init__(self, url: str, *, prefix: str = "fastroai:spend", timeout: Duration = 5.0) -> None:
        """Configure the store, which connects when it is first used.

        Args:
            url: `redis://`, `rediss://` or `unix://`, as redis-py takes it, options included.
            prefix: Start of the names of all keys. Stores with different prefixes are independent.
            timeout: Seconds to wait for a connection, and for an answer.

        Raises:
            ConfigurationError: the URL cannot be read, the prefix is not printable text without braces, or
                the timeout is not above 0.
            MissingExtraError: redis-py is not installed (the extra `redis`).
        """
        super().__init__(RedisRunStore(url, prefix=prefix, timeout=timeout))


class PostgresSpendStore(KeyedSpendStore):
    """A `SpendStore` in PostgreSQL 12 or later: processes of many machines count spending together.

        SpendLimit(usd=20, store=PostgresSpendStore("postgresql://localhost/app"))

    It needs psycopg (the extra `postgres`), connects when it is first used, and then creates its schema and
    tables. The user of the database needs the right to create that schema, or to use an existing one. If the
    server cannot be reached, operations raise `SpendStoreUnavailable`. A connection pooler in between must
    pool sessions, not statements.
    """

    def __init__(self, dsn: str, *, schema: str = "fastroai", timeout: Duration = 5.0) -> None:
        """Configure the store, which connects when it is first used.

        Args:
            dsn: A URL or connection string, as libpq takes it.
            schema: The schema for the tables.
            timeout: Seconds to wait for a connection, and for an answer.

        Raises:
            ConfigurationError: the connection string cannot be read, the schema is no plain name, or the
                timeout is not above 0.
            MissingExtraError: psycopg is not installed (the extra `postgres`).
        """
        super().__init__(PostgresRunStore(dsn, schema=schema, timeout=timeout))


def open_spend_store(store: RunStoreLike) -> SpendStore:
    """Make a store that counts the spending of limits, in a store of runs, or at a path or URL.

        SpendLimit(usd=20, store=open_spend_store("spend.db"))

    A path (`spend.db`, `sqlite:///absolute/path`) gives a `SQLiteSpendStore`, a `redis://` or `rediss://` URL
    a `RedisSpendStore`, and a `postgresql://` or `postgres://` URL a `PostgresSpendStore`. With a store of
    runs, the accounts are kept in it, beside the runs. Nothing is opened before the store is used.

    Raises:
        ConfigurationError: `store` is neither a store of runs nor the path or URL of one.
        MissingExtraError: the client of the database at a URL is not installed.
    """
    if not isinstance(store, str | os.PathLike):
        # All that count in one file need one clock for leases, and SQLiteSpendStore has this one.
        steady_clock = time.monotonic if isinstance(store, SQLiteRunStore) else None
        return KeyedSpendStore(adapt_run_store(store), steady_clock=steady_clock)
    kind, where = kind_and_place(store)
    if kind == "redis":
        return RedisSpendStore(where)
    return PostgresSpendStore(where) if kind == "postgres" else SQLiteSpendStore(where)
