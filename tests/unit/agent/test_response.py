from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from pydantic import BaseModel
from pydantic_ai import TextOutput
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.usage import RequestUsage

from fastroai import FastroAgent


class Words(BaseModel):
    words: list[str] = []


class Secret:
    def __str__(self) -> str:
        return "a secret"


@dataclass
class Opaque:
    value: object


def answers(*parts: TextPart | ToolCallPart) -> FunctionModel:
    """A model that gives these parts, one response each."""
    waiting = list(parts)

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[waiting.pop(0)], usage=RequestUsage(input_tokens=3, output_tokens=2))

    return FunctionModel(respond)


async def test_text_is_its_own_content() -> None:
    response = await FastroAgent(answers(TextPart("plain"))).run("?")
    assert response.content == response.output == "plain"


async def test_a_model_of_pydantic_is_written_as_it_says_itself() -> None:
    model = answers(ToolCallPart("final_result", {"words": ["a", "b"]}))
    response = await FastroAgent(model, output_type=Words).run("?")
    assert response.content == '{"words":["a","b"]}'


async def test_what_json_cannot_say_is_written_as_text() -> None:
    def wrap(text: str) -> Opaque:
        return Opaque(Secret())

    response = await FastroAgent(answers(TextPart("x")), output_type=TextOutput(wrap)).run("?")
    assert response.content == '{"value":"a secret"}'


async def test_arguments_that_are_no_json_are_kept_as_pydantic_ai_keeps_them() -> None:
    def look(word: str) -> str:
        """Look."""
        return word

    model = answers(ToolCallPart("look", '{"word": '), ToolCallPart("look", {"word": "x"}), TextPart("done"))
    response = await FastroAgent(model, tools=[look]).run("?")
    assert [call.args for call in response.tool_calls] == [{"INVALID_JSON": '{"word": '}, {"word": "x"}]


async def test_the_account_in_a_response_does_not_change_any_more() -> None:
    agent = FastroAgent(answers(TextPart("one"), TextPart("two")))
    first = await agent.run("?")
    await agent.run("?")
    assert (first.request_count, first.total_tokens) == (1, 5)
    with pytest.raises(AttributeError):
        first.output = "other"  # type: ignore[misc]


async def test_history_is_not_part_of_the_response() -> None:
    def look(word: str) -> str:
        """Look."""
        return word

    model = answers(ToolCallPart("look", {"word": "x"}), TextPart("done"), TextPart("again"))
    agent = FastroAgent(model, tools=[look])
    first = await agent.run("?")
    second = await agent.run("?", message_history=first.all_messages())
    assert (first.tool_call_count, second.tool_call_count) == (1, 0)
    assert second.request_count == 1


async def test_text_among_other_outputs_streams_only_what_is_new() -> None:
    async def respond(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for word in ("a ", "b ", "c"):
            yield word

    agent = FastroAgent(FunctionModel(stream_function=respond), output_type=[str, Words])
    chunks = [chunk async for chunk in agent.run_stream("?")]
    assert "".join(chunk.content for chunk in chunks) == "a b c"
    assert chunks[-1].output == "a b c"


async def test_structured_chunks_have_no_text() -> None:
    async def respond(
        messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[dict[int, DeltaToolCall]]:
        yield {0: DeltaToolCall("final_result", '{"words": ["a"')}
        yield {0: DeltaToolCall(json_args=', "b"]}')}

    agent = FastroAgent(FunctionModel(stream_function=respond), output_type=Words)
    chunks = [chunk async for chunk in agent.run_stream("?")]
    assert {chunk.content for chunk in chunks} == {""}
    assert chunks[-1].is_final
    assert chunks[-1].output == Words(words=["a", "b"])
