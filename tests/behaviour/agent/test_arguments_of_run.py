"""The prompt and the deps of a call may come under the names and at the places that other systems have."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pydantic_ai import RunContext
from support.agents import paid_agent, streaming_agent

from fastroai.errors import ConfigurationError


@dataclass
class Desk:
    clerk: str


def clerk_of(ctx: RunContext[Desk]) -> str:
    heard.append(ctx.deps.clerk)
    return f"You are {ctx.deps.clerk}."


heard: list[str] = []


async def test_deps_may_be_the_second_argument() -> None:
    agent = paid_agent(deps_type=Desk, instructions=clerk_of)
    heard.clear()

    await agent.run("one", Desk("Mia"))
    await agent.run("two", deps=Desk("Ada"))

    assert heard == ["Mia", "Ada"]


async def test_the_prompt_may_be_called_message() -> None:
    response = await paid_agent().run(message="one")

    assert response.output == "answer to one"


async def test_a_streamed_prompt_may_be_called_message() -> None:
    async def words(prompt: str):  # type: ignore[no-untyped-def]
        yield prompt

    stream = streaming_agent(words).run_stream(message="one")

    assert [chunk.content async for chunk in stream if not chunk.is_final] == ["one"]


def test_run_sync_takes_both_too() -> None:
    assert paid_agent(deps_type=Desk).run_sync(message="one", deps=Desk("Mia")).output == "answer to one"
    assert paid_agent(deps_type=Desk).run_sync("two", Desk("Mia")).output == "answer to two"


async def test_a_prompt_under_both_names_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="message='two'"):
        await paid_agent().run("one", message="two")
    with pytest.raises(ConfigurationError, match="message='two'"):
        paid_agent().run_stream("one", message="two")
