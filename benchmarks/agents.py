"""What `FastroAgent` adds to a bare PydanticAI agent, and what the price of a response takes."""

from __future__ import annotations

import asyncio
import gc
import tempfile
import tracemalloc
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import count
from pathlib import Path

import httpx2
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage
from support.calls_made import python_calls

from benchmarks.measure import Row, Run, function_calls, medians
from fastroai import Budget, MemoryRunStore, Pipeline, SpendLimit, SQLiteRunStore, StepContext, step
from fastroai.agent import FastroAgent
from fastroai.store import MemorySpendStore
from fastroai.usage import CostCalculator

CHUNKS = 200
RESPONSES = 2_000
MOST_CALLS = 1.03
MOST_CALLS_OF_A_WRAPPED_AGENT = 1.06
MOST_MICROSECONDS = 60


class Nothing(AbstractCapability[object]):
    """A capability that overrides no hook: what PydanticAI itself spends on having one."""


async def agent_run() -> AsyncIterator[Row]:
    bare = Agent(TestModel())
    with_capability = Agent(TestModel(), capabilities=[Nothing()])
    ours = FastroAgent(TestModel())
    took = await medians(
        {
            "bare": lambda: bare.run("hi"),
            "capability": lambda: with_capability.run("hi"),
            "ours": lambda: ours.run("hi"),
        },
        rounds=300,
        warm_up=20,
    )
    ratio = took["ours"] / took["bare"]
    yield Row(
        "agent run, metered and priced, beside pydantic_ai.Agent.run",
        f"{took['ours'] * 1e6:.0f} µs",
        f"{took['bare'] * 1e6:.0f} µs",
        ratio,
        "≤ 1.05 x",
        ratio <= 1.05,
    )
    yield Row(
        "  … beside an agent with a capability that does nothing",
        f"{took['ours'] * 1e6:.0f} µs",
        f"{took['capability'] * 1e6:.0f} µs",
        took["ours"] / took["capability"],
    )


async def agent_calls() -> AsyncIterator[Row]:
    """The same as a count, which does not depend on what else the machine does.

    The agent in `FastroAgent(agent=...)` has no meter, so each run brings it. PydanticAI sets up a run anew
    for any capability that comes with it, so what we add is told beside a run that brings an idle one.
    """
    nothing, bare = Nothing(), Agent(TestModel())
    idle = await function_calls(partial(Agent(TestModel(), capabilities=[nothing]).run, "hi"))
    floor = await function_calls(lambda: bare.run("hi", capabilities=[nothing]))
    ours = await function_calls(partial(FastroAgent(TestModel()).run, "hi"))
    wrapped = await function_calls(partial(FastroAgent(agent=bare).run, "hi"))
    what = "function calls of a run of"
    yield Row(
        f"{what} FastroAgent(model), beside an agent with a capability that does nothing",
        f"{ours:.0f}",
        f"{idle:.0f}",
        ours / idle,
        f"≤ {MOST_CALLS} x",
        ours <= MOST_CALLS * idle,
    )
    yield Row(
        f"{what} FastroAgent(agent=...), beside a run that brings a capability that does nothing",
        f"{wrapped:.0f}",
        f"{floor:.0f}",
        wrapped / floor,
        f"≤ {MOST_CALLS_OF_A_WRAPPED_AGENT} x",
        wrapped <= MOST_CALLS_OF_A_WRAPPED_AGENT * floor,
    )
    yield Row(
        "  … beside an agent that was built with one",
        f"{wrapped:.0f}",
        f"{idle:.0f}",
        wrapped / idle,
    )
    yield Row(
        "  … of which PydanticAI's own, for a capability that comes with each run",
        f"{floor:.0f}",
        f"{idle:.0f}",
        floor / idle,
    )


def response(number: int) -> ModelResponse:
    return ModelResponse(
        parts=[TextPart("An answer.")],
        usage=RequestUsage(
            input_tokens=1_000 + number,
            output_tokens=100 + number,
            cache_read_tokens=500,
            output_reasoning_tokens=20,
            details={"reasoning_tokens": 20},
        ),
        model_name="gpt-5-mini-2025-08-07",
        provider_name="openai",
        provider_url="https://api.openai.com/v1/",
        provider_details={"service_tier": "default", "finish_reason": "completed"},
        finish_reason="stop",
    )


