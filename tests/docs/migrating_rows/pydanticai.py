"""What users of PydanticAI type."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, CallDeferred, Conversation, DeferredToolRequests, ModelRetry, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from support.agents import paid_agent
from support.migrating import Tried, assert_renamed, here_it_is

from fastroai import Budget, CostBudgetExceeded, FastroAgent, Graph, Metered, StepContext, safe_tool, step
from fastroai.tools import SafeToolset

TRIED: Final = Tried()


@TRIED('`Agent("openai:gpt-5-mini", …)`')
async def constructor() -> None:
    agent = FastroAgent("openai:gpt-5-mini", instructions="Be brief.", name="clerk", retries=2)
    response = await agent.run("one")
    assert response.cost_usd > 0


@TRIED("`result.output`, `result.new_messages()`")
async def results() -> None:
    response = await paid_agent().run("one")
    assert response.output == response.result.output == "answer to one"
    assert response.new_messages() == response.result.new_messages()


@TRIED("`result.usage`")
async def usage() -> None:
    response = await paid_agent(120).run("one")
    assert response.usage.input_tokens == response.result.usage.input_tokens == 120
    assert response.usage.cost_usd == Decimal("0.00012")


@TRIED("`async with agent.run_stream(…) as stream:`")
async def streams() -> None:
    agent = FastroAgent(TestModel(custom_output_text="Hello."))
    async with agent.run_stream("one") as stream:
        within = [chunk.content async for chunk in stream]
    assert "".join(within) == "".join([chunk.content async for chunk in agent.run_stream("one")]) == "Hello."


@TRIED("`stream.stream_text()`, `stream_output`, `stream_response`, `get_output`, `all_messages`, `cancel`")
async def streams_in_other_forms() -> None:
    agent = FastroAgent(TestModel(custom_output_text="Hello."))
    async with agent.run_stream("one") as stream:
        assert [text async for text in stream.stream_text()][-1] == "Hello."
    async with agent.run_stream("one") as stream:
        assert [output async for output in stream.stream_output()][-1] == "Hello."
    async with agent.run_stream("one") as stream:
        responses = [response async for response in stream.stream_response()]
        assert isinstance(responses[-1], ModelResponse)
    async with agent.run_stream("one") as stream:
        assert await stream.get_output() == "Hello."
        assert len(stream.all_messages()) == 2
    async with agent.run_stream("one") as stream:
        await stream.cancel()


@TRIED("`stream.response`, `stream.result`, `stream.usage`")
async def what_streams_have() -> None:
    async with FastroAgent(TestModel()).run_stream("one") as stream:
        chunks = [chunk async for chunk in stream]
    assert isinstance(chunks[0].response, ModelResponse)
    assert stream.response is not None
    assert stream.response.result.output == stream.response.output
    assert stream.usage.request_count == 1


@TRIED("`@agent.tool`, `@agent.tool_plain`")
async def tools() -> None:
    agent = FastroAgent(TestModel(), deps_type=str)

    @agent.tool
    def greet(ctx: RunContext[str]) -> str:
        return f"Hello, {ctx.deps}"

    @agent.tool_plain
    def orders() -> list[int]:
        return [1182]

    assert "Hello, Mia" in (await agent.run("one", "Mia")).output


@TRIED("`@agent.instructions`, `@agent.output_validator`")
async def other_decorators() -> None:
    agent = FastroAgent(TestModel(custom_output_text="Hello."))
    for name in ("instructions", "output_validator"):
        with pytest.raises(AttributeError, match=rf"agent\.agent\.{name}"):
            getattr(agent, name)

    @agent.agent.instructions
    def brief() -> str:
        return "Be brief."

    @agent.agent.output_validator
    def louder(output: str) -> str:
        return output.upper()

    response = await agent.run("one")
    assert response.output == "HELLO."
    assert "Be brief." in str(response.all_messages()[0])


@TRIED("`agent.override(…)`, `agent.iter(…)`")
async def override_and_iter() -> None:
    agent = paid_agent(120)
    with agent.agent.override(model=TestModel(custom_output_text="Another.")):
        assert (await agent.run("one")).output == "Another."

    @step
    async def iterates(ctx: StepContext[None]) -> str:
        async with agent.agent.iter("one") as run:
            async for _ in run:
                pass
        return "" if run.result is None else run.result.output

    result = await Graph[None]("g", nodes={"iterates": iterates}, edges=[]).run()
    assert (result.output, result.usage.cost_microcents) == ("answer to one", 120)


@TRIED("`UsageLimits(cost_limit=…)`, looked at after the response")
async def limits() -> None:
    with pytest.raises(CostBudgetExceeded):
        await paid_agent(120).run("one", budget=Budget(usd="0.0001"))


@TRIED("`ModelRetry` in a tool")
async def retries_of_tools() -> None:
    attempts: list[str] = []

    def search(query: str) -> str:
        attempts.append(query)
        if len(attempts) == 1:
            raise ModelRetry("once more")
        return "found"

    assert "found" in (await FastroAgent(TestModel(), tools=[search]).run("one")).output

    @safe_tool(max_retries=0, on_error="no luck: {error}")
    async def fails(query: str) -> str:
        raise OSError("offline")

    response = await FastroAgent(TestModel(), toolsets=[SafeToolset[object](tools=[fails])]).run("one")
    assert "no luck: OSError: offline" in response.output


@TRIED("an agent that a tool calls")
async def agents_in_tools() -> None:
    plain = Agent(paid_agent(30).agent.model, capabilities=[Metered()])
    inner = paid_agent(30)

    async def ask(question: str) -> str:
        return (await inner.run(question)).output

    async def ask_plain(question: str) -> str:
        return (await plain.run(question)).output

    response = await FastroAgent(TestModel(), tools=[ask, ask_plain]).run("one")
    assert [record.model for record in response.records].count("paid") == 2


@TRIED("deferred tools, approvals")
async def deferred_tools() -> None:
    def pay(amount: int) -> str:
        raise CallDeferred

    agent = FastroAgent(TestModel(), tools=[pay], output_type=[str, DeferredToolRequests])
    output = (await agent.run("one")).output
    assert isinstance(output, DeferredToolRequests)
    assert [call.tool_name for call in output.calls] == ["pay"]


@TRIED("`pydantic_graph`")
async def graphs() -> None:
    @step
    async def first(ctx: StepContext[None]) -> str:
        return "done"

    assert (await Graph[None]("g", nodes={"first": first}, edges=[]).run()).output == "done"


class City(BaseModel):
    name: str


@TRIED("`TestModel`, `FunctionModel`")
async def models_for_tests() -> None:
    model = TestModel(custom_output_args={"name": "Paris"})
    assert (await FastroAgent(model, output_type=City).run("one")).output == City(name="Paris")

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked = len(messages) == 1
        return ModelResponse(parts=[ToolCallPart("look", {}) if asked else TextPart("Seen.")])

    def look() -> str:
        return "a cat"

    assert (await FastroAgent(FunctionModel(respond), tools=[look]).run("one")).output == "Seen."


@TRIED("`pydantic_ai.Conversation`")
async def conversations() -> None:
    agent = paid_agent()
    conversation = (await agent.run("one")).result.conversation
    assert isinstance(conversation, Conversation)
    response = await agent.run("two", conversation=conversation)
    assert len(response.all_messages()) == 4


@TRIED("`from fastroai import Agent`, `RunContext`, `ModelRetry`, …")
def names() -> None:
    assert_renamed(
        Agent="FastroAgent(",
        RunContext="pydantic_ai.RunContext",
        ModelRetry="pydantic_ai.ModelRetry",
        UsageLimits="Budget(",
    )


@TRIED("`result_type=`, `output_retries=`, `result.data` of earlier versions")
async def earlier_names() -> None:
    untyped: Any = FastroAgent
    for name, here in {"result_type": "output_type=", "output_retries": 'retries={"output": …}'}.items():
        with pytest.raises(TypeError, match=here_it_is(here)):
            untyped(TestModel(), **{name: 3})
    response: Any = await FastroAgent(TestModel(), output_type=int, retries={"output": 3}).run("one")
    with pytest.raises(AttributeError, match=here_it_is("response.output")):
        response.data  # noqa: B018
    assert response.output == 0
