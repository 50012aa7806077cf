"""A budget stops a run, and an answer that was paid for before is in its result, with and without a store."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.agents import paid_agent
from support.patience import PATIENCE

from fastroai import Budget, CostBudgetExceeded, Pipeline, PipelineConfig, StepContext, step
from fastroai.graphs import Edge, Graph, Node
from fastroai.store import SQLiteRunStore


class SlowStore(SQLiteRunStore):
    """Takes its time for each entry, as one over a network does."""

    async def append(self, *args: Any, **options: Any) -> Any:
        await asyncio.sleep(0.01)
        return await super().append(*args, **options)


@pytest.fixture(params=["no store", "slow store"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SQLiteRunStore | None:
    return SlowStore(tmp_path / "runs.db") if request.param == "slow store" else None


def cheap() -> Any:
    """What it leaves of the budget is too little for the dear one, which waits until then."""

    async def think(prompt: str) -> None:
        await asyncio.sleep(0.05)

    return paid_agent(40, answer=lambda prompt: "paid for", before=think, model_name="cheap").as_step("ask")


@step
async def dear(ctx: StepContext) -> str:
    return (await ctx.run(paid_agent(70, model_name="dear"), "ask")).output


@step
async def begin(ctx: StepContext) -> str:
    return "begun"


async def test_in_a_graph_it_is_in_memory(store: SQLiteRunStore | None) -> None:
    graph = Graph(
        "g",
        nodes={"begin": begin, "cheap": Node(cheap(), writes=["answer"]), "dear": dear, "end": begin},
        edges=[Edge("begin", "cheap"), Edge("begin", "dear"), Edge("cheap", "end"), Edge("dear", "end")],
        budget=Budget(microcents=100),
    )
    for number in range(5):
        result = await graph.run(run_id=f"r{number}", store=store)
        assert (result.status, result.usage.cost_microcents) == ("budget_exceeded", 40)
        assert result.memory["answer"] == "paid for"


async def test_in_a_pipeline_it_is_among_the_outputs_and_is_not_paid_again(
    store: SQLiteRunStore | None,
) -> None:
    pipeline: Pipeline[Any, Any] = Pipeline(
        "p",
        {"cheap": cheap(), "dear": dear, "end": begin},
        {"end": ["cheap", "dear"]},
        config=PipelineConfig(budget=Budget(microcents=100)),
    )
    for number in range(5):
        with pytest.raises(CostBudgetExceeded) as caught:
            await pipeline.execute(run_id=f"r{number}", store=store)
        assert caught.value.step_outputs == {"cheap": "paid for"}
        assert caught.value.usage.cost_microcents == 40


async def test_a_step_that_has_its_answer_does_not_go_on_with_other_things(
    store: SQLiteRunStore | None,
) -> None:
    done: list[str] = []
    agent = paid_agent(40, before=lambda prompt: asyncio.sleep(0.05), model_name="cheap")

    @step
    async def answers_and_dawdles(ctx: StepContext) -> str:
        done.append((await ctx.run(agent, "ask")).output)
        await asyncio.sleep(60)
        return "never"

    pipeline: Pipeline[Any, Any] = Pipeline(
        "p",
        {"dawdles": answers_and_dawdles, "dear": dear},
        output_step="dear",
        config=PipelineConfig(budget=Budget(microcents=100)),
    )
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(CostBudgetExceeded):
            await pipeline.execute(run_id="r", store=store)
    assert done == ["answer to ask"]
