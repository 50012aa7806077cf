"""Streams: to the end, left early in every way there is, and broken by the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import AgentRunResultEvent, NativeOutput, RunContext
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UserError
from pydantic_ai.messages import AgentStreamEvent, PartDeltaEvent
from pydantic_ai.models import Model, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from support.accounting import Account
from support.passing_time import time_passes
from support.patience import PATIENCE

from fastroai import ChatResponse, FastroAgent, SpendLimit
from fastroai.agent import ChatStream, ResponseEvent, StreamChunk
from fastroai.errors import usage_of
from fastroai.store import MemorySpendStore
from fastroai.testing import Fault, ModelServer, Reply, ToolCall, Usage

STORY = "Once upon a time there was a token that nobody had counted. " * 8
LONG = Reply(STORY, usage=Usage(40, 120))
"""Some thirty chunks, so that whoever leaves early is still early."""


class City(BaseModel):
    name: str = ""  # with defaults, so that there is something of it before its end
    population: int = 0


PARIS: dict[str, Any] = {"name": "Paris", "population": 2_100_000}


def weather(city: str) -> str:
    """The weather."""
    return f"rain in {city}"


def storyteller(model: Model) -> FastroAgent[object, str]:
    """An agent whose answers have a bound that is worth its name."""
    return FastroAgent(model, max_tokens=500, request_retries=0)


# --- to the end ---


async def test_a_stream_to_its_end_is_settled_and_its_last_chunk_has_the_account(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(Reply(STORY, usage=Usage(40, 120, cache_read_tokens=32)))
    chunks = [chunk async for chunk in storyteller(model).run_stream("Tell me")]
    assert "".join(chunk.content for chunk in chunks) == STORY
    assert len(chunks) > 10
    assert [chunk.is_final for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    response = chunks[-1].usage_data
    assert response is not None
    assert response.output == chunks[-1].output == STORY
    account.assert_matches(response.usage)
    assert account.outcomes == ["settled"]


async def test_a_stream_in_a_block_gives_the_response_after_the_loop(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(LONG)
    async with storyteller(model).run_stream("Tell me") as stream:
        async for _ in stream:
            pass
        assert stream.response is not None
        assert stream.usage == stream.response.usage
        account.assert_matches(stream.response.usage)


async def test_a_loop_in_a_block_can_be_left_and_taken_up_again(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(LONG)
    text = ""
    async with storyteller(model).run_stream("Tell me") as stream:
        async for chunk in stream:
            text += chunk.content
            break
        async for chunk in stream:
            text += chunk.content
    assert text == STORY
    account.assert_matches()
    assert account.outcomes == ["settled"]


async def test_a_tool_loop_is_streamed_and_charged_request_by_request(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(
        Reply(tool_calls=[ToolCall("weather", {"city": "Paris"})], usage=Usage(200, 20)),
        Reply("Rain in Paris", usage=Usage(260, 4)),
    )
    agent = FastroAgent(model, tools=[weather])
    chunks = [chunk async for chunk in agent.run_stream("?")]
    assert "".join(chunk.content for chunk in chunks) == "Rain in Paris"
    assert chunks[-1].usage_data is not None
    account.assert_matches(chunks[-1].usage_data.usage)
    assert len(account.records) == 2


@pytest.mark.parametrize("output_type", [City, NativeOutput(City)], ids=["tool", "native"])
async def test_structured_output_streams_too(
    server: ModelServer, model: Model, account: Account, output_type: type[City]
) -> None:
    server.script(Reply(data=PARIS, usage=Usage(100, 30), chunk_size=4))
    agent = FastroAgent(model, output_type=output_type)
    chunks = [chunk async for chunk in agent.run_stream("?")]
    assert all(chunk.content == "" for chunk in chunks)
    assert chunks[-1].output == City(**PARIS)
    assert chunks[-1].usage_data is not None
    account.assert_matches(chunks[-1].usage_data.usage)


async def test_the_events_of_a_run_end_with_its_account(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(
        Reply(tool_calls=[ToolCall("weather", {"city": "Paris"})], usage=Usage(200, 20)),
        Reply("Rain", usage=Usage(260, 4)),
    )
    events = [event async for event in FastroAgent(model, tools=[weather]).run_stream_events("?")]
    *_, result, last = events
    assert isinstance(result, AgentRunResultEvent)
    assert isinstance(last, ResponseEvent)
    response: ChatResponse[str] = last.response
    assert response.output == result.result.output == "Rain"
    account.assert_matches(response.usage)


# --- left early ---


class ConsumerError(Exception):
    """Something that goes wrong in the code that reads a stream."""


async def leave_by_break(stream: ChatStream[str]) -> None:
    async with aclosing(aiter(stream)) as chunks:  # type: ignore[type-var]
        async for _ in chunks:
            break


async def leave_the_block(stream: ChatStream[str]) -> None:
    async with stream:
        async for _ in stream:
            break


async def leave_by_exception(stream: ChatStream[str]) -> None:
    with pytest.raises(ConsumerError):
        async with stream:
            async for _ in stream:
                raise ConsumerError


async def leave_by_cancellation(stream: ChatStream[str]) -> None:
    reading = asyncio.Event()

    async def consume() -> None:
        async with stream:
            async for _ in stream:
                reading.set()
                await asyncio.Event().wait()

    consumer = asyncio.create_task(consume())
    await asyncio.wait_for(reading.wait(), PATIENCE)
    consumer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consumer


async def leave_while_waiting(stream: ChatStream[str]) -> None:
    reading = asyncio.Event()

    async def consume() -> None:
        async for _ in stream:
            reading.set()

    consumer = asyncio.create_task(consume())
    await asyncio.wait_for(reading.wait(), PATIENCE)
    for _ in range(5):  # until it waits for what will not come
        await asyncio.sleep(0)
    consumer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consumer


async def leave_by_closing(stream: ChatStream[str]) -> None:
    await anext(aiter(stream))
    await stream.aclose()
    await stream.aclose()


WAYS_TO_LEAVE = [
    leave_by_break,
    leave_the_block,
    leave_by_exception,
    leave_by_cancellation,
    leave_while_waiting,
    leave_by_closing,
]


@pytest.mark.parametrize("leave", WAYS_TO_LEAVE)
async def test_a_stream_left_early_is_charged_at_its_bound(
    server: ModelServer,
    model: Model,
    account: Account,
    leave: Callable[[ChatStream[str]], Awaitable[None]],
) -> None:
    server.script(Reply(STORY, usage=Usage(40, 120), fault=Fault.hang(after=3)))
    stream = storyteller(model).run_stream("Tell me")
    await leave(stream)
    account.assert_matches(stream.usage)
    assert account.outcomes == ["unmeasured"]
    assert stream.usage.committed_usd > 0
    assert stream.response is None
    assert [chunk async for chunk in stream] == [], "it has ended"
    # The connection is closed at once: nobody goes on paying for text that nobody reads.
    [entry] = await server.ledger.wait_for(1, state="finished")
    assert entry.client_disconnected


async def test_an_error_of_the_consumer_does_not_pass_for_a_refusal_of_the_stream(
    server: ModelServer, model: Model, account: Account
) -> None:
    """Whoever reads the stream can fail with an error that, of the stream itself, would mean unbilled."""
    server.script(Reply(STORY, usage=Usage(40, 120)), Reply(fault=Fault.status(400)))
    judge = FastroAgent(server.model("openai-chat:gpt-5-mini"), name="judge")

    async def watch(context: RunContext[object], events: AsyncIterable[AgentStreamEvent]) -> None:
        async for _ in events:
            await judge.run("Is it good so far?")

    with pytest.raises(ModelHTTPError) as caught:
        await storyteller(model).run("Tell me", event_stream_handler=watch)
    account.assert_matches(usage_of(caught.value))
    assert account.outcomes == ["released", "unmeasured"]


@pytest.mark.parametrize("error", [ModelHTTPError(400, "other"), UserError("not this one")], ids=repr)
async def test_an_error_of_a_wrapper_does_not_pass_for_a_refusal_of_the_stream(
    server: ModelServer, model: Model, account: Account, error: Exception
) -> None:
    class Censor(WrapperModel):
        @asynccontextmanager
        async def request_stream(self, *args: Any) -> AsyncGenerator[StreamedResponse]:
            async with self.wrapped.request_stream(*args) as stream:
                await anext(aiter(stream))
                raise error
                yield

    server.script(Reply(STORY, usage=Usage(40, 120), fault=Fault.hang(after=3)))
    with pytest.raises(type(error)):
        async for _ in storyteller(Censor(model)).run_stream("Tell me"):
            pass
    account.assert_matches()
    assert account.outcomes == ["unmeasured"]
    assert account.records[0].response_id == server.ledger.entries[0].response_id


async def test_a_plain_break_out_of_the_loop_settles_when_the_run_around_it_ends(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(Reply(STORY, usage=Usage(40, 120), fault=Fault.hang(after=3)))
    async for _ in storyteller(model).run_stream("Tell me"):
        break
    await account.scope.end_inside()
    account.assert_matches()
    assert account.outcomes == ["unmeasured"]


async def test_a_stream_whose_end_was_on_its_way_when_it_was_left_is_charged_once(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(Reply("A short one", usage=Usage(40, 3)))
    async with storyteller(model).run_stream("Tell me") as stream:
        async for _ in stream:
            await server.ledger.wait_for(1, state="finished")
            break
    account.assert_matches()
    assert len(account.records) == 1


async def test_a_stream_that_nobody_iterates_sends_and_costs_nothing(
    server: ModelServer, model: Model, account: Account
) -> None:
    storyteller(model).run_stream("Tell me")
    async with storyteller(model).run_stream("Tell me"):
        pass
    await account.scope.end_inside()
    assert server.ledger.entries == ()
    assert account.records == []
    assert account.usage.agent_call_count == 0


async def test_events_left_early_are_charged_at_the_bound(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(Reply(STORY, usage=Usage(40, 120), fault=Fault.hang(after=3)))
    async with storyteller(model).run_stream_events("Tell me") as events:
        async for event in events:
            if isinstance(event, PartDeltaEvent):
                break
    account.assert_matches()
    assert account.outcomes == ["unmeasured"]


async def test_structured_output_is_there_as_it_is_written_and_can_be_left(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(Reply(data=PARIS, usage=Usage(100, 30), chunk_size=2, fault=Fault.hang(after=7)))
    async with FastroAgent(model, output_type=City, max_tokens=200).run_stream("?") as stream:
        async for chunk in stream:
            assert chunk.output is not None
            assert "Paris".startswith(chunk.output.name)
            assert chunk.output.population == 0
            break
    account.assert_matches()
    assert account.outcomes == ["unmeasured"]


# --- cancelled, and read on ---


async def read_until_cancelled(
    stream: ChatStream[Any], after: Coroutine[Any, Any, object]
) -> list[StreamChunk[Any]]:
    """Read a stream that another task cancels after something."""

    async def cancel() -> None:
        await asyncio.wait_for(after, PATIENCE)
        await stream.cancel()

    cancelling = asyncio.create_task(cancel())
    chunks = [chunk async for chunk in stream]
    await cancelling
    assert stream.cancelled
    return chunks


async def assert_settled(limit: SpendLimit, usd: object) -> None:
    """The limit has counted so much, and soon holds nothing back any more."""
    async with asyncio.timeout(PATIENCE):
        while (status := await limit.status()).reserved_usd:
            await asyncio.sleep(0.01)
    assert status.spent_usd == usd


def daily() -> SpendLimit:
    """A limit of a test of its own."""
    return SpendLimit(usd=1, window="day", key="streams", store=MemorySpendStore())


@pytest.mark.parametrize("hangs", [True, False], ids=["awaited", "unread"])
async def test_a_cancelled_answer_ends_with_its_text_and_is_charged_at_its_bound(
    server: ModelServer, model: Model, account: Account, hangs: bool
) -> None:
    server.script(Reply(STORY * 20, usage=Usage(40, 120), fault=Fault.hang(after=3) if hangs else None))
    limit, text = daily(), ""
    async with storyteller(model).run_stream("Tell me", budget=limit) as stream:
        async for chunk in stream:
            text += chunk.content
            for _ in range(20 if hangs else 0):  # until more is awaited
                await asyncio.sleep(0)
            await stream.cancel()
    response = stream.response
    assert stream.cancelled
    assert response is not None
    assert STORY.startswith(text[: len(STORY)])
    assert response.output == text != ""
    assert (response.is_cut, response.is_measured) == (True, False)
    account.assert_matches(response.usage)
    [record] = account.records
    assert (record.outcome, record.use, record.error) == ("unmeasured", "kept", "the answer ended early")
    await assert_settled(limit, record.bound_usd)
    [entry] = await server.ledger.wait_for(1, state="finished")
    assert entry.client_disconnected or not hangs  # else the server may have sent all of it


async def test_a_cancelled_structured_output_has_no_response_and_is_charged_at_its_bound(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(Reply(data=PARIS, usage=Usage(100, 30), chunk_size=2, fault=Fault.hang(after=7)))
    async with FastroAgent(model, output_type=City, max_tokens=200).run_stream("?") as stream:
        async for chunk in stream:
            assert not chunk.is_final
            await stream.cancel()
    assert stream.cancelled
    assert stream.response is None
    account.assert_matches(stream.usage)
    assert account.outcomes == ["unmeasured"]


async def test_a_cancel_while_a_tool_runs_ends_the_call_and_sends_nothing_more(
    server: ModelServer, model: Model, account: Account
) -> None:
    runs = asyncio.Event()

    async def wait(city: str) -> None:
        runs.set()
        await asyncio.Event().wait()

    server.script(Reply(tool_calls=[ToolCall("wait", {"city": "Paris"})], usage=Usage(200, 20)))
    limit = daily()
    stream = FastroAgent(model, tools=[wait], max_tokens=500).run_stream("?", budget=limit)
    assert await read_until_cancelled(stream, runs.wait()) == []
    assert stream.response is None
    account.assert_matches(stream.usage)
    assert account.outcomes == ["settled"]
    await assert_settled(limit, account.records[0].cost_usd)


async def test_a_cancel_before_the_first_piece_ends_the_call_and_is_charged_at_its_bound(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(Reply(STORY, usage=Usage(40, 120), fault=Fault.hang()))
    limit = daily()
    stream = storyteller(model).run_stream("Tell me", budget=limit)
    assert await read_until_cancelled(stream, server.ledger.wait_for(1)) == []
    assert stream.response is None
    account.assert_matches(stream.usage)
    assert account.outcomes == ["unmeasured"]
    await assert_settled(limit, account.records[0].bound_usd)


# --- broken by the server ---


async def test_a_stream_cut_by_the_server_is_charged_at_its_bound(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(Reply(STORY, usage=Usage(40, 120), fault=Fault.cut(after=5)))
    with pytest.raises(ModelAPIError) as caught:
        async for _ in storyteller(model).run_stream("Tell me"):
            pass
    account.assert_matches(usage_of(caught.value))
    assert account.outcomes == ["unmeasured"]


async def test_a_stream_with_an_event_that_is_no_json_is_charged_at_its_bound(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(Reply(STORY, usage=Usage(40, 120), fault=Fault.malformed(after=5)))
    with pytest.raises(ModelAPIError) as caught:
        async for _ in storyteller(model).run_stream("Tell me"):
            pass
    account.assert_matches(usage_of(caught.value))
    assert account.outcomes == ["unmeasured"]


@pytest.mark.filterwarnings("ignore:Failed to extract usage")  # PydanticAI says so of Anthropic
async def test_a_stream_without_usage_is_charged_at_its_bound(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(Reply(STORY, usage=Usage(40, 120), fault=Fault.missing_usage()))
    async with storyteller(model).run_stream("Tell me") as stream:
        async for _ in stream:
            pass
    assert stream.response is not None
    assert stream.response.output == STORY
    account.assert_matches(stream.response.usage)
    assert account.outcomes == ["unmeasured"]


async def test_a_stream_without_a_finish_reason_is_charged_at_its_bound(
    server: ModelServer, model: Model, account: Account, reference: str
) -> None:
    server.script(Reply(STORY, usage=Usage(40, 120), fault=Fault.missing_finish_reason()))
    async with storyteller(model).run_stream("Tell me") as stream:
        async for _ in stream:
            pass
    assert stream.response is not None
    account.assert_matches(stream.response.usage)
    # Chat Completions tells its usage after everything else: with it, the stream was whole.
    assert account.outcomes == ["settled" if reference.startswith("openai-chat") else "unmeasured"]


async def test_a_stream_refused_before_its_first_chunk_is_tried_again(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(LONG)
    server.fail_next(2, Fault.status(429, retry_after=0))
    agent = FastroAgent(model, max_tokens=500)
    chunks = [chunk async for chunk in agent.run_stream("Tell me")]
    assert chunks[-1].usage_data is not None
    account.assert_matches(chunks[-1].usage_data.usage)
    assert account.outcomes == ["released", "released", "settled"]
    assert [record.attempt for record in account.records] == [1, 2, 3]


async def test_a_stream_that_broke_after_its_first_chunk_is_not_tried_again(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(Reply(STORY, usage=Usage(40, 120), fault=Fault.cut(after=2)), LONG)
    with pytest.raises(ModelAPIError):
        async for _ in FastroAgent(model, max_tokens=500).run_stream("Tell me"):
            pass
    account.assert_matches()
    assert account.outcomes == ["unmeasured"]


async def test_a_request_of_a_tool_loop_that_breaks_leaves_the_earlier_ones_settled(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(
        Reply(tool_calls=[ToolCall("weather", {"city": "Paris"})], usage=Usage(200, 20)),
        Reply(STORY, usage=Usage(60, 120), fault=Fault.cut(after=3)),
    )
    agent = FastroAgent(model, tools=[weather], max_tokens=500, request_retries=0)
    with pytest.raises(ModelAPIError) as caught:
        async for _ in agent.run_stream("?"):
            pass
    account.assert_matches(usage_of(caught.value))
    assert account.outcomes == ["settled", "unmeasured"]


# --- time ---


async def test_a_stream_that_stalls_runs_out_of_time_and_is_charged_at_its_bound(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(Reply(STORY, usage=Usage(40, 120), fault=Fault.hang(after=3)))
    with pytest.raises(TimeoutError) as caught:
        async for _ in FastroAgent(model, timeout=60, max_tokens=500).run_stream("Tell me"):
            asyncio.get_running_loop().call_later(0.1, time_passes, 60)  # while it waits for more
    account.assert_matches(usage_of(caught.value))
    assert account.outcomes == ["unmeasured"]
