"""Hosts of providers that bill more for a region: the account and the budgets know it."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from fastroai import Budget, CostCalculator, FastroAgent, budget_scope
from fastroai.usage import Endpoint, UnpricedModelWarning

LIST_USD = Decimal("0.00605")
"""20 tokens of input at 2.50 dollars a million, and 400 of output at 15."""


def answer(request: httpx2.Request) -> httpx2.Response:
    """As long an answer as it may be."""
    tokens = json.loads(request.content)["max_completion_tokens"]
    body: dict[str, Any] = {
        "id": "c",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": "gpt-5.4",
        "service_tier": "default",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ok"}}],
        "usage": {"prompt_tokens": 20, "completion_tokens": tokens, "total_tokens": 20 + tokens},
    }
    return httpx2.Response(200, json=body)


def agent_at(host: str, calculator: CostCalculator | None = None) -> FastroAgent[None, str]:
    client = AsyncOpenAI(
        api_key="none",
        base_url=f"https://{host}/v1",
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=httpx2.MockTransport(answer)),
    )
    model = OpenAIChatModel("gpt-5.4", provider=OpenAIProvider(openai_client=client))
    settings: Any = {"service_tier": "default"}
    return FastroAgent(model, max_tokens=400, model_settings=settings, cost_calculator=calculator)


async def test_a_budget_holds_where_a_region_costs_more() -> None:
    agent = agent_at("eu.api.openai.com")
    async with budget_scope(Budget(usd="0.1")) as scope:
        answers = await asyncio.gather(*(agent.run("?") for _ in range(40)), return_exceptions=True)
    assert 10 < sum(not isinstance(each, BaseException) for each in answers) < 40
    usage = scope.usage
    list_usd = usage.input_tokens * Decimal("2.5e-6") + usage.output_tokens * Decimal("15e-6")
    assert usage.cost_usd == list_usd * Decimal("1.1") <= Decimal("0.1")
    assert usage.cost_complete


async def test_a_premium_that_nothing_tells_leaves_the_cost_open_up_to_the_highest() -> None:
    agent = agent_at("acme.openai.azure.com")
    with pytest.warns(UnpricedModelWarning, match=r"regional pricing of acme\.openai\.azure\.com"):
        response = await agent.run("?", budget=Budget(usd="0.1"))
    usage = response.usage
    assert (usage.cost_usd, usage.cost_complete) == (LIST_USD, False)
    assert usage.uncertain_usd == LIST_USD * Decimal("0.2")


async def test_the_owner_of_a_deployment_says_what_it_costs() -> None:
    endpoints = {"https://acme.openai.azure.com": Endpoint(regional_factor="1.1")}
    response = await agent_at("acme.openai.azure.com", CostCalculator(endpoints=endpoints)).run("?")
    assert response.cost_usd == LIST_USD * Decimal("1.1")
    assert response.usage.cost_complete
