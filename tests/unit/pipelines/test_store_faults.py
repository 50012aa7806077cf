"""Pipelines on real stores that break in the middle: nothing is lost, and nothing runs twice."""

import os
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from support.durable import Counted
from support.patience import PATIENCE
from support.proxy import Proxy
from support.served_stores import served

from fastroai.errors import RunStoreUnavailable
from fastroai.pipelines import Pipeline, StepContext
from fastroai.store import SQLiteRunStore
from fastroai.store.backends.sqlite_file import SQLiteFile

NOBODY = 65_534


@pytest.fixture(autouse=True)
def few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastroai.store.record.journal.PATIENCE", 2)
    monkeypatch.setattr("fastroai.store.record.journal.backoff_delay", lambda *_: 0.01)


def breaking(counted: Counted, break_it: Callable[[], None]) -> Pipeline[Any, Any]:
    """Three steps, in the second of which something happens to the store the first time."""

    def second(ctx: StepContext[Any]) -> str:
        if counted.ran["second"] == 1:
            break_it()
        return "x" * 100_000

    steps = {
        "first": counted.step("first", lambda ctx: "first"),
        "second": counted.step("second", second),
        "third": counted.step("third", lambda ctx: len(ctx.get_dependency("second"))),
    }
    return Pipeline("p", steps, {"second": ["first"], "third": ["second"]})


async def is_stopped_and_goes_on(
    pipeline: Pipeline[Any, Any], counted: Counted, store: Any, match: str, mend: Callable[[], None]
) -> None:
    with pytest.raises(RunStoreUnavailable, match=match):
        await pipeline.execute(run_id="r", store=store)
    assert dict(counted.ran) == {"first": 1, "second": 1}
    mend()
    result = await pipeline.resume("r", store=store)
    assert result.output == 100_000
    assert dict(counted.ran) == {"first": 1, "second": 2, "third": 1}
    assert result.trace.replay(pipeline) is None


async def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, store = Counted(), SQLiteRunStore(tmp_path / "runs.db")
    connect, full = SQLiteFile.connect, [True]

    def connect_to_a_small_disk(file: SQLiteFile) -> sqlite3.Connection:
        connection = connect(file)
        if full:
            connection.execute("PRAGMA max_page_count = 12")
        return connection

    monkeypatch.setattr(SQLiteFile, "connect", connect_to_a_small_disk)
    pipeline = breaking(counted, lambda: None)
    await is_stopped_and_goes_on(pipeline, counted, store, "full; make room on its disk", full.clear)
    await store.aclose()


async def test_a_file_that_may_not_be_written_any_more() -> None:
    is_root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as folder:
        if is_root:
            os.chown(folder, NOBODY, -1)
            os.seteuid(NOBODY)
        try:
            path = Path(folder) / "runs.db"
            store, counted = SQLiteRunStore(path), Counted()

            def allow(mode: int) -> None:
                for each in (path, *path.parent.glob("runs.db-*")):
                    each.chmod(mode)

            def close_and_forbid() -> None:
                store.connections.close_idle()  # as in a process that has yet to open the file
                allow(0o444)

            def forbid() -> None:
                # In the thread of the store, which may be writing just now.
                store.connections._workers.submit(close_and_forbid).result(PATIENCE)

            await is_stopped_and_goes_on(
                breaking(counted, forbid), counted, store, "let this user write", lambda: allow(0o644)
            )
            await store.aclose()
        finally:
            if is_root:
                os.seteuid(0)


async def test_a_file_that_is_gone_while_the_run_goes_on(tmp_path: Path) -> None:
    path, away = tmp_path / "runs.db", tmp_path / "away.db"
    store, counted = SQLiteRunStore(path), Counted()
    await is_stopped_and_goes_on(
        breaking(counted, lambda: void(path.rename(away))),
        counted,
        store,
        "its file was removed",
        lambda: void(away.rename(path)),
    )
    await store.aclose()


def void(_: object) -> None: ...


@pytest.fixture(params=["redis", "postgres"], name="served")
async def through_a_proxy(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Any, Proxy]]:
    """A store whose connections go through a proxy."""
    with served(request.param, request) as place:
        store = place.open_store()
        yield store, place.proxy
        await store.aclose()


async def test_a_connection_that_is_cut_in_the_middle_of_a_write_for_good(served: tuple[Any, Proxy]) -> None:
    store, proxy = served

    def cut() -> None:
        proxy.bytes_up = 50_000

    def mend() -> None:
        proxy.bytes_up = None

    counted = Counted()
    await is_stopped_and_goes_on(breaking(counted, cut), counted, store, "is unavailable", mend)


@pytest.mark.parametrize("answers", [1, 2])
async def test_answers_that_are_lost_cost_no_step(served: tuple[Any, Proxy], answers: int) -> None:
    store, proxy = served

    def lose() -> None:
        proxy.cut_answers = answers

    counted = Counted()
    result = await breaking(counted, lose).execute(run_id="r", store=store)
    assert (result.output, dict(counted.ran)) == (100_000, {"first": 1, "second": 1, "third": 1})
    assert (await store.trace("r")).entries == result.trace.entries
