"""The page of a run while the run changes, and of runs that cannot be read in full."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from html import unescape
from typing import Any

import httpx2
import pytest
from support.interruptions import go_on, interrupt, nth
from support.patience import PATIENCE
from support.viewing import TOKEN, served, signed_in

from fastroai import Inbox, MemoryRunStore, Pipeline, PipelineConfig, RunHistory, StepContext, step
from fastroai.runtime import facts
from fastroai.store import EncryptingCodec
from fastroai.viewer import viewer
from fastroai.viewer.run_page import _growing


class Gate:
    """A step that waits until a test lets it go on."""

    def __init__(self) -> None:
        self.begun, self.open = asyncio.Event(), asyncio.Event()

    def pipeline(self) -> Pipeline[Any, Any, str]:
        @step
        async def waits(ctx: StepContext[Any]) -> str:
            self.begun.set()
            await self.open.wait()
            return "went"

        @step
        async def after(ctx: StepContext[Any]) -> str:
            return "after"

        return Pipeline[Any, Any, str]("gated", {"waits": waits, "after": after}, {"after": ["waits"]})


@pytest.fixture
async def running() -> AsyncIterator[tuple[MemoryRunStore, Gate]]:
    store, gate = MemoryRunStore(), Gate()
    task = asyncio.ensure_future(gate.pipeline().execute(run_id="g", store=store))
    await gate.begun.wait()
    yield store, gate
    gate.open.set()
    await asyncio.wait({task})


async def test_a_trace_grows_with_its_run_and_goes_on_after_its_end(
    running: tuple[MemoryRunStore, Gate],
) -> None:
    store, gate = running
    traces = _growing(RunHistory(store), "g")
    async for trace in traces:
        assert trace.status == "running"
        if [row.status for row in trace.timeline] == ["running", "not started"]:
            break
    gate.open.set()
    async for trace in traces:
        if trace.status == "finished":
            assert [row.status for row in trace.timeline] == ["succeeded", "succeeded"]
            break
    await traces.aclose()


async def test_the_stream_sends_the_page_when_something_has_happened(
    running: tuple[MemoryRunStore, Gate],
) -> None:
    store, gate = running
    with served(viewer(store, token=TOKEN)) as address:
        async with httpx2.AsyncClient(base_url=address, timeout=PATIENCE) as browser:
            await browser.get("/", params={"token": TOKEN})
            async with browser.stream("GET", "/stream/runs/g") as answer:
                assert answer.headers["content-type"].startswith("text/event-stream")
                lines = answer.aiter_lines()
                assert 'data-status="running"' in await found(lines, "data-status")
                gate.open.set()
                assert 'data-status="finished"' in await found(lines, 'data-status="finished"')
                await RunHistory(store).delete("g")
                assert "There is no such run" in await found(lines, "There is no such run")


async def found(lines: AsyncIterator[str], text: str) -> str:
    async for line in lines:
        if text in line:
            return line
    raise AssertionError(f"the stream ended before {text}")


@step
async def secret(ctx: StepContext[Any]) -> str:
    return "a secret"


async def test_a_sealed_run_says_so_and_shows_the_rest() -> None:
    store = MemoryRunStore()
    codec = EncryptingCodec({"key": EncryptingCodec.new_key()})
    config = PipelineConfig(store=store, codec=codec)
    await Pipeline[Any, Any, str]("p", {"secret": secret}, config=config).execute(
        {"word": "hidden"}, run_id="p"
    )
    async with signed_in(viewer(store, token=TOKEN)) as browser:
        text = (await browser.get("/runs/p?step=secret")).text
        assert "It is sealed" in text
        assert 'data-node="secret"' in text
        assert "a secret" not in text
        assert "hidden</" not in text
    async with signed_in(viewer(store, token=TOKEN, codec=codec)) as browser:
        assert "a secret" in (await browser.get("/runs/p?step=secret")).text
    other = EncryptingCodec({"key": EncryptingCodec.new_key()})
    async with signed_in(viewer(store, token=TOKEN, codec=other)) as browser:
        answer = await browser.get("/runs/p")
        assert (answer.status_code, "This run cannot be read" in answer.text) == (409, True)
        assert "p</bdi>" in (await browser.get("/runs")).text


async def test_a_run_whose_process_died_says_so_and_what_was_kept_when_it_went_on() -> None:
    store = MemoryRunStore()
    pipeline = Pipeline[Any, Any, str](
        "p", {"first": secret, "second": secret}, {"second": ["first"]}, config=PipelineConfig(store=store)
    )
    await interrupt(pipeline, store, nth(facts.StepFinished, 2))
    async with signed_in(viewer(store, token=TOKEN)) as browser:
        (run,) = await RunHistory(store).list()
        assert "Its process has died" in (await browser.get(f"/runs/{run.run_id}")).text
        await go_on(pipeline, store)
        text = (await browser.get(f"/runs/{run.run_id}?step=first")).text
        assert "An earlier process did this" in text
        assert "· resumed" in text
        assert "An earlier process began this" in (await browser.get(f"/runs/{run.run_id}?step=second")).text


async def test_a_run_that_waits_leads_to_its_question_and_says_who_has_answered() -> None:
    @step
    async def ask(ctx: StepContext[Any]) -> bool:
        return await ctx.ask("Pay it?", bool)

    store = MemoryRunStore()
    await Pipeline("desk", {"ask": ask}).execute(run_id="q", store=store)
    (asked,) = await Inbox(store).list()
    async with signed_in(viewer(store, token=TOKEN)) as browser:
        waiting = (await browser.get("/runs/q")).text
        link = re.search(r'href="([^"]+)">to the question', waiting)
        assert link is not None
        assert "Pay it?" in (await browser.get(unescape(link[1]))).text
        await Inbox(store).answer(asked.id, True, reviewer="Mia")
        assert "answered by <bdi>Mia</bdi>" in (await browser.get("/runs/q")).text
