"""Runs that nobody runs can be cancelled too, and how a run ended is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fastroai import MemoryRunStore, PipelineConfig, RunHistory, StepContext, step
from fastroai.errors import ConfigurationError, RunNotFound, StepExecutionError
from fastroai.graphs import Edge, Graph, GraphFinished, Node


@step
async def ask(ctx: StepContext[Any]) -> str:
    ctx.record_usage(model="paid", cost_usd="0.25")
    return "Really?"


@step
async def act(ctx: StepContext[Any]) -> str:
    return "done"


def asking() -> Graph[Any, Any]:
    nodes = {"ask": Node(ask, writes=["sure"], answer=bool), "act": act}
    return Graph("asking", nodes=nodes, edges=[Edge("ask", "act")], pause_nodes=["ask"])


async def test_a_paused_run_is_cancelled_and_keeps_what_it_cost_and_can_be_taken_up_again() -> None:
    store = MemoryRunStore()
    await asking().run(run_id="r", store=store)
    await asking().cancel("r", store=store)

    (run,) = await RunHistory(store).list()
    assert (run.status, run.requests, str(run.cost_usd)) == ("cancelled", 1, "0.25")
    with pytest.raises(ConfigurationError, match="a run that is running; it is cancelled"):
        await asking().cancel("r", store=store)
    result = await asking().resume("r", store=store, input=True)
    assert (result.status, result.output, result.memory["sure"]) == ("completed", "done", True)
    assert str(result.usage.total_cost_usd) == "0.25"


async def test_what_has_finished_or_is_unknown_cannot_be_cancelled_or_paused() -> None:
    store = MemoryRunStore()
    graph = Graph("short", nodes={"act": act})
    await graph.run(run_id="r", store=store)
    for ask_for in (graph.cancel, graph.pause):
        with pytest.raises(ConfigurationError, match="it is finished"):
            await ask_for("r", store=store)
        with pytest.raises(RunNotFound, match="unknown"):
            await ask_for("unknown", store=store)
        with pytest.raises(RunNotFound, match="in this process"):
            await ask_for("r")


async def test_the_last_event_says_how_a_run_ended() -> None:
    async with asking().stream(run_id="r", store=MemoryRunStore()) as stream:
        paused = [event async for event in stream][-1]
    assert isinstance(paused, GraphFinished)
    assert (paused.status, paused.reason, paused.error) == ("paused", "'ask' waits for an answer", None)

    @step(retries=0)
    async def fails(ctx: StepContext[Any]) -> None:
        raise ValueError("no")

    failed = [event async for event in Graph("failing", nodes={"fails": fails}).stream()][-1]
    assert isinstance(failed, GraphFinished)
    assert (failed.status, failed.reason) == ("failed", "'fails' failed: ValueError: no")
    assert isinstance(failed.error, StepExecutionError)


async def test_a_time_limit_of_the_run_is_told_as_its_end() -> None:
    @step
    async def waits(ctx: StepContext[Any]) -> None:
        await asyncio.sleep(60)

    graph = Graph("slow", nodes={"waits": waits}, config=PipelineConfig(total_timeout=0.05))
    async with graph.stream() as stream:
        last = [event async for event in stream][-1]
    assert isinstance(last, GraphFinished)
    assert (last.status, last.reason) == ("failed", "graph 'slow' took longer than 0.05 s")
    assert stream.result is not None
    assert stream.result.error is last.error
