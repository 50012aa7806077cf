"""What the floor of every run adds to a unit that does nothing: function calls, and what it keeps."""

import gc
from itertools import pairwise

import pytest
from support.calls_made import python_calls

from fastroai.graphs import Edge, Graph
from fastroai.pipelines import Pipeline, StepContext, step
from fastroai.runtime import Scope

FEW, MANY = 50, 150

MOST_OF_A_STEP = 24
MOST_OF_A_NODE = 38


@step
async def nothing(ctx: StepContext) -> int:
    return 1


@pytest.fixture(autouse=True)
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the suite wraps around every run calls functions too."""
    monkeypatch.undo()


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
