"""What users of PydanticAI and of earlier systems look for on an agent and on what it gives back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from support.agents import paid_agent, streaming_agent

from fastroai import CostBudgetExceeded, FastroAgent
from fastroai.errors import ConfigurationError


async def words(prompt: str) -> AsyncIterator[str]:
    for word in ("once ", "upon ", "a time"):
        yield word


async def test_the_text_of_a_stream_grows_or_comes_in_pieces() -> None:
    async with streaming_agent(words).run_stream("tell") as stream:
        assert [text async for text in stream.stream_text()][-1] == "once upon a time"
        assert stream.response is not None
    async with streaming_agent(words).run_stream("tell") as stream:
        assert "".join([text async for text in stream.stream_text(delta=True)]) == "once upon a time"


class City(BaseModel):
    name: str


async def test_structured_output_has_no_text_to_stream() -> None:
    agent = FastroAgent(TestModel(custom_output_args={"name": "Paris"}), output_type=City)
    async with agent.run_stream("tell") as stream:
        with pytest.raises(ConfigurationError, match=r"='City': .*stream_output\(\) has the output"):
            [text async for text in stream.stream_text()]


async def test_a_response_is_its_text() -> None:
    assert str(await paid_agent().run("one")) == "answer to one"


def forecasting() -> FastroAgent[object, str]:
    parts = [ToolCallPart("forecast", {"city": "Paris"}, "call-1"), TextPart("Sunny.")]

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[parts.pop(0)])

    def forecast(city: str) -> str:
        return f"sun in {city}"

    return FastroAgent(FunctionModel(respond), tools=[forecast])


async def test_a_tool_call_reads_as_a_mapping() -> None:
    (call,) = (await forecasting().run("weather?")).tool_calls

    assert call["tool_name"] == "forecast"
    assert dict(call) == {"tool_name": "forecast", "args": {"city": "Paris"}, "tool_call_id": "call-1"}
    with pytest.raises(KeyError):
        call["name"]


async def test_a_response_is_dumped_as_json_without_what_pydantic_ai_says_of_it() -> None:
    response = await paid_agent(120).run("one")

    dumped = response.model_dump()

    assert json.loads(json.dumps(dumped)) == dumped
    assert dumped["output"] == "answer to one"
    assert dumped["usage"]["cost_usd"] == dumped["records"][0]["cost_usd"] == "0.00012"
    assert "result" not in dumped


async def test_the_accounts_of_two_calls_add_up() -> None:
    one, two = await paid_agent(120).run("one"), await paid_agent(30).run("two")

    together = sum([one.usage, two.usage])

    assert together == one.usage + two.usage
    assert (together.cost_microcents, together.request_count, together.input_tokens) == (150, 2, 150)
    assert (one.usage.cost_microcents, two.usage.cost_microcents) == (120, 30)


@pytest.mark.parametrize("name", ["instructions", "output_validator", "override", "iter"])
def test_what_the_agent_inside_has_is_found_there(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"FastroAgent has no '{name}'.*agent\.agent\.{name}$"):
        getattr(paid_agent(), name)


def test_iterating_an_agent_that_was_given_needs_its_own_meter() -> None:
    with pytest.raises(AttributeError, match=r"capabilities=\[Metered\(\)\]"):
        getattr(FastroAgent(agent=Agent(TestModel())), "iter")  # noqa: B009


def test_a_name_that_nothing_has_is_just_missing() -> None:
    with pytest.raises(AttributeError, match="FastroAgent has no 'rnu'$"):
        getattr(paid_agent(), "rnu")  # noqa: B009


def test_a_budget_stop_can_be_made_for_a_test() -> None:
    stop = CostBudgetExceeded(budget=1_000, actual=900, step_id="write")

    assert (stop.budget_microcents, stop.actual_microcents, stop.step_id) == (1_000, 900, "write")
    assert "$0.0009 of $0.001 is spent" in str(stop)
