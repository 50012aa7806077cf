"""A request whose cost nobody knows counts in budgets at its bound, and errors say so."""

from __future__ import annotations

import pytest
from pydantic_ai.exceptions import ModelAPIError

from fastroai import Budget, FastroAgent, budget_scope
from fastroai.errors import CostBudgetExceeded
from fastroai.testing import Fault, ModelServer, Reply


async def test_a_budget_that_a_lost_request_has_filled_says_that_nobody_knows_its_cost(
    server: ModelServer,
) -> None:
    server.script(Reply(fault=Fault.disconnect()))
    agent = FastroAgent(
        server.model("openai:gpt-5-mini"), retries=0, request_retries=0, model_settings={"max_tokens": 400}
    )
    with pytest.raises(CostBudgetExceeded) as stopped:
        async with budget_scope(Budget(usd="0.001")):
            with pytest.raises(ModelAPIError):
                await agent.run("hi")
            await agent.run("hi")
    stop = stopped.value
    assert (stop.usage.cost_usd, stop.usage.cost_complete) == (0, False)
    assert stop.uncertain == stop.actual_microcents > 0
    used = f"${stop.actual_usd:f}".rstrip("0")
    assert f"{used} of $0.001 counts as spent, all of it for requests whose cost is not known" in str(stop)
