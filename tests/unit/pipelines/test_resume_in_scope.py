"""A run that is resumed under a budget around it: that one counts what is spent under it, once."""

from __future__ import annotations

from decimal import Decimal

import pytest

from fastroai import Budget, MemoryRunStore, Pipeline, StepContext, StepExecutionError, budget_scope, step


async def test_a_scope_around_execute_and_resume_counts_each_cost_once() -> None:
    store, fail = MemoryRunStore(), True

    @step
    async def pay(ctx: StepContext) -> int:
        ctx.record_usage(model="search", cost_usd="0.002")
        if fail:
            raise ValueError("not yet")
        return 1

    pipeline = Pipeline("work", {"pay": pay})
    async with budget_scope(Budget(usd=1)) as scope:
        with pytest.raises(StepExecutionError):
            await pipeline.execute(run_id="r", store=store)
        fail = False
        result = await pipeline.resume("r", store=store)
    assert result.usage.cost_usd == Decimal("0.004"), "both processes of the run"
    assert scope.usage.cost_usd == Decimal("0.004"), "both parts, as they were made in it"
    async with budget_scope(Budget(usd=1)) as later:
        again = await pipeline.resume("r", store=store)
    assert again.usage.cost_usd == Decimal("0.004")
    assert later.usage.cost_usd == 0, "nothing was spent in it"
