"""What `FastroAgent` adds to a bare PydanticAI agent."""

from __future__ import annotations

from collections.abc import AsyncIterator

from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from benchmarks.measure import Row, medians
from fastroai.agent import FastroAgent

CHUNKS = 200


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


BENCHMARKS = (agent_run, streamed_chunk)
