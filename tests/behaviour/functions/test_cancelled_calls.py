"""A call whose task is cancelled ends as cancelled, wherever its request is."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest
from support.stored_runs import entries_of

from fastroai import FastroAgent, Pipeline, StepContext, infer, step
from fastroai.agent import models
from fastroai.functions import parallel
from fastroai.rows.facts import RowEnded
from fastroai.store import MemoryRunStore, RunHistory
from fastroai.testing import ModelServer, Reply
from fastroai.tools import safe_tool


@pytest.fixture
def classify(server: ModelServer) -> Any:
    """A function whose answers to "slow" texts never come."""
    server.rule(lambda request: "slow" in request.prompt, Reply(data={"response": "late"}, latency=60))
    server.rule(None, Reply(data={"response": "fine"}))

    @infer(intent="Classify", model=server.model("openai:gpt-5-mini"))
    async def classify(text: str) -> str:
        raise NotImplementedError

    return classify


async def turn(times: int) -> None:
    """Let the loop run, so that a request is a little further on its way to the server each time."""
    for _ in range(times):
        await asyncio.sleep(0)


async def test_a_call_that_is_cancelled_raises_the_cancellation_itself(classify: Any) -> None:
    await classify("a connection")
    for turns in range(40):
        task = asyncio.create_task(classify(f"slow {turns}"))
        await turn(turns)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


async def test_a_loser_that_is_cancelled_is_no_failure(classify: Any) -> None:
    async def fast(turns: int) -> str:
        await turn(turns)
        return "fine"

    await classify("a connection")
    for turns in range(40):
        assert await parallel(classify(f"slow {turns}"), fast(turns), require=1) == ("fine",)
    assert {one.outcome for one in classify.records if "slow" in str(one.inputs)} == {"cancelled"}


async def test_rows_in_flight_are_cut_off_and_have_not_failed_when_their_run_is_cancelled(
    classify: Any,
) -> None:
    store, ended = MemoryRunStore(), list[tuple[int, bool]]()
    await classify("a connection")
    for turns in range(10, 70):
        rows = [{"text": f"slow {turns} {number}"} for number in range(2)]
        task = asyncio.create_task(classify.map(rows, run_id=f"{turns}", store=store, concurrency=2))
        await turn(turns)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    for run in await RunHistory(store).list(limit=100):
        facts = await entries_of(store, run.run_id)
        ended += [(one.number, one.failure is None) for one in facts if isinstance(one, RowEnded)]
    assert ended == []


async def test_a_tool_that_answers_its_cancellation_with_an_error_is_cancelled(classify: Any) -> None:
    @safe_tool(timeout=60, on_error="failed")
    async def tool(turns: int) -> str:
        try:
            return str(await classify(f"slow {turns}"))
        except asyncio.CancelledError:
            raise ValueError("away") from None

    await classify("a connection")
    for turns in range(10, 60):
        task = asyncio.create_task(tool(turns))
        await turn(turns)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


async def test_a_hook_does_not_swallow_the_cancellation_of_its_run(classify: Any) -> None:
    async def hook() -> None:
        await classify("slow")

    @step(on_step_start=hook)
    async def nothing(ctx: StepContext[None]) -> None: ...

    pipeline = Pipeline("p", {"nothing": nothing})
    await classify("a connection")
    for turns in range(20, 80):
        task = asyncio.create_task(pipeline.execute())
        await turn(turns)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


async def test_calls_side_by_side_load_a_model_in_one_thread(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on = asyncio.Event(), threading.Event()
    loop, built = asyncio.get_running_loop(), models.build_model

    def slowly(reference: str) -> object:
        loop.call_soon_threadsafe(begun.set)
        assert goes_on.wait(60)
        return built(reference)

    monkeypatch.setattr(models, "build_model", slowly)
    agent = FastroAgent("test", defer_model_check=True)
    with caplog.at_level(logging.WARNING):
        tasks = [asyncio.create_task(agent.run("hi")) for _ in range(16)]
        await begun.wait()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    goes_on.set()
    assert len([one for one in caplog.messages if "loading the model" in one]) == 1
