"""Processes that fork while their threads use stores: parent and child go on, and no writes are lost."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from support.patience import PATIENCE
from support.run_stores import OpenStore, PlainStore, run_stores
from support.spend_stores import make_kept

from fastroai import Pipeline, SQLiteRunStore, StepContext, step
from fastroai.runtime import CircuitBreaker, ProviderLimit
from fastroai.store import (
    MemoryRunStore,
    MemorySpendStore,
    SQLiteSpendStore,
    adapt_run_store,
)
from fastroai.usage import SpendAccount, SpendClaim

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

FORKS = 8
ACCOUNT = SpendAccount(key="a", window="total")
numbers = itertools.count()


def in_child(work: Callable[[], object]) -> str:
    """Do something in a forked process: `""` when it is done, else how it failed, or that it hung."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:  # pragma: no cover
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE)
        try:
            work()
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode()[:4000])
            os._exit(1)
        os._exit(0)
    os.close(writer)
    status = os.waitpid(child, 0)[1]
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read().decode()
    return f"hung for {PATIENCE} seconds" if os.WIFSIGNALED(status) else told


@contextmanager
def busy(work: Callable[[], object], threads: int = 2) -> Iterator[list[BaseException]]:
    """Do something again and again in threads. The errors that it raised, which are none when it is right."""
    stop, begun = threading.Event(), threading.Barrier(threads + 1)
    errors: list[BaseException] = []

    def loop() -> None:
        try:
            work()
            begun.wait(PATIENCE)
            while not stop.is_set():
                work()
        except BaseException as error:
            begun.abort()
            errors.append(error)

    running = [threading.Thread(target=loop, daemon=True) for _ in range(threads)]
    for thread in running:
        thread.start()
    with suppress(threading.BrokenBarrierError):
        begun.wait(PATIENCE)
    try:
        yield errors
    finally:
        stop.set()
        for thread in running:
            thread.join(PATIENCE)
        assert not any(thread.is_alive() for thread in running), "the parent hangs"


@step
async def write(ctx: StepContext) -> str:
    return "x" * 20_000


PIPELINE = Pipeline("p", {f"s{number}": write for number in range(4)}, output_step="s3")


def run_on(store: Any) -> None:
    PIPELINE.execute_sync({}, run_id=f"{os.getpid()}-{next(numbers)}", store=store)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis", "postgres", "plain"])
