"""Many runs, and several people who look at them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
from support.patience import PATIENCE
from support.run_logs import Log
from support.viewed_runs import look_up
from support.viewing import TOKEN, served

from fastroai import Pipeline, SQLiteRunStore
from fastroai.viewer import viewer

START = datetime(2026, 3, 1, tzinfo=UTC)
SHAPE = {"name": "p", "steps": {"a": {"dependencies": []}}}


async def test_five_viewers_of_a_thousand_runs_see_the_next_one_at_once(tmp_path: Path) -> None:
    store = SQLiteRunStore(tmp_path / "runs.db")

    async def add(number: int) -> None:
        made = Log(SHAPE, run_id=f"r{number:04}", start=START + timedelta(minutes=number))
        made.end()
        await made.write(store)

    await asyncio.gather(*map(add, range(1_000)))
    waiting = asyncio.Semaphore(0)

    async def look(address: str) -> None:
        async with httpx2.AsyncClient(base_url=address, follow_redirects=True) as browser:
            page = await browser.get("/", params={"token": TOKEN})
            assert "1,000 runs" in page.text
            assert len(page.content) < 100_000
            async with browser.stream("GET", "/stream/runs") as messages:
                lines = messages.aiter_lines()
                seen = ""
                while "r0999" not in seen:
                    seen = await anext(lines)
                waiting.release()
                while "the next one" not in seen:
                    seen = await anext(lines)

    with served(viewer(tmp_path / "runs.db", token=TOKEN)) as address:
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as viewers:
            for _ in range(5):
                viewers.create_task(look(address))
            for _ in range(5):
                await waiting.acquire()
            await Pipeline("p", {"look up": look_up}).execute(run_id="the next one", store=store)
    await store.aclose()
