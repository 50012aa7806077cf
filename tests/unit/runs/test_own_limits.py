"""The budget that a caller gives a run: it adds to the others, and a resumed run keeps it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from fastroai import Graph, Pipeline, PipelineConfig, StepContext, flow, spend, step
from fastroai.errors import BudgetExceeded, CostBudgetExceeded
from fastroai.pipelines import BasePipeline
from fastroai.store import MemoryRunStore, MemorySpendStore
from fastroai.usage import Budget, ModelFallback, SpendLimit

FIVE = PipelineConfig(budget=Budget(usd=5))
TEN_CENTS = Budget(usd="0.10", fallback=ModelFallback(at=0.5, use="openai:gpt-5-nano"), warn_at=(0.5, 0.9))


@step
async def buy(ctx: StepContext) -> str:
    async with ctx.spend("0.06") as purchase:
        purchase.settle()
    return "bought"


@flow(config=FIVE)
async def flown() -> str:
    async with spend("0.12") as purchase:
        purchase.settle()
    return "bought"


class OneWay(BasePipeline[Any, Any, Any]):
    async def route(self, inputs: Any, deps: Any) -> str:
        return "only"


def pipeline(config: PipelineConfig = FIVE) -> Pipeline[Any, Any]:
    return Pipeline("p", {"one": buy, "two": buy}, dependencies={"two": ["one"]}, config=config)


def router(config: PipelineConfig = FIVE) -> OneWay:
    routed = OneWay("r", config=config)
    routed.register_pipeline("only", pipeline(PipelineConfig()))
    return routed


@pytest.mark.parametrize("door", [pipeline(), router(), flown], ids=["pipeline", "router", "flow"])
async def test_the_budget_of_a_run_holds_beside_that_of_its_config(door: Any) -> None:
    assert await door.run(budget=Budget(usd=1))
    with pytest.raises(CostBudgetExceeded) as caught:
        await door.run(budget=Budget(usd="0.10"))
    assert caught.value.budget_microcents == 100_000


async def test_the_budget_of_a_run_of_a_graph_holds_beside_that_of_the_graph() -> None:
    graph: Graph[Any, Any] = Graph("g", nodes={"only": buy}, edges=[], budget=Budget(usd=5))
    assert (await graph.run()).status == "finished"
    assert (await graph.run(budget=Budget(usd="0.01"))).status == "budget_exceeded"


async def test_a_resumed_run_keeps_its_budget_until_it_gets_another_one() -> None:
    store, paid = MemoryRunStore(), pipeline()
    with pytest.raises(BudgetExceeded):
        await paid.execute(run_id="r", store=store, budget=TEN_CENTS)
    with pytest.raises(CostBudgetExceeded) as caught:
        await paid.resume("r", store=store)
    assert caught.value.budget_microcents == 100_000
    result = await paid.resume("r", store=store, budget=Budget(usd="0.12"))
    assert result.usage.cost_usd == Decimal("0.12")


async def test_the_config_of_a_router_that_is_a_step_bounds_it() -> None:
    bounded = router(PipelineConfig(budget=Budget(usd="0.10")))
    with pytest.raises(Exception, match=r"\$0\.06 of \$0\.10 is spent"):
        await Pipeline("outer", {"routed": bounded.as_step()}).execute()


async def test_a_flows_own_budget_does_not_lift_the_shared_limit_of_its_config() -> None:
    limit = SpendLimit(usd="0.10", store=MemorySpendStore())

    @flow(config=PipelineConfig(budget=limit), budget=Budget(usd=1))
    async def both() -> str:
        async with spend("0.06") as purchase:
            purchase.settle()
        return "bought"

    assert await both() == "bought"
    with pytest.raises(BudgetExceeded):
        await both()
    assert (await limit.status()).spent_usd == Decimal("0.06")
