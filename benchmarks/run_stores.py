"""What it costs to append one small value to a store of runs, beside the bare client of its database."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, closing
from pathlib import Path

from support.servers import running_postgres, running_redis

from benchmarks.measure import Row, medians
from fastroai.store import PostgresRunStore, RedisRunStore, RunStore, SQLiteRunStore

VALUE = b'{"kind": "step_finished", "step": "classify", "output": "' + b"x" * 100 + b'"}'
APPENDS = 200
"""In one round, one after the other."""
SIZES = (0, 10_000, 100_000)
"""Values that the key holds before."""
KEY = "run/benchmark"


class Growing:
    """Appends to one key, which holds so many values before."""

    def __init__(self, store: RunStore) -> None:
        self.store = store
        self.revision = 0

    async def grow(self, size: int) -> None:
        """So that the key holds at least so many."""
        if (missing := size - self.revision) > 0:
            await self.store.append(KEY, [VALUE] * missing, revision=self.revision)
            self.revision = size

    async def append(self) -> None:
        """One round."""
        for _ in range(APPENDS):
            await self.store.append(KEY, [VALUE], revision=self.revision)
            self.revision += 1


def repeated(write: Callable[[], object]) -> Callable[[], asyncio.Future[None]]:
    """The same number of bare writes, which block, in a thread that does nothing else."""

    def write_all() -> None:
        for _ in range(APPENDS):
            write()

    return lambda: asyncio.ensure_future(asyncio.to_thread(write_all))


def bare_sqlite(path: Path, synchronous: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("CREATE TABLE bare (place INTEGER PRIMARY KEY, value BLOB NOT NULL)")
    return connection


async def rows(
    name: str, store: RunStore, bare: Callable[[], object], sizes: tuple[int, ...]
) -> AsyncIterator[Row]:
    growing = Growing(store)
    for size in sizes:
        await growing.grow(size)
        took = await medians({"store": growing.append, "bare": repeated(bare)}, rounds=7, warm_up=1)
        ours, raw = (took[which] / APPENDS * 1e6 for which in ("store", "bare"))
        yield Row(
            f"append to {name}, {size:,} values before",
            f"{ours:,.0f} µs",
            f"{raw:,.0f} µs (+{ours - raw:,.0f})",
            ours / raw,
        )


async def appending_to_sqlite() -> AsyncIterator[Row]:
    """Beside an INSERT in the same mode."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        for fsync, synchronous, sizes in ((False, "NORMAL", SIZES), (True, "FULL", SIZES[:1])):
            store = SQLiteRunStore(folder / f"runs-{synchronous}.db", fsync=fsync)
            with closing(bare_sqlite(folder / f"bare-{synchronous}.db", synchronous)) as connection:

                def insert(connection: sqlite3.Connection = connection) -> None:
                    connection.execute("INSERT INTO bare (value) VALUES (?)", (VALUE,))

                async for row in rows(f"SQLite ({synchronous})", store, insert, sizes):
                    yield row
            await store.aclose()


async def appending_to_redis() -> AsyncIterator[Row]:
    """Beside an RPUSH."""
    from redis import Redis

    with running_redis() as url, Redis.from_url(url) as client:
        store = RedisRunStore(url, prefix="benchmark")
        async for row in rows("Redis", store, lambda: client.rpush("bare", VALUE), SIZES):
            yield row
        await store.aclose()


async def appending_to_postgres() -> AsyncIterator[Row]:
    """Beside an INSERT."""
    import psycopg

    with ExitStack() as stack:
        dsn = stack.enter_context(running_postgres())
        connection = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        connection.execute(
            "CREATE TABLE bare (place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, value bytea NOT NULL)"
        )
        store = PostgresRunStore(dsn, schema="benchmark")

        def insert() -> None:
            connection.execute("INSERT INTO bare (value) VALUES (%s)", (VALUE,))

        async for row in rows("PostgreSQL", store, insert, SIZES):
            yield row
        await store.aclose()


BENCHMARKS = (appending_to_sqlite, appending_to_redis, appending_to_postgres)
