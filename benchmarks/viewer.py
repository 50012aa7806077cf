"""The viewer in a browser: how much a page weighs, and how soon it is seen."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from os import environ
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.measure import Row
from fastroai.pipelines import Pipeline, StepContext, step
from fastroai.store import SQLiteRunStore

RUNS, STEPS, ROUNDS = 300, 40, 7
_PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_SENT = """[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
    .reduce((sum, one) => sum + one.transferSize, 0)"""


@step
async def nothing(ctx: StepContext) -> str:
    """A step whose output is short."""
    return "done"


async def fill(place: Path) -> None:
    """Make runs to look at."""
    store = SQLiteRunStore(place)
    short = Pipeline[Any, Any, str]("short", {"a": nothing, "b": nothing}, {"b": ["a"]})
    for number in range(RUNS):
        await short.execute(run_id=f"short-{number}", store=store, tenant="acme", tags=["eu"])
    names = [f"s{number}" for number in range(STEPS)]
    needs = {name: names[max(0, position - 2) : position] for position, name in enumerate(names) if position}
    long = Pipeline[Any, Any, str]("long", dict.fromkeys(names, nothing), needs, output_step=names[-1])
    await long.execute(run_id="long", store=store)
    await store.aclose()


async def pages_in_a_browser() -> AsyncIterator[Row]:
    """What `fastroai view` needs until it serves, and what its pages need until they are seen."""
    chromium = environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        yield Row("pages of the viewer", "no Chromium: make browser")
        return
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "runs.db"
        await fill(place)
        command = [sys.executable, "-m", "fastroai.cli", "view", "--store", str(place), "--no-browser"]
        began = perf_counter()
        server = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
        try:
            assert server.stdout is not None
            told = ""
            while "?token=" not in told:
                told = (await server.stdout.readline()).decode()
            address = next(word for word in told.split() if "?token=" in word)
            until = perf_counter() - began
            yield Row("from `fastroai view` to its address", f"{until:.1f} s", aim="about 1 s")
            for row in await asyncio.to_thread(looked_at, chromium, address):
                yield row
        finally:
            server.terminate()
            await server.wait()


def looked_at(chromium: str, address: str) -> list[Row]:
    """Open each page several times, without and with what the browser has kept."""
    from playwright.sync_api import sync_playwright

    rows = list[Row]()
    home = address.partition("/?")[0]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for what, path in (("50 runs", "/runs"), (f"a run of {STEPS} steps", "/runs/long")):
            first, again, sizes, documents = list[float](), list[float](), list[int](), list[int]()
            for _ in range(ROUNDS):
                with browser.new_context() as context:
                    context.request.get(address)
                    page = context.new_page()
                    answer = page.goto(home + path, wait_until="load")
                    assert answer is not None
                    page.wait_for_function(f"{_PAINTED} !== undefined")
                    first.append(page.evaluate(_PAINTED))
                    sizes.append(page.evaluate(_SENT))
                    documents.append(len(answer.body()))
                    page.goto(home + path, wait_until="load")
                    page.wait_for_function(f"{_PAINTED} !== undefined")
                    again.append(page.evaluate(_PAINTED))
            middle = statistics.median
            rows.append(
                Row(
                    f"the page of {what}: sent at the first visit, of that HTML",
                    f"{middle(sizes) / 1000:.0f} kB, {middle(documents) / 1000:.0f} kB",
                )
            )
            rows.append(
                Row(
                    f"the page of {what}: seen after, at the first visit and the next",
                    f"{middle(first):.0f} ms, {middle(again):.0f} ms",
                )
            )
        browser.close()
    return rows


BENCHMARKS = (pages_in_a_browser,)
