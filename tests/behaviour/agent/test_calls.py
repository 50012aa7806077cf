"""What goes through a call as it does in PydanticAI, and what comes back with it."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    BinaryContent,
    ImageUrl,
    ModelMessagesTypeAdapter,
    ModelRetry,
    RunContext,
    ToolOutput,
    UsageLimits,
)
from pydantic_ai.exceptions import UnexpectedModelBehavior, UsageLimitExceeded
from pydantic_ai.messages import FinalResultEvent, FunctionToolCallEvent, PartDeltaEvent
from pydantic_ai.models import Model
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RunUsage
from support.agents import paid_agent
from support.leftovers import assert_no_task_is_left

from fastroai import Budget, BudgetExceeded, ChatResponse, FastroAgent, budget_scope
from fastroai.errors import usage_of
from fastroai.testing import ModelServer, Reply, ToolCall, Usage

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class City(BaseModel):
    name: str
    population: int


PARIS: dict[str, Any] = {"name": "Paris", "population": 2_100_000}


# --- prompts and histories ---


@pytest.mark.parametrize(
    "content",
    [
        BinaryContent(data=PIXEL, media_type="image/png"),
        ImageUrl(url="https://example.com/pixel.png"),
    ],
    ids=["bytes", "url"],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_prompt_with_an_image_is_sent_as_pydantic_ai_sends_it(
    server: ModelServer, model: Model, content: BinaryContent | ImageUrl, streamed: bool
) -> None:
    prompt = ["What is this?", content]
    if streamed:
        async for _ in FastroAgent(model).run_stream(prompt):
            pass
        async with Agent(model).run_stream(prompt) as bare:
            await bare.get_output()
    else:
        await FastroAgent(model).run(prompt)
        await Agent(model).run(prompt)
    mine, bare_body = (entry.body for entry in server.ledger.entries)
    assert mine == bare_body
    assert "image" in json.dumps(mine)


async def test_a_history_goes_on_from_the_messages_of_earlier_responses(
    server: ModelServer, model: Model
) -> None:
    agent = FastroAgent(model)
    first = await agent.run("My name is Ada.")
    second = await agent.run("What is my name?", message_history=first.new_messages())
    third = await agent.run("And again?", message_history=second.all_messages())
    texts = [
        [message.text for message in request.messages] for request in requests_of(server) if request.messages
    ]
    assert texts[-1] == [
        "My name is Ada.",
        "echo: My name is Ada.",
        "What is my name?",
        "echo: What is my name?",
        "And again?",
    ]
    assert len(third.new_messages()) == 2
    assert len(third.all_messages()) == 6
    assert third.all_messages()[:4] == second.all_messages()


def requests_of(server: ModelServer) -> list[Any]:
    """The requests that the server has seen so far, read again by its own parser."""
    from fastroai.testing.protocols import WIRES

    wires = {wire.name: wire for wire in WIRES}
    return [wires[entry.protocol].parse(entry.headers, entry.raw_body) for entry in server.ledger.entries]


async def test_a_history_survives_being_written_down(server: ModelServer, model: Model) -> None:
    agent = FastroAgent(model)
    response = await agent.run("My name is Ada.")
    written = ModelMessagesTypeAdapter.dump_json(response.all_messages())
    await agent.run("What is my name?", message_history=ModelMessagesTypeAdapter.validate_json(written))
    assert [message.text for message in requests_of(server)[-1].messages][0] == "My name is Ada."


async def test_an_agent_keeps_nothing_between_calls(server: ModelServer, model: Model) -> None:
    agent = FastroAgent(model)
    await agent.run("My name is Ada.")
    await agent.run("What is my name?")
    assert [len(request.messages) for request in requests_of(server)] == [1, 1]


# --- what else PydanticAI takes ---


async def test_dependencies_reach_tools_and_instructions(server: ModelServer, model: Model) -> None:
    def instruct(context: RunContext[str]) -> str:
        return f"Serve {context.deps}."

    def whoami(context: RunContext[str]) -> str:
        """Who."""
        return context.deps

    server.script(Reply(tool_calls=[ToolCall("whoami", {})]), Reply("done"))
    agent = FastroAgent(model, deps_type=str, instructions=instruct, tools=[whoami])
    await agent.run("?", deps="Ada")
    last = requests_of(server)[-1]
    assert last.system.endswith("Serve Ada.")  # some versions of PydanticAI say more before it
    assert [result.text for result in last.tool_results] == ["Ada"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_usage_limits_of_pydantic_ai_stop_a_run_with_its_usage_on_the_error(
    server: ModelServer, model: Model, streamed: bool
) -> None:
    def weather(city: str) -> str:
        """The weather."""
        return "rain"

    server.rule(None, Reply(tool_calls=[ToolCall("weather", {"city": "Paris"})], usage=Usage(100, 10)))
    agent = FastroAgent(model, tools=[weather])
    limits = UsageLimits(request_limit=2)
    with pytest.raises(UsageLimitExceeded) as caught:
        if streamed:
            async for _ in agent.run_stream("?", usage_limits=limits):
                pass
        else:
            await agent.run("?", usage_limits=limits)
    usage = usage_of(caught.value)
    assert usage is not None
    assert usage.request_count == len(server.ledger.entries) == 2
    assert usage.total_tokens == 220


async def test_usage_to_start_with_counts_for_limits_and_not_for_the_account(
    server: ModelServer, model: Model
) -> None:
    server.script(Reply("ok", usage=Usage(10, 1)))
    before = RunUsage(requests=1, input_tokens=1_000)
    response = await FastroAgent(model).run("?", usage=before, usage_limits=UsageLimits(request_limit=2))
    assert response.input_tokens == 10
    assert response.request_count == 1
    assert response.result.usage.input_tokens == 1_010


async def test_toolsets_instructions_settings_and_types_of_one_call(server: ModelServer) -> None:
    def weather(city: str) -> str:
        """The weather."""
        return "rain"

    agent = FastroAgent(server.model("openai-chat:gpt-4o-mini"), instructions="Be brief.")
    server.script(Reply(tool_calls=[ToolCall("weather", {"city": "Paris"})]), Reply(data=PARIS))
    response = await agent.run(
        "?",
        output_type=City,
        toolsets=[FunctionToolset([weather])],
        instructions="In French.",
        model_settings={"temperature": 0.5},
        metadata={"ticket": 7},
        conversation_id="c-1",
    )
    assert response.output == City(**PARIS)
    assert response.result.metadata == {"ticket": 7}
    assert response.result.conversation_id == "c-1"
    first = requests_of(server)[0]
    assert "Be brief." in first.system
    assert "In French." in first.system
    assert {tool.name for tool in first.tools} == {"weather", "final_result"}
    assert first.body["temperature"] == 0.5


async def test_retries_are_those_of_pydantic_ai(server: ModelServer, model: Model) -> None:
    def never(city: str) -> str:
        """Never."""
        raise ModelRetry("no")

    server.rule(None, Reply(tool_calls=[ToolCall("never", {"city": "Paris"})]))
    with pytest.raises(UnexpectedModelBehavior, match="never"):
        await FastroAgent(model, tools=[never], retries=3).run("?")
    assert len(server.ledger.entries) == 4


async def test_events_are_those_of_pydantic_ai(server: ModelServer, model: Model) -> None:
    def weather(city: str) -> str:
        """The weather."""
        return "rain"

    replies = Reply(tool_calls=[ToolCall("weather", {"city": "Paris"})]), Reply("It rains in all of Paris")
    server.script(*replies)
    mine = [event async for event in FastroAgent(model, tools=[weather]).run_stream_events("?")]
    server.script(*replies)
    bare = []
    async with Agent(model, tools=[weather]).run_stream_events("?") as events:
        async for event in events:
            bare.append(event)
    assert [type(event) for event in mine[:-1]] == [type(event) for event in bare]
    kinds = {type(event) for event in mine}
    assert {PartDeltaEvent, FunctionToolCallEvent, FinalResultEvent} <= kinds


# --- the response ---


async def test_the_response_says_what_was_answered_by_whom_and_at_what_cost(
    server: ModelServer, model: Model, reference: str
) -> None:
    server.script(Reply("Paris", usage=Usage(1_000, 100, cache_read_tokens=256, reasoning_tokens=64)))
    response = await FastroAgent(model).run("The capital of France?")
    assert response.output == response.content == "Paris"
    assert response.model == reference.partition(":")[2]
    assert response.provider == reference.partition(":")[0].removesuffix("-chat")
    assert (response.input_tokens, response.output_tokens, response.total_tokens) == (1_000, 100, 1_100)
    assert (response.cache_read_tokens, response.cache_write_tokens) == (256, 0)
    assert response.reasoning_tokens == 64
    assert response.input_audio_tokens == response.output_audio_tokens == 0
    assert response.cache_audio_read_tokens == 0
    assert response.request_count == 1
    assert response.unpriced_requests == response.unmeasured_requests == 0
    assert response.cost_complete
    assert response.cost_microcents == round(response.cost_usd * 1_000_000)
    assert response.cost_dollars == float(response.cost_usd)
    assert response.processing_time_ms > 0
    assert response.trace_id is None
    assert response.run_id == response.result.run_id
    assert response.tool_calls == ()
    assert response.tool_call_count == 0
    [record] = response.records
    assert record.response_id == server.ledger.entries[0].response_id
    assert record.finish_reason == "stop"


async def test_audio_tokens_are_counted_and_priced(server: ModelServer) -> None:
    server.script(
        Reply("hello", usage=Usage(1_000, 100, input_audio_tokens=900, output_audio_tokens=80)),
        model="gpt-audio",
    )
    response = await FastroAgent(server.model("openai-chat:gpt-audio")).run("?")
    assert (response.input_audio_tokens, response.output_audio_tokens) == (900, 80)
    # https://platform.openai.com/docs/pricing: text $2.50 and $10, audio $32 and $64 per million
    assert (
        response.cost_usd
        == (100 * Decimal("2.50") + 900 * Decimal(32) + 20 * Decimal(10) + 80 * Decimal(64)) / 1_000_000
    )


async def test_usage_details_are_what_else_the_provider_counted(server: ModelServer, model: Model) -> None:
    server.rule(None, Reply("ok", usage=Usage(10, 20, reasoning_tokens=15)))
    response = await FastroAgent(model).run("?")
    bare = await Agent(model).run("?")
    assert response.usage_details == bare.usage.details != {}


@dataclass
class Point:
    x: int
    y: int


@pytest.mark.parametrize(
    ("output_type", "data", "content"),
    [
        (City, PARIS, '{"name":"Paris","population":2100000}'),
        (list[int], [1, 2], "[1,2]"),
        (Point, {"x": 1, "y": 2}, '{"x":1,"y":2}'),
        (bool, True, "true"),
    ],
)
async def test_structured_output_has_its_json_as_content(
    server: ModelServer, output_type: Any, data: object, content: str
) -> None:
    server.script(Reply(data=data))
    response: ChatResponse[Any] = await FastroAgent(
        server.model("openai:gpt-5-mini"), output_type=output_type
    ).run("?")
    assert response.content == content


@pytest.mark.parametrize(
    "output_type", [str, City, ToolOutput(City, name="answer_with_a_city"), [City, Point]], ids=repr
)
async def test_tool_calls_are_those_of_function_tools(
    server: ModelServer, model: Model, output_type: Any
) -> None:
    def weather(city: str, days: int = 1) -> str:
        """The weather."""
        return "rain"

    calls = [
        ToolCall("weather", {"city": "Paris", "days": 3}, id="call_1"),
        ToolCall("weather", {"city": "Lyon"}, id="call_2"),
    ]
    answer = Reply("Rain") if output_type is str else Reply(data=PARIS)
    server.script(Reply(tool_calls=calls), answer)
    agent = FastroAgent(model, tools=[weather], output_type=output_type)
    response = await agent.run("?")
    assert [(call.tool_name, call.args, call.tool_call_id) for call in response.tool_calls] == [
        ("weather", {"city": "Paris", "days": 3}, "call_1"),
        ("weather", {"city": "Lyon"}, "call_2"),
    ]
    assert response.tool_call_count == 2


async def test_tool_calls_of_an_agent_in_a_tool_are_not_those_of_the_response(
    server: ModelServer, model: Model
) -> None:
    def weather(city: str) -> str:
        """The weather."""
        return "rain"

    inner = FastroAgent(server.model("openai-chat:gpt-5-mini"), tools=[weather], name="inner")

    async def ask(question: str) -> str:
        """Ask."""
        return (await inner.run(question)).output

    server.script(
        Reply(tool_calls=[ToolCall("ask", {"question": "Who?"})]),
        Reply(tool_calls=[ToolCall("weather", {"city": "Paris"})]),
        Reply("rain"),
        Reply("done"),
    )
    response = await FastroAgent(model, tools=[ask]).run("?")
    assert [call.tool_name for call in response.tool_calls] == ["ask"]
    assert response.request_count == 4


async def test_the_response_of_a_test_model_is_whole() -> None:
    response = await FastroAgent(TestModel(custom_output_text="hello")).run("?")
    assert (response.output, response.model) == ("hello", "test")
    assert response.request_count == 1
    assert response.cost_complete


@pytest.mark.parametrize("way", ["run", "run_stream", "run_stream_events"])
async def test_no_task_is_left_of_a_call_that_is_cancelled_as_it_begins(way: str) -> None:
    agent = FastroAgent(TestModel())

    async def call() -> None:
        if way == "run":
            await agent.run("hello")
        else:
            async with getattr(agent, way)("hello") as stream:
                async for _ in stream:
                    pass

    for moment in range(25):
        task = asyncio.create_task(call())
        for _ in range(moment):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert_no_task_is_left()


@pytest.mark.parametrize(
    "spec", [{"capabilities": ["Thinking"]}, {"capabilities": []}, {"instructions": "Be brief."}]
)
async def test_an_agent_stays_metered_when_its_capabilities_are_overridden(spec: dict[str, Any]) -> None:
    for agent in (paid_agent(100), FastroAgent(agent=paid_agent(100).agent)):
        with agent.agent.override(spec=spec):
            async with budget_scope(Budget(requests=1)) as scope:
                await agent.run("one")
                with pytest.raises(BudgetExceeded):
                    await agent.run("two")
        assert scope.usage.request_count == 1
        await agent.run("three")
