"""What a run leaves behind is freed at once, and does not wait for the collector."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from fastroai import (
    Edge,
    FastroAgent,
    Graph,
    MemoryRunStore,
    Pipeline,
    SQLiteRunStore,
    StepContext,
    infer,
    step,
)
from fastroai.functions import flow
from fastroai.store import RunStore


@pytest.fixture(autouse=True)
def heap_of_this_test() -> None:
    """The collections of a test do not look at what thousands of tests before it have left alive."""
    gc.collect()
    gc.freeze()


async def left_by(run: Callable[[], Awaitable[object]]) -> int:
    """Count the objects that only the collector can free after a run."""
    for _ in range(3):  # what is made once, or kept from one run to the next, is there then
        await run()
    gc.collect()
    gc.disable()
    try:
        await run()
        return gc.collect()
    finally:
        gc.enable()


async def left_by_agents(number: int) -> int:
    """Count those objects for runs of a bare agent, in which PydanticAI leaves some."""
    bare = Agent(TestModel())
    return number * await left_by(lambda: bare.run("Hello"))


@step
async def double(ctx: StepContext[None]) -> int:
    return 2 * ctx.get_input("number", int)


@step
async def total(ctx: StepContext[None]) -> int:
    return ctx.get_dependency("a", int) + ctx.get_dependency("b", int)


@flow
async def twice(number: int) -> int:
    return 2 * number


@infer(intent="Classify", model=TestModel())
async def classify(text: str) -> str:
    raise NotImplementedError


AGENT = FastroAgent(TestModel())
PLAIN = Pipeline("sum", steps={"a": double, "b": double, "c": total}, dependencies={"c": ["a", "b"]})
WITH_AGENT = Pipeline("letter", steps={"write": AGENT.as_step("Hello")})
GRAPH = Graph(
    "doubling", nodes={"double": double, "again": double}, edges=[Edge("double", "again")], entry="double"
)


@flow
async def calling() -> str:
    return await classify("Hello")


@pytest.fixture(params=["no store", "memory", "SQLite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> RunStore | None:
    if request.param == "no store":
        return None
    return MemoryRunStore() if request.param == "memory" else SQLiteRunStore(tmp_path / "runs.db")


@pytest.mark.parametrize("output", [str, int])
async def test_an_agent_leaves_no_more_cycles_than_the_bare_agent(output: type[Any]) -> None:
    bare, ours = Agent(TestModel(), output_type=output), FastroAgent(TestModel(), output_type=output)
    assert await left_by(lambda: ours.run("Hello")) <= await left_by(lambda: bare.run("Hello"))


async def test_a_run_without_agents_leaves_no_cycles(store: RunStore | None) -> None:
    assert await left_by(lambda: PLAIN.execute({"number": 2}, store=store)) == 0
    assert await left_by(lambda: GRAPH.execute({"number": 2}, store=store)) == 0
    assert await left_by(lambda: twice.run(2, store=store)) == 0


async def test_a_run_with_an_agent_leaves_only_the_cycles_of_that(store: RunStore | None) -> None:
    of_one = await left_by_agents(1)
    assert await left_by(lambda: WITH_AGENT.execute({}, store=store)) <= of_one
    assert await left_by(lambda: calling.run(store=store)) <= of_one


async def test_rows_leave_only_the_cycles_of_their_agents(store: RunStore | None) -> None:
    of_five, runs = await left_by_agents(5), count()

    def stored() -> dict[str, Any]:
        return {} if store is None else {"store": store, "run_id": f"rows {next(runs)}"}

    assert await left_by(lambda: classify.map(["Hello"] * 5, **stored())) <= of_five
    assert await left_by(lambda: AGENT.map(["Hello"] * 5, **stored())) <= of_five
    assert await left_by(lambda: WITH_AGENT.map([{}] * 5, **stored())) <= of_five
