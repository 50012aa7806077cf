"""What it costs to put a run on record: a step beside a bare write, and going on with a long run."""

from __future__ import annotations

import asyncio
import functools
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from time import process_time
from typing import Any

import psycopg
import redis
from support.servers import running_postgres, running_redis

from benchmarks.measure import Row, medians, seconds
from benchmarks.pipelines import chain
from fastroai.pipelines import Pipeline, PipelineConfig, StepContext, step
from fastroai.runtime.budgets.spend_upkeep import RENEWALS_PER_LEASE
from fastroai.store import PostgresRunStore, RedisRunStore, RunStore, SQLiteRunStore
from fastroai.store.lease import DEFAULT_TERMS
from fastroai.store.record.journal import Durability

STEPS = 300
"""In one run, one after the other, each of which does nothing."""
ROUNDS = 9
BETWEEN_RENEWALS = DEFAULT_TERMS.seconds / RENEWALS_PER_LEASE
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


async def resuming_a_large_run() -> AsyncIterator[Row]:
    """A finished run of 100,000 steps, resumed in a process of its own, whose memory is measured."""
    steps = 100_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "runs.db")
        await kept(chain(steps), SQLiteRunStore(path), "async").execute(run_id="large")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.resume_once", str(path), "large", str(steps)),
            stdout=asyncio.subprocess.PIPE,
        )
        told, _ = await process.communicate()
    taken, before, most = map(float, told.split())
    yield Row(
        f"resume of a run with {steps:,} finished steps",
        f"{taken:.1f} s CPU, {most:.0f} MB at most",
        f"{before:.0f} MB before, with the pipeline",
        aim="≤ 3 s, 250 MB",
        met=taken <= 3 and most <= 250,
    )


async def waiting_in_sqlite() -> AsyncIterator[Row]:
    """Runs whose steps wait for something. What they cost are their leases, and looks for signals."""
    number, go_on, left = 1_000, asyncio.Event(), 1_000
    all_wait = asyncio.Event()

    @step
    async def wait(ctx: StepContext) -> None:
        nonlocal left
        left -= 1
        if not left:
            all_wait.set()
        await go_on.wait()

    with tempfile.TemporaryDirectory() as folder:
        pipeline = kept(
            Pipeline("waits", {"wait": wait}, {"wait": []}), SQLiteRunStore(Path(folder, "runs.db")), "async"
        )
        runs = [asyncio.create_task(pipeline.execute(run_id=f"waits-{next(_ids)}")) for _ in range(number)]
        await all_wait.wait()
        await asyncio.sleep(BETWEEN_RENEWALS)  # the first renewal of a lease costs more
        used = process_time()
        await asyncio.sleep(2 * BETWEEN_RENEWALS)
        each = (process_time() - used) / (2 * BETWEEN_RENEWALS) / number * 1e6
        go_on.set()
        await asyncio.gather(*runs)
    yield Row(
        f"a run that waits, among {number:,} in SQLite, a second",
        f"{each:.1f} µs CPU",
        aim="≤ 2 µs",
        met=each <= 2,
    )


BENCHMARKS = (
    durable_steps_in_sqlite,
    durable_steps_in_redis,
    durable_steps_in_postgres,
    durable_history,
    resuming,
    resuming_a_large_run,
    waiting_in_sqlite,
)
