"""FastroAI runs on asyncio. On the loop of another library, and without a loop, it says so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from pydantic_ai.models.test import TestModel

from fastroai import Budget, FastroAgent, Graph, Pipeline, StepContext, budget_scope, step
from fastroai.errors import NoRunningLoopError, RunningLoopError
from fastroai.functions import run


@step
async def first(ctx: StepContext) -> str:
    return "x"


agent = FastroAgent(TestModel())
pipeline = Pipeline("p", {"first": first})
graph = Graph("g", nodes={"first": first}, edges=[])


async def stream_agent() -> None:
    async for _ in agent.run_stream("hi"):
        pass


async def stream_pipeline() -> None:
    async with pipeline.stream({}) as stream:
        async for _ in stream:
            pass


async def under_a_budget() -> None:
    with budget_scope(Budget(usd=1)):
        await agent.run("hi")


AWAITED: dict[str, Callable[[], Awaitable[Any]]] = {
    "an agent": lambda: agent.run("hi"),
    "a pipeline": lambda: pipeline.execute({}),
    "a graph": lambda: graph.run({}),
    "a stream of an agent": stream_agent,
    "a stream of a pipeline": stream_pipeline,
    "an agent under a budget": under_a_budget,
}


@pytest.mark.parametrize("what", AWAITED)
def test_awaited_on_the_loop_of_trio_everything_says_that_it_needs_asyncio(what: str) -> None:
    with pytest.raises(NoRunningLoopError, match=r"trio, but FastroAI needs asyncio.*agent\.run_sync"):
        trio.run(AWAITED[what])


@pytest.mark.parametrize("what", AWAITED)
def test_driven_by_hand_in_a_thread_everything_says_that_it_needs_a_loop(what: str) -> None:
    async def driven() -> None:
        await AWAITED[what]()

    by_hand = driven()
    with pytest.raises(NoRunningLoopError, match="without an event loop"):
        by_hand.send(None)


@pytest.mark.parametrize(
    ("called", "call"),
    [
        ("agent.run_sync", lambda: agent.run_sync("hi")),
        ("pipeline.execute_sync", pipeline.execute_sync),
        ("run", lambda: run(agent.run("hi"))),
    ],
)
def test_a_sync_method_refuses_to_block_the_loop_of_trio_and_names_the_way_that_works(
    called: str, call: Callable[[], Any]
) -> None:
    async def blocks() -> None:
        call()

    with pytest.raises(RunningLoopError, match=rf"to_thread\.run_sync\(lambda: {called}\(\.\.\.\)\)"):
        trio.run(blocks)


def test_the_way_that_the_errors_name_works() -> None:
    async def main() -> str:
        response = await trio.to_thread.run_sync(lambda: agent.run_sync("hi"))
        return response.output

    assert trio.run(main) == "success (no tool calls)"


def test_asyncio_works_where_trio_is_imported_too() -> None:
    assert asyncio.run(agent.run("hi")).output == "success (no tool calls)"
