"""What the floor of every run adds to a unit that does nothing: function calls, and what it keeps."""

import asyncio
import gc
import tracemalloc
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from support.calls_made import python_calls

from fastroai.graphs import Edge, Graph, Node
from fastroai.pipelines import BaseStep, Pipeline, PipelineConfig, StepContext, step
from fastroai.runtime import Scope
from fastroai.store import RunStore, SQLiteRunStore

FEW, MANY = 50, 150

MOST_OF_A_STEP = 25
MOST_OF_A_NODE = 39

MOST_OF_A_STEP_TO_BUILD = 53
MOST_OBJECTS_OF_A_WAITING_RUN = 130

FEWER_VISITS, MORE_VISITS = 3_600, 5_600
"""Both so many that a run packs what is over."""
MOST_BYTES = 300
"""Of a visit that is over, at most, while its run goes on and in its result."""


@step
async def nothing(ctx: StepContext) -> int:
    return 1


pytestmark = pytest.mark.usefixtures("unwatched")


def names(length: int) -> list[str]:
    return [f"s{number}" for number in range(length)]


async def test_a_step_that_does_nothing_costs_few_function_calls() -> None:
    async def calls(length: int) -> int:
        ids = names(length)
        chain = Pipeline("chain", dict.fromkeys(ids, nothing), {after: [one] for one, after in pairwise(ids)})
        return await python_calls(lambda: chain.execute({}))

    assert round((await calls(MANY) - await calls(FEW)) / (MANY - FEW)) <= MOST_OF_A_STEP


async def test_a_node_that_does_nothing_costs_few_function_calls() -> None:
    async def calls(length: int) -> int:
        ids = names(length)
        edges = [Edge(one, after) for one, after in pairwise(ids)]
        chain = Graph("chain", nodes=dict.fromkeys(ids, nothing), edges=edges)
        return await python_calls(chain.run)

    assert round((await calls(MANY) - await calls(FEW)) / (MANY - FEW)) <= MOST_OF_A_NODE


def made(befores: Sequence[str]) -> BaseStep[object, int]:
    """A step of its own, as each of a user's steps is."""

    @step
    async def add(ctx: StepContext) -> int:
        return 1 + sum(ctx.get_dependency(before, int) for before in befores)

    return add


async def test_a_step_takes_few_function_calls_to_decorate_and_to_put_into_a_pipeline() -> None:
    async def calls(length: int) -> int:
        needs = {after: [one] for one, after in pairwise(names(length))}

        async def build() -> object:
            steps = {step_id: made(needs.get(step_id, ())) for step_id in names(length)}
            return Pipeline("chain", steps, needs)

        return await python_calls(build)

    assert round((await calls(MANY) - await calls(FEW)) / (MANY - FEW)) <= MOST_OF_A_STEP_TO_BUILD


async def test_a_run_that_waits_keeps_few_objects_alive() -> None:
    """Those that the garbage collector looks at: it slows down all runs of a process that has many."""
    go_on = asyncio.Event()

    @step
    async def wait(ctx: StepContext) -> int:
        await go_on.wait()
        return 1

    chain = Pipeline("chain", {"first": nothing, "waits": wait}, {"waits": ["first"]})

    async def objects(runs: int) -> int:
        go_on.clear()
        tasks = [asyncio.create_task(chain.execute({})) for _ in range(runs)]
        for _ in range(20):
            await asyncio.sleep(0)
        gc.collect()
        count = len(gc.get_objects())
        go_on.set()
        await asyncio.gather(*tasks)
        return count

    few, many = await objects(FEW), await objects(MANY)
    assert round((many - few) / (MANY - FEW)) <= MOST_OBJECTS_OF_A_WAITING_RUN


def scopes() -> int:
    gc.collect()
    return sum(isinstance(one, Scope) for one in gc.get_objects())


async def test_a_result_keeps_the_scopes_of_units_only_where_something_was_spent() -> None:
    @step
    async def buys(ctx: StepContext) -> int:
        ctx.record_usage(model="search", cost_usd="0.01")
        return 1

    ids = names(FEW)
    chain = Pipeline("chain", {**dict.fromkeys(ids, nothing), "buys": buys}, {"buys": ids})
    graph = Graph(
        "chain",
        nodes={**dict.fromkeys(ids, nothing), "buys": buys},
        edges=[Edge(one, after) for one, after in pairwise([*ids, "buys"])],
    )
    before = scopes()
    of_steps = await chain.execute({})
    assert scopes() - before == len(("the run", "buys"))
    of_nodes = await graph.run()
    assert scopes() - before == 2 * len(("the run", "buys"))
    assert (of_steps.usage.steps["buys"].cost_microcents, of_steps.usage.steps["s0"].cost_microcents) == (
        10_000,
        0,
    )
    assert (of_nodes.usage.by_node["buys"].cost_microcents, of_nodes.usage.by_node["s0"].cost_microcents) == (
        10_000,
        0,
    )


async def bytes_held(visits: int, store: RunStore | None = None) -> tuple[int, int]:
    """Bytes that a loop of so many visits holds: in its result, and at most while it goes on."""

    @step
    async def count(ctx: StepContext) -> dict[str, int]:
        return {"n": ctx.get_input("n", int) + 1}

    graph = Graph(
        "loop",
        nodes={"count": Node(count, reads=["n"], writes=["n"]), "end": nothing},
        edges=[
            Edge("count", "count", when="conditional", condition=f"n < {visits}"),
            Edge("count", "end", when="always"),
        ],
        entry="count",
        max_steps=visits + 1,
        config=PipelineConfig(durability="async"),
    )
    gc.collect()
    tracemalloc.start()
    try:
        result = await graph.run({"n": 0}, store=store, run_id=str(visits))
        gc.collect()
        assert result.visits == {"count": visits, "end": 1}
        return tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()


async def assert_visits_hold_little(store: RunStore | None = None) -> None:
    few, more = [await bytes_held(visits, store) for visits in (FEWER_VISITS, MORE_VISITS)]
    for what, before, after in zip(("held", "at most"), few, more, strict=True):
        each = (after - before) / (MORE_VISITS - FEWER_VISITS)
        assert each < MOST_BYTES, f"{each:.0f} bytes of a visit, {what}"


@pytest.mark.slow
async def test_a_visit_that_is_over_holds_less_than_300_bytes() -> None:
    await assert_visits_hold_little()


@pytest.mark.slow
async def test_a_visit_that_is_over_and_on_record_holds_less_than_300_bytes(tmp_path: Path) -> None:
    await assert_visits_hold_little(SQLiteRunStore(tmp_path / "runs.db"))


async def test_what_was_packed_of_a_long_run_can_be_read() -> None:
    ids = names(3 * 4_000)
    chain = Pipeline("chain", dict.fromkeys(ids, nothing), {after: [one] for one, after in pairwise(ids)})
    result = await chain.execute({})
    assert list(result.usage.steps) == list(result.usage.timings) == ids
    assert [attempt.step for attempt in result.trace.attempts] == ids
    assert result.trace.outputs == dict.fromkeys(ids, 1)
    assert chain.replay(result.trace) is None
