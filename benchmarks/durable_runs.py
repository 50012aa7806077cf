"""What it costs to put a run on record: a step beside a bare write, and going on with a long run."""

from __future__ import annotations

import asyncio
import functools
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import redis
from support.servers import running_postgres, running_redis

from benchmarks.measure import Row, medians, seconds
from benchmarks.pipelines import chain
from fastroai.pipelines import Pipeline, PipelineConfig
from fastroai.store import PostgresRunStore, RedisRunStore, RunStore, SQLiteRunStore
from fastroai.store.record.journal import Durability

STEPS = 300
"""In one run, one after the other, each of which does nothing."""
ROUNDS = 9
AIM = "at most 60 µs over the bare write"
VALUE = b'{"kind":"step_finished","place":"s1","attempt":1,"output":1,"duration_ms":0.02}' * 3
Bare = Callable[[int], None]

_ids = count()


def durable(store: RunStore, durability: Durability) -> Callable[[], Coroutine[Any, Any, object]]:
    """Runs of a chain, each with an id of its own."""
    pipeline = kept(chain(STEPS), store, durability)
    return lambda: pipeline.execute(run_id=f"run-{next(_ids)}")


def kept(pipeline: Pipeline, store: RunStore, durability: Durability) -> Pipeline:
    """The same pipeline, whose runs are put on record."""
    config = PipelineConfig(store=store, durability=durability)
    return Pipeline(pipeline.name, pipeline.steps, pipeline.dependencies, config=config)


def bare_writes(write: Bare) -> Callable[[], Coroutine[Any, Any, object]]:
    """As many bare writes, in a thread of their own."""
    return lambda: asyncio.to_thread(lambda: [write(number) for number in range(STEPS)])


def bare_sqlite(path: Path) -> tuple[sqlite3.Connection, Bare]:
    """One insert, and commit, in the mode that the store is in."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("CREATE TABLE bare (place INTEGER PRIMARY KEY, value BLOB NOT NULL)")
    return connection, lambda _: void(connection.execute("INSERT INTO bare (value) VALUES (?)", [VALUE]))


def void(_: object) -> None:
    """A write gives nothing."""


async def rows(name: str, store: RunStore, bare: Bare) -> AsyncIterator[Row]:
    """A step in both modes, beside the bare write and beside a step that nobody puts on record."""
    pipeline = chain(STEPS)
    taken = await medians(
        {
            "none": pipeline.execute,
            "async": durable(store, "async"),
            "sync": durable(store, "sync"),
            "bare": bare_writes(bare),
        },
        ROUNDS,
    )
    each = {mode: time / STEPS * 1e6 for mode, time in taken.items()}
    for mode in ("async", "sync"):
        over = each[mode] - each["none"]
        yield Row(
            f"one step on record, {name}, {mode}",
            f"{each[mode]:.0f} µs, {over:.0f} of it for the record",
            f"{each['bare']:.0f} µs one bare write",
            over / each["bare"],
            AIM if mode == "async" and name == "SQLite" else "",
            each[mode] - each["bare"] <= 60 if mode == "async" and name == "SQLite" else None,
        )


async def durable_steps_in_sqlite() -> AsyncIterator[Row]:
    """SQLite, with WAL and `synchronous=NORMAL`."""
    with tempfile.TemporaryDirectory() as folder:
        connection, bare = bare_sqlite(Path(folder, "bare.db"))
        with closing(connection):
            async for row in rows("SQLite", SQLiteRunStore(Path(folder, "runs.db")), bare):
                yield row


async def durable_steps_in_redis() -> AsyncIterator[Row]:
    """Redis: `RPUSH` is the bare write."""
    with ExitStack() as stack:
        url = stack.enter_context(running_redis())
        client = stack.enter_context(closing(redis.Redis.from_url(url)))
        async for row in rows("Redis", RedisRunStore(url), lambda _: void(client.rpush("bare", VALUE))):
            yield row


async def durable_steps_in_postgres() -> AsyncIterator[Row]:
    """PostgreSQL: one insert and commit is the bare write."""
    with ExitStack() as stack:
        dsn = stack.enter_context(running_postgres())
        connection = stack.enter_context(closing(psycopg.connect(dsn, autocommit=True)))
        connection.execute("CREATE TABLE bare (place BIGSERIAL PRIMARY KEY, value BYTEA NOT NULL)")
        insert = "INSERT INTO bare (value) VALUES (%s)"
        async for row in rows(
            "PostgreSQL", PostgresRunStore(dsn), lambda _: void(connection.execute(insert, [VALUE]))
        ):
            yield row


async def durable_history() -> AsyncIterator[Row]:
    """Whether a step costs more as its run, and the store, grow."""
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteRunStore(Path(folder, "runs.db"))
        for steps in (1_000, 10_000, 100_000):
            pipeline = kept(chain(steps), store, "async")
            taken = await seconds(functools.partial(pipeline.execute, run_id=f"history-{steps}"))
            yield Row(f"one of {steps:,} steps in a run, SQLite, async", f"{taken / steps * 1e6:.0f} µs")


async def resuming() -> AsyncIterator[Row]:
    """A run that has finished, and one of which all but the last step is taken over."""
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteRunStore(Path(folder, "runs.db"))
        for steps in (1_000, 10_000):
            pipeline, run_id = kept(chain(steps), store, "async"), f"resume-{steps}"
            await pipeline.execute(run_id=run_id)
            resume = functools.partial(pipeline.resume, run_id)
            fork = functools.partial(pipeline.fork, run_id, at=f"s{steps - 1}")
            taken = await medians({"resume": resume, "fork": fork}, 3, warm_up=1)
            yield Row(
                f"resume of a run with {steps:,} finished steps",
                f"{taken['resume'] * 1000:.0f} ms",
                f"{taken['fork'] * 1000:.0f} ms to fork it at its last step",
            )


BENCHMARKS = (
    durable_steps_in_sqlite,
    durable_steps_in_redis,
    durable_steps_in_postgres,
    durable_history,
    resuming,
)
