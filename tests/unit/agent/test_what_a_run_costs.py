"""What FastroAgent adds to a run of PydanticAI's agent, as counts of the functions that it calls."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Callable

import httpx2
import pytest
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider
from support.calls_made import python_calls

from fastroai import Budget, FastroAgent, MemoryRunStore, Pipeline, SpendLimit, StepContext, step
from fastroai.store import MemorySpendStore

MOST_ADDED = 200
MOST_OF_A_BUDGET = 970
MOST_OF_A_SPEND_LIMIT = 1_180
MOST_OF_A_STORE = 2_560
"""Of a pipeline with a memory store whose step calls the agent: 2,524 to 2,537, which differ by hash seed."""
MOST_KB_OF_AN_IDLE_AGENT = 9.5


pytestmark = pytest.mark.usefixtures("unwatched")


async def answer(request: httpx2.Request) -> httpx2.Response:
    await asyncio.sleep(0)  # as any provider, it does not answer in the same turn of the event loop
    body = {
        "id": "a",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-5-mini",
        "service_tier": "default",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Paris"}}
        ],
        "usage": {"prompt_tokens": 40, "completion_tokens": 5, "total_tokens": 45},
    }
    return httpx2.Response(200, json=body)


@pytest.fixture
def model() -> OpenAIChatModel:
    client = AsyncOpenAI(
        api_key="none",
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=httpx2.MockTransport(answer)),
    )
    return OpenAIChatModel("gpt-5-mini", provider=OpenAIProvider(openai_client=client))


async def added(model: OpenAIChatModel, limit: Budget | SpendLimit | None) -> int:
    bare = Agent(model, model_settings={"max_tokens": 100})
    ours = FastroAgent(model, max_tokens=100, budget=limit)
    return await python_calls(lambda: ours.run("hi")) - await python_calls(lambda: bare.run("hi"))


async def test_an_agent_adds_few_function_calls_to_one_of_pydantic_ai(model: OpenAIChatModel) -> None:
    assert await added(model, None) <= MOST_ADDED


async def test_a_budget_of_its_own_adds_few_function_calls(model: OpenAIChatModel) -> None:
    assert await added(model, Budget(usd=1_000, requests=1_000_000)) <= MOST_OF_A_BUDGET


async def test_a_spend_limit_adds_few_more(model: OpenAIChatModel) -> None:
    limit = SpendLimit(usd=1_000, window="total", store=MemorySpendStore())
    assert await added(model, limit) <= MOST_OF_A_SPEND_LIMIT


async def test_a_store_adds_few_function_calls(model: OpenAIChatModel) -> None:
    bare, ours = Agent(model, model_settings={"max_tokens": 100}), FastroAgent(model, max_tokens=100)

    @step
    async def ask(ctx: StepContext) -> str:
        return (await ctx.run(ours, "hi")).output

    pipeline, store, numbers = Pipeline("p", {"ask": ask}), MemoryRunStore(), iter(range(100))
    stored = await python_calls(lambda: pipeline.execute(run_id=f"r{next(numbers)}", store=store))
    assert stored - await python_calls(lambda: bare.run("hi")) <= MOST_OF_A_STORE


def test_an_idle_agent_is_small() -> None:
    model = TestModel()

    def bytes_of(make: Callable[[], object], count: int = 100) -> float:
        kept = [make()]
        gc.collect()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            kept += [make() for _ in range(count)]
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        return (after - before) / count

    assert bytes_of(lambda: FastroAgent(model)) <= MOST_KB_OF_AN_IDLE_AGENT * 1_024
