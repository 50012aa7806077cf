"""Budgets of pipelines, steps and calls, in both of their forms."""

from __future__ import annotations

from decimal import Decimal

import pytest
from support.agents import paid_agent

from fastroai import (
    AgentConfig,
    Budget,
    ConfigurationError,
    CostBudgetExceeded,
    CostCalculator,
    Pipeline,
    PipelineConfig,
    StepConfig,
    StepContext,
    StepExecutionError,
    step,
    usage_of,
)
from fastroai.usage.limits import Limits


@step
async def three_calls(ctx: StepContext) -> int:
    agent = paid_agent(100)
    for _ in range(3):
        await ctx.run(agent, "go")
    return 3


@pytest.mark.parametrize(
    "config",
    [
        StepConfig(cost_budget=200),
        StepConfig(budget=Budget(microcents=200)),
        StepConfig(budget=Budget(usd="0.0002")),
    ],
    ids=["microcents", "budget", "dollars"],
)
async def test_a_budget_of_a_step_is_that_steps_failure(config: StepConfig) -> None:
    pipeline = Pipeline("p", {"calls": three_calls}, step_configs={"calls": config})
    with pytest.raises(StepExecutionError) as caught:
        await pipeline.execute()
    stop = caught.value.original_error
    assert isinstance(stop, CostBudgetExceeded)
    assert (stop.step_id, stop.budget_microcents, stop.actual_microcents) == ("calls", 200, 200)
    assert stop.scope_path == ("p", "calls")
    assert caught.value.usage.cost_usd == Decimal("0.0002")


async def test_a_budget_around_a_nested_pipeline_stops_through_it() -> None:
    inner = Pipeline("inner", {"calls": three_calls})
    outer = Pipeline("outer", {"nested": inner.as_step()}, config=PipelineConfig(cost_budget=100))
    with pytest.raises(CostBudgetExceeded) as caught:
        await outer.execute()
    assert caught.value.scope_path == ("outer",)


async def test_an_agents_own_budget_comes_from_its_config_or_its_options() -> None:
    for agent in (
        paid_agent(100, budget=Budget(microcents=100)),
        paid_agent(100, cost_budget=100),
        paid_agent(100, config=AgentConfig(budget=Budget(microcents=100))),
    ):
        response = await agent.run("go")  # the first request finds the budget unused
        assert response.cost_microcents == 100
        assert agent._dispatcher.limits == Limits((Budget(microcents=100),))


@pytest.mark.parametrize("of", [StepConfig, PipelineConfig, AgentConfig])
def test_a_budget_is_given_in_one_form(of: type) -> None:
    with pytest.raises(ConfigurationError, match="no value, because budget="):
        of(budget=Budget(usd=1), cost_budget=5)


async def test_recorded_spending_can_bring_its_own_prices_and_counts_against_budgets() -> None:
    prices = CostCalculator(pricing_overrides={"searches": {"input_per_mtok": 1, "output_per_mtok": 0}})

    @step(cost_budget=50)
    async def search(ctx: StepContext) -> None:
        record = ctx.record_usage(model="searches", input_tokens=60, cost_calculator=prices)
        assert record.cost_usd == Decimal("0.00006")
        await ctx.run(paid_agent(1), "go")

    with pytest.raises(
        StepExecutionError, match=r"budget of 'p / search' reached .*: \$0\.00006 of \$0\.00005"
    ) as caught:
        await Pipeline("p", {"search": search}).execute()
    spent = usage_of(caught.value)
    assert spent is not None
    assert spent.cost_microcents == 60


async def test_a_budget_of_a_call_is_for_all_of_its_attempts() -> None:
    agent = paid_agent(100)
    attempts = 0

    @step
    async def ask(ctx: StepContext) -> None:
        await ctx.run(failing, "go", cost_budget=400, retries=5, retry_delay=0)

    async def fail_after_paying(dispatch: object) -> None:
        nonlocal attempts
        attempts += 1
        await agent.run("paid for")
        raise ValueError("and failed")  # in the model: charged at its bound

    failing = paid_agent(100, before=fail_after_paying)
    with pytest.raises(StepExecutionError) as caught:
        await Pipeline("p", {"ask": ask}).execute()
    stop = caught.value.original_error
    assert isinstance(stop, CostBudgetExceeded)
    assert (attempts, stop.actual_microcents) == (2, 400)