async def limited_calls() -> AsyncIterator[Row]:
    """What limits and stores add, as counts of functions in Python; the provider answers in the next turn."""
    model = answering_model()
    bare = await python_calls(partial(Agent(model, model_settings={"max_tokens": 100}).run, "hi"))
    with tempfile.TemporaryDirectory() as folder:
        sqlite = SQLiteRunStore(Path(folder) / "runs.db")
        runs: dict[str, tuple[Run, int | None]] = {
            "FastroAgent": (partial(FastroAgent(model, max_tokens=100).run, "hi"), None),
            "a budget of its own": (limited_run(model, Budget(usd=1_000)), 600),
            "a spend limit": (
                limited_run(model, SpendLimit(usd=1_000, window="total", store=MemorySpendStore())),
                None,
            ),
            "a pipeline on a memory store": (stored_run(model, MemoryRunStore()), 1_500),
            "a pipeline on SQLite": (stored_run(model, sqlite), 3_000),
        }
        for what, (run, aim) in runs.items():
            ours = await python_calls(run)
            yield Row(
                f"Python calls that {what} adds to those of pydantic_ai.Agent.run",
                f"{ours - bare:,}",
                f"{bare:,}",
                ours / bare,
                "" if aim is None else f"≤ {aim:,}",
                None if aim is None else ours - bare <= aim,
            )
        await sqlite.aclose()


def limited_run(model: Model, limit: Budget | SpendLimit) -> Run:
    return partial(FastroAgent(model, max_tokens=100, budget=limit).run, "hi")


def stored_run(model: Model, store: MemoryRunStore | SQLiteRunStore) -> Run:
    agent, numbers = FastroAgent(model, max_tokens=100), count()

    @step
    async def ask(ctx: StepContext) -> str:
        return (await ctx.run(agent, "hi")).output

    pipeline = Pipeline("p", {"ask": ask})
    return lambda: pipeline.execute(run_id=f"r{next(numbers)}", store=store)


def answering_model() -> Model:
    async def answer(request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(0)
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "Paris"},
        }
        usage = {"prompt_tokens": 40, "completion_tokens": 5, "total_tokens": 45}
        body = {"id": "a", "object": "chat.completion", "created": 1, "model": "gpt-5-mini"}
        return httpx2.Response(
            200, json={**body, "service_tier": "default", "choices": [choice], "usage": usage}
        )

    client = AsyncOpenAI(
        api_key="none",
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=httpx2.MockTransport(answer)),
    )
    return OpenAIChatModel("gpt-5-mini", provider=OpenAIProvider(openai_client=client))


async def idle_agents(number: int = 300) -> AsyncIterator[Row]:
    """What an agent keeps in memory that nobody has run."""
    model = TestModel()

    def kilobytes(make: Callable[[], object]) -> float:
        kept = [make()]
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        kept += [make() for _ in range(number)]
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return (after - before) / number / 1024

    ours, bare = kilobytes(lambda: FastroAgent(model)), kilobytes(lambda: Agent(model))
    yield Row(
        "an idle agent, beside pydantic_ai.Agent",
        f"{ours:.1f} kB",
        f"{bare:.1f} kB",
        ours / bare,
        "≤ 7 kB",
        ours <= 7,
    )


async def priced_response() -> AsyncIterator[Row]:
    calculator, responses = CostCalculator(), [response(number) for number in range(RESPONSES)]
    assert calculator.price(responses[0]) == responses[0].cost().total_price

    async def ours() -> None:
        for each in responses:
            calculator.cost_of(each, model="gpt-5-mini", provider="openai")

    async def bare() -> None:
        for each in responses:
            each.cost()

    took = await medians({"ours": ours, "bare": bare}, rounds=10)
    each = took["ours"] / RESPONSES * 1e6
    yield Row(
        "cost of a response by list price, beside ModelResponse.cost()",
        f"{each:.0f} µs",
        f"{took['bare'] / RESPONSES * 1e6:.0f} µs",
        took["ours"] / took["bare"],
        f"≤ {MOST_MICROSECONDS} µs",
        each <= MOST_MICROSECONDS,
    )


async def stream_chunks(messages: object, info: AgentInfo) -> AsyncIterator[str]:
    for _ in range(CHUNKS):
        yield "word "


async def streamed_chunk() -> AsyncIterator[Row]:
    bare = Agent(FunctionModel(stream_function=stream_chunks))
    ours = FastroAgent(FunctionModel(stream_function=stream_chunks))

    async def bare_stream() -> None:
        async with bare.run_stream("hi") as stream:
            async for _ in stream.stream_text(delta=True, debounce_by=None):
                pass

    async def our_stream() -> None:
        async for _ in ours.run_stream("hi"):
            pass

    took = await medians({"ours": our_stream, "bare": bare_stream}, rounds=20)
    yield Row(
        f"stream of {CHUNKS} chunks, per chunk",
        f"{took['ours'] / CHUNKS * 1e6:.0f} µs",
        f"{took['bare'] / CHUNKS * 1e6:.0f} µs",
        took["ours"] / took["bare"],
    )


BENCHMARKS = (agent_run, agent_calls, limited_calls, idle_agents, priced_response, streamed_chunk)
