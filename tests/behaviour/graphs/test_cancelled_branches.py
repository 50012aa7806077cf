"""A node that is cancelled says what for, to whoever listens and on record."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.patience import PATIENCE

from fastroai import MemoryRunStore, PipelineConfig, StepContext, step
from fastroai.graphs import Edge, Graph
from fastroai.pipelines import StepCancelled

WHY = "'fails' failed: ValueError: no"


@step
async def split(ctx: StepContext[Any]) -> str:
    return "go"


def graph() -> Graph[Any, Any]:
    started = asyncio.Event()

    @step
    async def waits(ctx: StepContext[Any]) -> None:
        started.set()
        await asyncio.Event().wait()

    @step
    async def fails(ctx: StepContext[Any]) -> None:
        await started.wait()
        raise ValueError("no")

    nodes = {"split": split, "fails": fails, "waits": waits, "join": split}
    edges = [
        Edge("split", "fails"),
        Edge("split", "waits"),
        Edge("fails", "join", "on_success"),
        Edge("waits", "join", "on_success"),
    ]
    return Graph("g", nodes=nodes, edges=edges, config=PipelineConfig(retries=0))


@pytest.mark.parametrize("store", [None, MemoryRunStore()], ids=["live", "on record"])
async def test_a_cancelled_node_says_which_branch_failed_beside_it(store: MemoryRunStore | None) -> None:
    async with asyncio.timeout(PATIENCE), graph().stream({}, store=store) as stream:
        told = [event async for event in stream if isinstance(event, StepCancelled)]
    assert [(event.step_id, event.visit, event.cause) for event in told] == [("waits", 1, WHY)]
    assert stream.result is not None
    assert stream.result.status == "failed"
    assert f"waits: cancelled, because {WHY}" in stream.result.explain()


async def test_a_node_that_a_stopped_run_cancels_says_why_the_run_was_stopped() -> None:
    started = asyncio.Event()

    @step
    async def waits(ctx: StepContext[Any]) -> None:
        started.set()
        await asyncio.Event().wait()

    graph = Graph("g", nodes={"waits": waits})
    told: list[StepCancelled] = []

    async def listen() -> None:
        async with graph.stream({}, run_id="r") as stream:
            told.extend([event async for event in stream if isinstance(event, StepCancelled)])

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
        tasks.create_task(listen())
        await started.wait()
        await graph.cancel("r")
    assert [(event.step_id, event.cause) for event in told] == [("waits", "cancel was requested")]
