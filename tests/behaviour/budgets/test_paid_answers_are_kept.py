"""Where a budget is used up, what was paid for from it is not thrown away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.agents import paid_agent
from support.patience import PATIENCE

from fastroai import CostBudgetExceeded, Graph, Node, Pipeline, PipelineConfig, StepContext, step
from fastroai.graphs import Edge

BUDGET = PipelineConfig(cost_budget=150)


def waiting(prompt: object) -> Any:
    return asyncio.sleep(0.01)


async def test_the_answer_whose_price_stops_a_pipeline_is_among_its_outputs() -> None:
    agent = paid_agent(100, before=waiting)
    steps = {"first": agent.as_step("1"), "second": agent.as_step("2")}
    with pytest.raises(CostBudgetExceeded) as raised:
        await Pipeline("p", steps, output_step="first", config=BUDGET).execute()
    assert raised.value.step_outputs == {"first": "answer to 1"}


async def test_the_answer_whose_price_stops_a_graph_is_in_its_memory() -> None:
    @step
    async def begin(ctx: StepContext[Any]) -> str:
        return "begun"

    agent = paid_agent(100, before=waiting)
    graph = Graph(
        "g",
        nodes={
            "begin": begin,
            "first": Node(agent.as_step("1"), writes=["one"]),
            "second": agent.as_step("2"),
        },
        edges=[Edge("begin", "first"), Edge("begin", "second")],
        config=BUDGET,
    )
    result = await graph.run()
    assert (result.status, result.outputs) == ("budget_exceeded", {"begin": "begun", "first": "answer to 1"})
    assert result.memory["one"] == "answer to 1"


async def test_what_is_under_way_when_a_budget_is_used_up_is_cancelled_all_the_same() -> None:
    ended: list[str] = []

    @step
    async def slow(ctx: StepContext[Any]) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("slow")

    agent = paid_agent(100, before=waiting)
    steps = {"first": agent.as_step("1"), "second": agent.as_step("2"), "slow": slow}
    with pytest.raises(CostBudgetExceeded):
        await asyncio.wait_for(Pipeline("p", steps, output_step="first", config=BUDGET).execute(), PATIENCE)
    assert ended == ["slow"]
