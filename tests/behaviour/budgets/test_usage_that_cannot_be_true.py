"""A gateway that reports impossible token counts: budgets hold all the same."""

from __future__ import annotations

import asyncio
import json
import warnings
from decimal import Decimal
from typing import Any

import httpx2
import pytest
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from fastroai import Budget, BudgetExceeded, FastroAgent, SpendLimit, budget_scope
from fastroai.store import MemorySpendStore

IMPOSSIBLE: list[dict[str, Any]] = [
    {"prompt_tokens": 1, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 5_000}},
    {"prompt_tokens": -5_000_000, "completion_tokens": 1},
    {"prompt_tokens": 1, "completion_tokens": -5_000_000},
    {"prompt_tokens": 10**30, "completion_tokens": 1},
    {"prompt_tokens": 1, "completion_tokens": 1, "completion_tokens_details": {"audio_tokens": 9}},
    {"prompt_tokens": 1, "completion_tokens": 1, "completion_tokens_details": {"reasoning_tokens": 99}},
    {"prompt_tokens": 1, "completion_tokens": 1, "completion_tokens_details": {"reasoning_tokens": -5}},
    {"prompt_tokens": 5, "completion_tokens": 0},
    {"prompt_tokens": 0, "completion_tokens": 5},
]
UNREADABLE: list[dict[str, Any]] = [
    {"input_tokens": 60, "output_tokens": None},
    {"input_tokens": -60, "output_tokens": 300},
    {"output_tokens": 300},
]
"""Usage of the Responses API of which PydanticAI passes on nothing but the details."""
BUDGET = Decimal("0.002")

pytestmark = [
    pytest.mark.filterwarnings("ignore::fastroai.usage.UnpricedModelWarning"),
    pytest.mark.filterwarnings("ignore:Failed to extract usage"),  # PydanticAI's, of negative counts
]


class Gateway:
    """Answers every request with the same usage, and counts them."""

    def __init__(self, usage: dict[str, Any]) -> None:
        self.requests = 0
        self._usage = {"total_tokens": 2, **usage}

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests += 1
        body = {
            "id": f"chatcmpl-{self.requests}",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-4.1-mini",
            "choices": [
                {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}
            ],
            "usage": self._usage,
        }
        return httpx2.Response(200, content=json.dumps(body), headers={"content-type": "application/json"})

    def provider(self) -> OpenAIProvider:
        client = httpx2.AsyncClient(transport=httpx2.MockTransport(self))
        return OpenAIProvider(api_key="key", http_client=client)

    def agent(self, **options: Any) -> FastroAgent[None, str]:
        model = OpenAIChatModel("gpt-4.1-mini", provider=self.provider())
        settings: Any = {"max_tokens": 100, "service_tier": "default"}
        return FastroAgent(model, model_settings=settings, **options)


class ResponsesGateway(Gateway):
    """The same in OpenAI's other format."""

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/input_tokens"):
            return httpx2.Response(404, json={"error": {"message": "nothing is counted here"}})
        self.requests += 1
        text = {"type": "output_text", "text": "hi", "annotations": []}
        body = {
            "id": f"resp_{self.requests}",
            "object": "response",
            "created_at": 1,
            "model": "gpt-4.1-mini",
            "status": "completed",
            "output": [
                {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]}
            ],
            "usage": self._usage | {"output_tokens_details": {"reasoning_tokens": 64}},
        }
        return httpx2.Response(200, json=body)

    def agent(self, **options: Any) -> FastroAgent[None, str]:
        model = OpenAIResponsesModel("gpt-4.1-mini", provider=self.provider())
        settings: Any = {"max_tokens": 100, "service_tier": "default"}
        return FastroAgent(model, model_settings=settings, **options)


TIMES = 20
"""Requests at once, of which no budget here pays for all."""


async def ask_until_stopped(agent: FastroAgent[None, str]) -> list[BaseException]:
    answers = await asyncio.gather(*(agent.run("q") for _ in range(TIMES)), return_exceptions=True)
    return [answer for answer in answers if isinstance(answer, BaseException)]


@pytest.mark.parametrize("usage", IMPOSSIBLE, ids=repr)
async def test_a_budget_of_money_charges_the_bound_of_each_request(usage: dict[str, Any]) -> None:
    gateway = Gateway(usage)
    async with budget_scope(Budget(usd=BUDGET)) as scope:
        stops = await ask_until_stopped(gateway.agent())
    assert stops
    assert all(isinstance(stop, BudgetExceeded) for stop in stops)
    assert gateway.requests + len(stops) == TIMES
    bounds = [record.bound_usd for record in scope.records]
    assert len(bounds) == gateway.requests
    assert scope.usage.committed_usd == sum(bound or 0 for bound in bounds)
    assert BUDGET * Decimal("0.9") < scope.usage.committed_usd <= BUDGET, "it is used, and not crossed"
    assert (scope.usage.cost_usd, scope.usage.unmeasured_requests) == (0, gateway.requests)
    assert not scope.usage.cost_complete


@pytest.mark.parametrize("usage", UNREADABLE, ids=repr)
async def test_details_alone_are_no_usage(usage: dict[str, Any]) -> None:
    gateway = ResponsesGateway(usage)
    async with budget_scope(Budget(usd=BUDGET)) as scope:
        assert await ask_until_stopped(gateway.agent())
    assert BUDGET * Decimal("0.9") < scope.usage.committed_usd <= BUDGET
    assert (scope.usage.cost_usd, scope.usage.unmeasured_requests) == (0, gateway.requests)


@pytest.mark.parametrize("usage", IMPOSSIBLE, ids=repr)
async def test_a_budget_of_tokens_charges_the_bound_of_each_request(usage: dict[str, Any]) -> None:
    gateway = Gateway(usage)
    async with budget_scope(Budget(tokens=2_000)) as scope:
        assert await ask_until_stopped(gateway.agent())
    assert 0 < gateway.requests < TIMES
    assert scope.usage.total_tokens == 0, "no impossible count is added to a sum"
    assert 0 < scope.usage.committed_tokens <= 2_000


@pytest.mark.parametrize("usage", IMPOSSIBLE, ids=repr)
async def test_a_spend_limit_charges_the_bound_of_each_request(usage: dict[str, Any]) -> None:
    gateway = Gateway(usage)
    limit = SpendLimit(usd=BUDGET, window="total", key="k", store=MemorySpendStore())
    assert await ask_until_stopped(gateway.agent(budget=limit))
    status = await limit.status()
    assert 0 < status.spent_usd <= BUDGET
    assert gateway.requests < TIMES


async def test_the_warning_says_what_is_wrong_with_the_usage() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        response = await Gateway(IMPOSSIBLE[0]).agent().run("q")
    assert any("cache_read_tokens exceeds input_tokens" in str(each.message) for each in caught)
    assert response.output == "hi"
    assert not response.cost_complete
