"""Many runs, and several people who look at them. `make viewer-soak` has ten times as many of both."""

from __future__ import annotations

import asyncio
import os
import statistics
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx2
import pytest
from support.patience import PATIENCE
from support.run_logs import Log
from support.viewed_runs import look_up
from support.viewing import TOKEN, client, served, signed_in

from fastroai import Pipeline, SQLiteRunStore, StepContext, step
from fastroai.store import RunHistory
from fastroai.store.reading.run_spending import SpendingOnRecord
from fastroai.viewer import viewer

IS_SOAK = "FASTROAI_VIEWER_SOAK" in os.environ
RUNS, VIEWERS, STEPS = (10_000, 50, 1_000) if IS_SOAK else (1_000, 5, 60)
START = datetime(2026, 3, 1, tzinfo=UTC)
SHAPE = {"name": "p", "steps": {"a": {"dependencies": []}}}
PAGES = (
    "/runs",
    "/runs?status=failed",
    "/runs?search=r00",
    "/runs?sort=cost&way=up",
    "/runs?sort=duration",
    "/runs?since=2026-03-01T12:00&until=2026-03-02T12:00&pipeline=desk",
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("many") / "runs.db"
    asyncio.run(_fill(place))
    return place


async def _fill(place: Path) -> None:
    store = SQLiteRunStore(place)

    async def add(number: int) -> None:
        made = Log(SHAPE, run_id=f"r{number:05}", start=START + timedelta(minutes=number))
        made.start("a").spend("a", f"0.0{number % 9 + 1}").output("a", "done")
        made.end("failed" if number % 10 == 0 else "finished")
        await made.write(store, spent=SpendingOnRecord(made.entries).spent(tenant=None, tags=()))

    for first in range(0, RUNS, 500):
        await asyncio.gather(*map(add, range(first, first + 500)))
    await store.aclose()


async def test_viewers_of_many_runs_see_the_next_one_at_once(file: Path) -> None:
    store, waiting = SQLiteRunStore(file), asyncio.Semaphore(0)

    async def look(address: str) -> None:
        async with httpx2.AsyncClient(
            base_url=address, follow_redirects=True, timeout=PATIENCE, trust_env=False
        ) as browser:
            page = await browser.get("/", params={"token": TOKEN})
            assert f"{RUNS:,} runs" in page.text
            assert len(page.content) < 100_000
            async with browser.stream("GET", "/stream/runs") as messages:
                lines = messages.aiter_lines()
                seen = ""
                while f"r{RUNS - 1:05}" not in seen:
                    seen = await anext(lines)
                waiting.release()
                while "the next one" not in seen:
                    seen = await anext(lines)

    with served(viewer(file, token=TOKEN)) as address:
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as viewers:
            for _ in range(VIEWERS):
                viewers.create_task(look(address))
            for _ in range(VIEWERS):
                await waiting.acquire()
            await Pipeline("p", {"look up": look_up}).execute(run_id="the next one", store=store)
    await RunHistory(store).delete("the next one")  # other tests see the same file
    await store.aclose()


async def test_every_page_of_the_list_has_fifty_runs_whatever_is_asked(file: Path) -> None:
    """Prints what each page takes at the server, for the soak."""
    async with signed_in(viewer(file, token=TOKEN)) as browser:
        for path in (*PAGES, "/spending?period=all"):
            took = list[float]()
            for _ in range(5 if IS_SOAK else 1):
                began = perf_counter()
                answer = await browser.get(path)
                took.append(perf_counter() - began)
                assert answer.status_code == 200
                assert answer.text.count("<tr>") <= 200
            print(f"{path}: {statistics.median(took) * 1000:.0f} ms, {len(answer.content):,} bytes")


async def test_everybody_sees_a_run_of_many_steps_move_to_its_end(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    @step
    async def waits(ctx: StepContext[Any]) -> int:
        await go_on.wait()
        return 1

    @step
    async def quick(ctx: StepContext[Any]) -> int:
        return 1

    steps = {"waits": waits, **{f"s{number}": quick for number in range(STEPS - 1)}}
    dependencies = {f"s{number}": ["waits"] for number in range(STEPS - 1)}
    pipeline = Pipeline[Any, Any, int]("large", steps, dependencies, output_step="s0")
    store = SQLiteRunStore(tmp_path / "r.db")
    run = asyncio.ensure_future(pipeline.execute(run_id="large", store=store))
    while not (await store.read("run:large")).values:  # a stream of a run that is not there would end
        await asyncio.sleep(0.01)
    watching = asyncio.Semaphore(0)

    async def look(address: str) -> None:
        async with httpx2.AsyncClient(base_url=address, timeout=PATIENCE, trust_env=False) as browser:
            await browser.get("/", params={"token": TOKEN})
            async with browser.stream("GET", "/stream/runs/large") as messages:
                lines = messages.aiter_lines()
                watching.release()
                async for line in lines:
                    if 'data-status="finished"' in line:
                        return
        raise AssertionError("the stream ended before the run did")

    with served(viewer(SQLiteRunStore(tmp_path / "r.db"), token=TOKEN)) as address:
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as viewers:
            for _ in range(VIEWERS):
                viewers.create_task(look(address))
            for _ in range(VIEWERS):
                await watching.acquire()
            go_on.set()
            await run
    async with client(viewer(tmp_path / "r.db", token=TOKEN)) as browser:
        await browser.get("/", params={"token": TOKEN})
        page = await browser.get("/runs/large")
        assert f"{STEPS:,}" in page.text or STEPS <= 200
        print(f"a run of {STEPS:,} steps: {len(page.content):,} bytes")
