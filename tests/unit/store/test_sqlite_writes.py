"""Writes to a SQLite file that come at the same time share a transaction, and nothing else."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from support.patience import PATIENCE

from fastroai.errors import RevisionConflict, RunStoreUnavailable
from fastroai.runtime.concurrency.sync import in_background
from fastroai.store import SQLiteRunStore

REFUSES_K2 = (
    "CREATE TRIGGER refuse BEFORE INSERT ON run_key WHEN NEW.key = CAST('k2' AS BLOB) "
    "BEGIN SELECT RAISE(ABORT, 'refused'); END"
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteRunStore]:
    one = SQLiteRunStore(tmp_path / "runs.db")
    yield one
    await one.aclose()


@asynccontextmanager
async def busy(
    store: SQLiteRunStore, prepare: Callable[[sqlite3.Connection], object] = lambda connection: None
) -> AsyncIterator[None]:
    """Keep the file of a store busy inside of the block, so that all writes wait."""
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hold(connection: sqlite3.Connection) -> None:
        prepare(connection)
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(PATIENCE)

    held = store.connections.submit(hold)
    await begun.wait()
    try:
        yield
        for _ in range(3):
            await asyncio.sleep(0)  # so that tasks that were made in the block are in line
    finally:
        go_on.set()
    await asyncio.wrap_future(held)


async def test_writes_that_come_while_the_file_is_busy_are_one_transaction(store: SQLiteRunStore) -> None:
    statements: list[str] = []
    async with busy(store, lambda connection: connection.set_trace_callback(statements.append)):
        writes = [asyncio.create_task(store.append(f"k{n}", [b"v"], revision=0)) for n in range(20)]
        writes += [asyncio.create_task(store.append("k7", [b"w"], revision=1))]
    await asyncio.gather(*writes)
    assert statements.count("COMMIT") == 1
    assert (await store.read("k7")).values == (b"v", b"w")


async def test_conflicts_and_failures_are_those_of_their_own_writes(store: SQLiteRunStore) -> None:
    await store.append("k1", [b"v"], revision=0)
    async with busy(store, lambda connection: connection.execute(REFUSES_K2)):
        first, conflict, refused, last = (
            asyncio.create_task(write)
            for write in (
                store.append("k0", [b"v"], revision=0),
                store.append("k1", [b"w"], revision=0),
                store.append("k2", [b"v"], revision=0),
                store.append("k3", [b"v"], revision=0),
            )
        )
    await asyncio.gather(first, last)
    with pytest.raises(RevisionConflict):
        await conflict
    with pytest.raises(RunStoreUnavailable, match="refused"):
        await refused
    revisions = [(await store.read(f"k{n}")).revision for n in range(4)]
    assert revisions == [1, 1, 0, 1]


async def test_a_write_is_committed_when_its_caller_goes_on(store: SQLiteRunStore, tmp_path: Path) -> None:
    seen: list[object] = []

    async def append(number: int) -> None:
        await store.append(f"k{number}", [b"v"], revision=0)
        found = other.execute("SELECT 1 FROM run_key WHERE key = ?", (b"k%d" % number,))
        seen.append(found.fetchone())

    with closing(sqlite3.connect(tmp_path / "runs.db")) as other:
        async with busy(store):
            writes = [asyncio.create_task(append(number)) for number in range(5)]
        await asyncio.gather(*writes)
    assert seen == [(1,)] * 5


async def test_all_writes_in_line_fail_with_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    store = SQLiteRunStore(folder / "runs.db")
    writes = (store.append(f"k{n}", [b"v"], revision=0) for n in range(3))
    failures = await asyncio.gather(*writes, return_exceptions=True)
    assert [type(one) for one in failures] == [RunStoreUnavailable] * 3
    folder.mkdir()
    await store.append("k0", [b"v"], revision=0)
    await store.aclose()


async def test_a_write_waits_for_its_answer_as_long_as_any_operation(tmp_path: Path) -> None:
    store = SQLiteRunStore(tmp_path / "runs.db", timeout=0.05)
    async with busy(store):
        with pytest.raises(RunStoreUnavailable, match="no answer within 0.1 s"):
            await store.append("k0", [b"v"], revision=0)
    assert (await store.read("k0")).revision == 0
    await store.append("k0", [b"v"], revision=0)
    await store.aclose()


async def test_writes_of_several_event_loops_are_in_one_transaction(store: SQLiteRunStore) -> None:
    statements: list[str] = []
    async with busy(store, lambda connection: connection.set_trace_callback(statements.append)):
        here = asyncio.create_task(store.append("k0", [b"v"], revision=0))
        there = in_background(store.append("k1", [b"v"], revision=0))
        await asyncio.wrap_future(in_background(asyncio.sleep(0)))
    await asyncio.gather(here, asyncio.wrap_future(there))
    assert statements.count("COMMIT") == 1


async def test_a_write_that_is_cancelled_after_it_has_begun_is_awaited_first(
    store: SQLiteRunStore, tmp_path: Path
) -> None:
    loop, begun = asyncio.get_running_loop(), asyncio.Event()

    def note(statement: str) -> None:
        if statement.startswith("BEGIN"):
            loop.call_soon_threadsafe(begun.set)

    await store.connections.run(lambda connection: connection.set_trace_callback(note))
    with closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        write = asyncio.create_task(store.append("k0", [b"v"], revision=0))
        await begun.wait()
        write.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not write.done()
        other.execute("COMMIT")
        with pytest.raises(asyncio.CancelledError):
            await write
        assert other.execute("SELECT count(*) FROM run_key").fetchone() == (1,)


async def test_a_write_that_is_cancelled_in_line_is_left_out(store: SQLiteRunStore) -> None:
    async with busy(store):
        cancelled, other = (asyncio.create_task(store.append(f"k{n}", [b"v"], revision=0)) for n in range(2))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
    await other
    assert [(await store.read(f"k{n}")).revision for n in range(2)] == [0, 1]
