"""What users do by mistake, and what they then read."""

from __future__ import annotations

import asyncio

import pytest
from support.agents import paid_agent

from fastroai import ConfigurationError, Pipeline, StepContext, step


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
@pytest.mark.parametrize("steps", [1, 2])
def test_an_exit_in_a_step_leaves_a_sync_run_at_once(error: BaseException, steps: int) -> None:
    @step
    async def leaves(ctx: StepContext) -> None:
        await asyncio.sleep(0)
        raise error

    @step
    async def stays(ctx: StepContext) -> None:
        await asyncio.Event().wait()

    pipeline = Pipeline(
        "p", dict(list({"leaves": leaves, "stays": stays}.items())[:steps]), output_step="leaves"
    )
    with pytest.raises(type(error)):
        pipeline.execute_sync()
    # the shared background loop is still there for others
    assert paid_agent(1).run_sync("hello").cost_microcents == 1


def test_a_cost_budget_in_dollars_is_told_of_microcents() -> None:
    with pytest.raises(ConfigurationError, match=r"microcents .* for dollars: budget=Budget\(usd="):
        step(cost_budget=0.5)  # type: ignore[call-overload]
