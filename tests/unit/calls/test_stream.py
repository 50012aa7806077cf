"""`ChatStream` is read as PydanticAI's stream is, in one way or in several, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_ai.models.function import (
    AgentInfo,
    DeltaToolCall,
    DeltaToolCalls,
    FunctionModel,
    FunctionStreamedResponse,
)
from pydantic_ai.models.test import TestModel
from pydantic_ai.result import StreamedRunResult
from support.agents import TOKEN_IS_MICROCENT, streaming_agent
from support.virtual_time import in_virtual_time, now

from fastroai import FastroAgent
from fastroai.agent import ChatStream
from fastroai.errors import ConfigurationError
from fastroai.records import Usage
from fastroai.runtime import current_scope
from fastroai.testing import ModelServer, Reply


class Ticket(BaseModel):
    subject: str
    urgent: bool = False


WORDS = ("Once ", "upon ", "a ", "time")


async def words(prompt: str) -> AsyncIterator[str]:
    """Three words at once, and one a second later."""
    for word in WORDS:
        if word == "time":
            await asyncio.sleep(1)
        yield word


def changes(told: list[Any]) -> list[Any]:
    """What differs from the one before it: an answer that has not changed may be told again."""
    return [one for one, before in zip(told, [None, *told], strict=False) if one != before]


async def in_pieces(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[DeltaToolCalls]:
    name = info.output_tools[0].name
    for piece in ('{"subject": "hub', " is offline", '", "urg', 'ent": true}'):
        await asyncio.sleep(0.2)
        yield {0: DeltaToolCall(name=name, json_args=piece, tool_call_id="one")}
        name = None  # type: ignore[assignment]


def tickets(**options: Any) -> FastroAgent[Any, Ticket]:
    model = FunctionModel(stream_function=in_pieces, model_name="paid")
    return FastroAgent(model, output_type=Ticket, cost_calculator=TOKEN_IS_MICROCENT, **options)


@in_virtual_time
async def test_text_is_put_together_for_a_tenth_of_a_second_as_pydantic_ai_does() -> None:
    async def texts(**options: Any) -> list[str]:
        async with streaming_agent(words).run_stream("hi") as stream:
            return [text async for text in stream.stream_text(**options)]

    async def theirs(**options: Any) -> list[str]:
        model = FunctionModel(stream_function=_respond)
        async with Agent(model).run_stream("hi") as stream:
            return [text async for text in stream.stream_text(**options)]

    for options in ({}, {"delta": True}, {"debounce_by": None}, {"delta": True, "debounce_by": None}):
        assert await texts(**options) == await theirs(**options), options
    assert await texts() == ["Once upon a ", "Once upon a time"]


async def _respond(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    async for word in words("hi"):
        yield word


@in_virtual_time
async def test_outputs_and_answers_are_those_of_pydantic_ai() -> None:
    async def read(
        stream: ChatStream[Ticket] | StreamedRunResult[None, Ticket], by: float | None
    ) -> list[Any]:
        return [output async for output in stream.stream_output(debounce_by=by)]

    async def parts(
        stream: ChatStream[Ticket] | StreamedRunResult[None, Ticket], by: float | None
    ) -> list[Any]:
        return [
            (answer.tool_calls[0].args_as_json_str(), answer.state)
            async for answer in stream.stream_response(debounce_by=by)
        ]

    theirs = Agent(FunctionModel(stream_function=in_pieces), output_type=Ticket)
    for view in (read, parts):
        for by in (None, 0.1):
            async with theirs.run_stream("hi") as their_stream:
                expected = await view(their_stream, by)
            async with tickets().run_stream("hi") as stream:
                found = await view(stream, by)
            assert changes(found) == changes(expected)
            assert stream.is_complete
    assert found[-1] == ('{"subject":"hub is offline","urgent":true}', "complete")


@in_virtual_time
async def test_the_output_is_awaited_and_messages_are_those_of_the_call() -> None:
    async with tickets().run_stream("hi") as stream:
        assert (stream.all_messages(), stream.is_complete) == ([], False), "nothing was read"
        assert await stream.get_output() == Ticket(subject="hub is offline", urgent=True)
        assert await stream.get_output() == Ticket(subject="hub is offline", urgent=True)
        assert [one async for one in stream.stream_output()] == [await stream.get_output()]
        assert [one.state async for one in stream.stream_response()] == ["complete"]
    assert stream.response is not None
    assert stream.new_messages() == stream.all_messages() == stream.response.all_messages()
    assert [one.kind for one in stream.new_messages()] == ["request", "response", "request"]
    assert ModelMessagesTypeAdapter.validate_json(stream.all_messages_json()) == stream.all_messages()
    assert ModelMessagesTypeAdapter.validate_json(stream.new_messages_json()) == stream.new_messages()
    assert stream.usage.request_count == 1


@in_virtual_time
async def test_a_stream_that_was_read_in_one_way_is_read_on_in_another() -> None:
    async with streaming_agent(words).run_stream("hi") as stream:
        async for text in stream.stream_text():
            assert text == "Once upon a "
            break
        async for chunk in stream:
            assert chunk.content == "time"
            break
        assert [text async for text in stream.stream_text(delta=True)] == ["Once upon a time"]
        assert await stream.get_output() == "Once upon a time"
        assert stream.usage.unmeasured_requests == 0


async def test_outside_of_a_block_the_stream_ends_when_a_loop_is_left() -> None:
    stream = streaming_agent(words).run_stream("hi")
    texts = stream.stream_text(debounce_by=None)
    assert await anext(texts) == "Once "
    await texts.aclose()  # type: ignore[attr-defined]  # which the garbage collector does, too
    assert [chunk async for chunk in stream] == []
    with pytest.raises(ConfigurationError, match="a stream that was read to its end"):
        await stream.get_output()


async def test_a_cancelled_answer_ends_with_what_has_come(model_server: ModelServer) -> None:
    model_server.script(Reply("word " * 2_000))
    async with FastroAgent(model_server.model("openai-chat:gpt-5-mini")).run_stream("hi") as stream:
        assert not stream.cancelled
        texts = stream.stream_text(debounce_by=None)
        first = await anext(texts)
        await stream.cancel()
        last = [first, *[text async for text in texts]][-1:]
        assert stream.cancelled
        assert [await stream.get_output()] == last != ["word " * 2_000]
        assert [one.state async for one in stream.stream_response()] == ["interrupted"]
    assert stream.usage.unmeasured_requests == 1, "nobody said what was billed"


async def close_what_is_read(stream: FunctionStreamedResponse) -> None:
    """As the models of Google, xAI and Hugging Face do: it fails while the next event is awaited."""
    await stream._iter.aclose()  # type: ignore[attr-defined]


async def close_nothing(stream: FunctionStreamedResponse) -> None:
    """As models do that say nothing else of their connections."""
    raise NotImplementedError


@pytest.mark.parametrize("close", [None, close_what_is_read, close_nothing])
@in_virtual_time
async def test_a_cancelled_answer_ends_while_more_is_awaited_whatever_its_model_can_close(
    close: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if close is not None:
        monkeypatch.setattr(FunctionStreamedResponse, "close_stream", close)
    stream = streaming_agent(words).run_stream("hi")
    asyncio.get_running_loop().call_later(0.5, lambda: asyncio.ensure_future(stream.cancel()))
    assert [text async for text in stream.stream_text()][-1] == "Once upon a "
    assert now() == 0.5
    assert stream.cancelled
    assert stream.is_complete
    assert stream.response is not None
    assert (stream.response.output, stream.response.is_cut) == ("Once upon a ", True)
    assert not stream.response.is_measured
    assert [message.state for message in stream.new_messages()] == ["complete", "interrupted"]


async def test_a_cancelled_answer_of_a_test_model_ends_with_what_was_read() -> None:
    stream = FastroAgent(TestModel(custom_output_text="Once upon a time")).run_stream("hi")
    chunks = list[str]()
    async for chunk in stream:
        chunks.append(chunk.content)
        await stream.cancel()
    assert chunks == ["Once ", ""]
    assert stream.response is not None
    assert (stream.response.output, stream.response.is_cut) == ("Once ", True)


@in_virtual_time
async def test_an_answer_is_cancelled_by_code_that_does_not_read_on() -> None:
    async with streaming_agent(words).run_stream("hi") as stream:
        await anext(stream)
        await stream.cancel()
        await stream.cancel()
        assert [message.state for message in stream.new_messages()] == ["complete", "interrupted"]
    assert not stream.is_complete
    assert stream.usage.unmeasured_requests == 1


@in_virtual_time
async def test_a_cancelled_output_that_is_not_valid_ends_the_stream_without_a_response() -> None:
    async with tickets().run_stream("hi") as stream:
        async for chunk in stream:
            assert chunk.output is not None
            assert not chunk.is_final
            await stream.cancel()
        assert stream.cancelled
        assert stream.response is None
        assert [one async for one in stream.stream_output()] == []
        with pytest.raises(ConfigurationError, match="valid before cancel.. stopped it"):
            await stream.get_output()
    assert stream.usage.unmeasured_requests == 1


@in_virtual_time
async def test_a_cancelled_output_that_is_valid_already_is_the_output() -> None:
    async def with_a_rest(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[DeltaToolCalls]:
        async for piece in in_pieces(messages, info):
            yield piece
        await asyncio.sleep(60)

    stream = FastroAgent(FunctionModel(stream_function=with_a_rest), output_type=Ticket).run_stream("hi")
    asyncio.get_running_loop().call_later(5, lambda: asyncio.ensure_future(stream.cancel()))
    assert await stream.get_output() == Ticket(subject="hub is offline", urgent=True)
    assert stream.cancelled
    assert now() == 5


@in_virtual_time
async def test_an_answer_of_which_all_has_come_is_not_cancelled() -> None:
    async with streaming_agent(words).run_stream("hi") as stream:
        async for chunk in stream:
            await asyncio.sleep(2)
            if chunk.content.endswith("time"):
                await stream.cancel()
        await stream.cancel()
    assert not stream.cancelled
    assert stream.response is not None
    assert not stream.response.is_cut


@in_virtual_time
async def test_a_cancel_before_the_answer_begins_stops_the_tools() -> None:
    async def asks(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[DeltaToolCalls]:
        assert len(messages) == 1, "no further request"
        yield {0: DeltaToolCall(name="wait", json_args="{}", tool_call_id="one")}

    async def wait() -> None:
        await asyncio.sleep(60)

    model = FunctionModel(stream_function=asks, model_name="paid")
    agent = FastroAgent(model, tools=[wait], cost_calculator=TOKEN_IS_MICROCENT)
    stream = agent.run_stream("hi")
    asyncio.get_running_loop().call_later(1, lambda: asyncio.ensure_future(stream.cancel()))
    assert [chunk async for chunk in stream] == []
    assert now() == 1
    assert stream.cancelled
    assert stream.response is None
    assert (stream.usage.request_count, stream.usage.unmeasured_requests) == (1, 0)


@in_virtual_time
async def test_a_tool_can_cancel_the_answer_that_waits_for_it() -> None:
    async def asks(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[DeltaToolCalls]:
        yield {0: DeltaToolCall(name="stop", json_args="{}", tool_call_id="one")}

    async def stop() -> None:
        await stream.cancel()
        await asyncio.sleep(60)

    stream = FastroAgent(FunctionModel(stream_function=asks), tools=[stop]).run_stream("hi")
    assert [chunk async for chunk in stream] == []
    assert stream.cancelled
    assert now() == 0


async def test_a_stream_that_is_cancelled_before_it_is_read_sends_nothing() -> None:
    stream = streaming_agent(words).run_stream("hi")
    await stream.cancel()
    assert [chunk async for chunk in stream] == []
    assert stream.cancelled
    assert stream.usage == Usage()


async def test_a_stream_that_has_failed_is_not_cancelled() -> None:
    async def fails(prompt: str) -> AsyncIterator[str]:
        raise RuntimeError("no line")
        yield

    stream = streaming_agent(fails, request_retries=0).run_stream("hi")
    with pytest.raises(RuntimeError, match="no line"):
        await anext(stream)
    await stream.cancel()
    assert not stream.cancelled


@in_virtual_time
async def test_validators_of_the_output_see_partial_ones_within_the_call() -> None:
    seen = list[tuple[bool, str | None]]()
    agent = Agent(FunctionModel(stream_function=in_pieces, model_name="paid"), output_type=Ticket)

    @agent.output_validator
    async def check(ctx: RunContext[None], ticket: Ticket) -> Ticket:
        scope = current_scope()
        seen.append((ctx.partial_output, None if scope is None else scope.name))
        if ctx.partial_output and ticket.subject == "hub":
            raise ModelRetry("too short")
        return ticket

    async with FastroAgent(agent=agent, name="desk", cost_calculator=TOKEN_IS_MICROCENT).run_stream(
        "hi"
    ) as stream:
        outputs = [output.subject async for output in stream.stream_output(debounce_by=None)]
    assert outputs[0] == outputs[-1] == "hub is offline"
    assert {scope for _, scope in seen} == {"desk"}
    assert seen[-1][0] is False


@in_virtual_time
async def test_structured_output_has_no_text() -> None:
    async with tickets().run_stream("hi") as stream:
        with pytest.raises(
            ConfigurationError, match=r"stream_text=.*stream_output\(\) has the output so far"
        ):
            async for _ in stream.stream_text():
                pass


@in_virtual_time
async def test_an_error_comes_after_what_was_read_before_it() -> None:
    async def breaks(prompt: str) -> AsyncIterator[str]:
        yield "Once "
        raise RuntimeError("the line is cut")

    texts = list[str]()
    with pytest.raises(RuntimeError, match="the line is cut"):
        async with streaming_agent(breaks).run_stream("hi") as stream:
            async for text in stream.stream_text():
                texts.append(text)
    assert texts == ["Once "]


def test_other_names_of_pydantic_ais_stream_say_where_the_value_is() -> None:
    stream: Any = tickets().run_stream("hi")
    public = {name for name in vars(StreamedRunResult) if not name.startswith("_")}
    for name in sorted(public | {"is_complete"}):
        if not hasattr(ChatStream, name) and name != "response":
            with pytest.raises(AttributeError, match="there is stream"):
                getattr(stream, name)
    with pytest.raises(AttributeError, match="object has no attribute 'txet'"):
        stream.txet  # noqa: B018