def test_runs_go_on_in_parent_and_child_when_a_process_forks_while_its_threads_write(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if kind == "plain":
        forks_with_runs(lambda: adapt_run_store(PlainStore(tmp_path / "plain.db")), forks=1)
        return
    with run_stores(kind, request, tmp_path) as open_store:
        forks_with_runs(open_store)


def forks_with_runs(open_store: OpenStore, forks: int = FORKS) -> None:
    """One fork is made while no thread works: `PlainStore` opens SQLite itself, so no fork waits for it."""
    store = open_store()

    def work() -> None:
        run_on(store)
        run_on(open_store())

    if forks == 1:
        run_on(store)
        assert in_child(lambda: run_on(store)) == ""
    else:
        with busy(lambda: run_on(store)) as errors:
            told = [in_child(work) for _ in range(forks)]
        assert (told, errors) == ([""] * forks, [])
    run_on(store)
    if hasattr(store, "aclose"):
        asyncio.run(store.aclose())


def claim() -> SpendClaim:
    return SpendClaim(
        id=uuid.uuid4().hex,
        account=ACCOUNT,
        amount_usd=Decimal(1),
        limit_usd=Decimal(10**6),
        lease=30,
    )


async def spend(store: Any) -> None:
    one = claim()
    assert (await store.reserve(one)).granted
    await store.settle(one, Decimal(1))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis", "postgres"])
def test_spending_is_counted_in_parent_and_child_when_a_process_forks_while_its_threads_spend(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    kept = make_kept(kind, request, tmp_path)
    store = kept.store
    spent: list[int] = []

    def work() -> None:
        asyncio.run(spend(store))
        spent.append(1)

    with busy(work) as errors:
        told = [in_child(lambda: asyncio.run(spend(store))) for _ in range(FORKS)]
    assert (told, errors) == ([""] * FORKS, [])
    of_children = 0 if kind == "memory" else FORKS
    assert asyncio.run(store.balance(ACCOUNT)).spent_usd == len(spent) + of_children
    if kind != "memory":
        asyncio.run(store.aclose())
    kept.end()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_fork_in_the_middle_of_a_write_waits_for_its_end(kind: str, tmp_path: Path) -> None:
    in_the_middle = threading.Event()

    def clock() -> datetime:
        if not in_the_middle.is_set():
            in_the_middle.set()
            threading.Event().wait(0.2)  # a fork that does not wait is over by then
        return datetime.now(UTC)

    store: Any
    if kind == "memory":
        store = MemorySpendStore(clock=clock)
    else:
        store = SQLiteSpendStore(tmp_path / "spend.db", timeout=PATIENCE, clock=clock)
    thread = threading.Thread(target=lambda: asyncio.run(spend(store)), daemon=True)
    thread.start()
    assert in_the_middle.wait(PATIENCE)
    told = in_child(lambda: asyncio.run(spend(store)))
    thread.join(PATIENCE)
    assert told == ""
    assert asyncio.run(store.balance(ACCOUNT)).spent_usd == (1 if kind == "memory" else 2)


def test_a_forked_process_goes_on_with_a_copy_of_a_store_in_memory_whatever_thread_used_it() -> None:
    in_the_middle = threading.Event()

    def clock() -> datetime:
        if not in_the_middle.is_set():
            in_the_middle.set()
            threading.Event().wait(0.2)
        return datetime.now(UTC)

    store = MemoryRunStore(clock=clock)
    asyncio.run(store.append("k", [b"parent"], revision=0))
    thread = threading.Thread(target=lambda: asyncio.run(store.read("k")), daemon=True)
    thread.start()
    assert in_the_middle.wait(PATIENCE)
    told = in_child(lambda: asyncio.run(store.append("k", [b"child"], revision=1)))
    thread.join(PATIENCE)
    assert told == ""
    assert asyncio.run(store.read("k")).values == (b"parent",)


def test_the_child_keeps_the_file_for_itself_when_its_parent_closes_it(tmp_path: Path) -> None:
    """A child that believes in its parent's locks writes to a log that the parent deletes."""
    path = tmp_path / "runs.db"
    store = SQLiteRunStore(path)
    asyncio.run(store.append("k", [b"parent"], revision=0))
    (wait, wake), (ready, is_ready) = os.pipe(), os.pipe()
    child = os.fork()
    if not child:  # pragma: no cover
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE)
        try:
            asyncio.run(store.append("k", [b"child"], revision=1))
            os.write(is_ready, b".")
            os.read(wait, 1)
            asyncio.run(store.append("k", [b"child again"], revision=2))
        except BaseException:
            os._exit(1)
        os._exit(0)
    os.read(ready, 1)
    asyncio.run(store.read("k"))
    asyncio.run(store.aclose())
    os.write(wake, b".")
    assert os.waitpid(child, 0)[1] == 0
    for end in (wait, wake, ready, is_ready):
        os.close(end)
    assert asyncio.run(store.read("k")).values == (b"parent", b"child", b"child again")
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    asyncio.run(store.aclose())


def test_the_limits_of_a_forked_process_are_free_of_the_requests_of_its_parent() -> None:
    limit, breaker = ProviderLimit(max_concurrency=1), CircuitBreaker(failures=1)
    in_parent = limit.queue("openai"), breaker.circuit_of("openai")

    def work() -> None:
        assert limit.queue("openai") is not in_parent[0]
        assert breaker.circuit_of("openai") is not in_parent[1]

    with limit._lock, breaker._lock:  # as another thread may have them
        told = in_child(work)
    assert told == ""
    assert limit.queue("openai") is in_parent[0]
