"""Pausing and cancelling runs by their store alone, without the code that runs them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from support.patience import PATIENCE
from support.stored_runs import change_header
from support.viewed_runs import asking

from fastroai import MemoryRunStore, Pipeline, PipelineResult, RunHistory, StepContext, step
from fastroai.errors import ConfigurationError, RunNotFound, RunStatusConflict, StepExecutionError
from fastroai.store import EncryptingCodec, RunQuery, StoredValues


class Slow:
    """A pipeline whose first step waits until it is told to go on."""

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()

        @step
        async def first(ctx: StepContext) -> str:
            self.begun.set()
            await self.may_end.wait()
            return "first"

        @step
        async def second(ctx: StepContext) -> str:
            return ctx.get_dependency("first", str) + ", second"

        steps = {"first": first, "second": second}
        self.pipeline = Pipeline("slow", steps, {"second": ["first"]})


async def test_a_running_run_is_paused_and_goes_on_later() -> None:
    store, slow = MemoryRunStore(), Slow()
    run = asyncio.create_task(slow.pipeline.execute(run_id="r", store=store))
    await slow.begun.wait()
    await RunHistory(store).pause("r")
    asyncio.get_running_loop().call_later(1.5, slow.may_end.set)  # signals are noticed within a second
    result = await asyncio.wait_for(run, PATIENCE)
    assert (result.status, dict(result.step_outputs)) == ("paused", {"first": "first"})
    assert (await slow.pipeline.resume("r", store=store)).output == "first, second"


async def test_a_running_run_is_cancelled() -> None:
    store, slow = MemoryRunStore(), Slow()
    run = asyncio.create_task(slow.pipeline.execute(run_id="r", store=store))
    await slow.begun.wait()
    await RunHistory(store).cancel("r")
    assert (await asyncio.wait_for(run, PATIENCE)).status == "cancelled"


class TakenUpMeanwhile(MemoryRunStore):
    """A store in which a process takes a run up as soon as another one has read its header."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def read(self, key: str, *, after: int = 0, limit: int | None = None) -> StoredValues:
        found = await super().read(key, after=after, limit=limit)
        if self.meanwhile is not None and key == "run:r":
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return found


async def test_a_run_that_a_process_takes_up_while_it_is_cancelled_is_cancelled_there() -> None:
    store, begun = TakenUpMeanwhile(), asyncio.Event()

    @step
    async def work(ctx: StepContext) -> None:
        if not begun.is_set():
            begun.set()
            raise ValueError("it fails once")
        begun.clear()
        await asyncio.Event().wait()

    pipeline = Pipeline("slow", {"work": work})
    with pytest.raises(StepExecutionError, match="once"):
        await pipeline.execute(run_id="r", store=store)
    runs = list[asyncio.Task[PipelineResult[Any]]]()

    async def resume() -> None:
        runs.append(asyncio.create_task(pipeline.resume("r", store=store)))
        while begun.is_set():
            await asyncio.sleep(0)

    store.meanwhile = resume
    await RunHistory(store).cancel("r")
    assert (await asyncio.wait_for(runs[0], PATIENCE)).status == "cancelled"


@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_a_run_whose_process_died_is_cancelled_and_can_still_be_resumed(is_encrypted: bool) -> None:
    codec = EncryptingCodec({"key": EncryptingCodec.new_key()}) if is_encrypted else None
    store, pipeline = MemoryRunStore(), asking(bool, codec=codec)
    await pipeline.execute({"why": ""}, run_id="r", store=store)
    history = RunHistory(store, codec=codec)
    held = await history.header("r")
    past = held.updated_at - timedelta(days=1)
    await change_header(store, "r", status="running", owner="a dead process", lease_until=past)
    assert (await history.summary("r")).status == "interrupted"
    with pytest.raises(RunStatusConflict, match="interrupted"):
        await history.pause("r")
    await history.cancel("r")
    assert (await history.summary("r")).status == "cancelled"
    assert [run.run_id for run in (await history.page(RunQuery(status="cancelled"))).items] == ["r"]
    with pytest.raises(RunStatusConflict, match="cancelled"):
        await history.cancel("r")
    assert len((await pipeline.resume("r", store=store)).questions) == 1


async def test_what_cannot_be_halted_is_told() -> None:
    history = RunHistory(MemoryRunStore())
    for halt in (history.pause, history.cancel):
        with pytest.raises(RunNotFound):
            await halt("nobody")
        with pytest.raises(ConfigurationError, match="run_id"):
            await halt("")
