"""Streams: their options, and their time limits on a loop whose time passes only while everything waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from pydantic_ai.messages import PartDeltaEvent
from pydantic_ai.models.test import TestModel
from support.agents import streaming_agent
from support.virtual_time import in_virtual_time, now

from fastroai import FastroAgent, TimeLimitExceeded
from fastroai.records import Usage


def words(*pauses: float) -> object:
    """A model that writes a word after each of these pauses."""

    async def write(prompt: str) -> AsyncIterator[str]:
        for pause in pauses:
            await asyncio.sleep(pause)
            yield "word "

    return write


@in_virtual_time
async def test_the_timeout_does_not_run_while_the_reader_takes_its_time() -> None:
    agent = streaming_agent(words(1, 1, 1), timeout=5)  # type: ignore[arg-type]
    async for _ in agent.run_stream("?"):
        await asyncio.sleep(60)
    assert now() > 180


@in_virtual_time
async def test_the_timeout_does_not_run_while_the_reader_of_events_takes_its_time() -> None:
    agent = streaming_agent(words(1, 1, 1), timeout=5)  # type: ignore[arg-type]
    async for event in agent.run_stream_events("?"):
        if isinstance(event, PartDeltaEvent):
            await asyncio.sleep(60)
    assert now() > 60


@pytest.mark.parametrize("pauses", [(10,), (1, 10), (2, 2, 2, 2)])
@in_virtual_time
async def test_the_timeout_is_for_all_the_waiting_for_the_provider_together(
    pauses: tuple[float, ...],
) -> None:
    agent = streaming_agent(words(*pauses), timeout=5)  # type: ignore[arg-type]
    with pytest.raises(TimeLimitExceeded):
        async for _ in agent.run_stream("?"):
            await asyncio.sleep(60)


@in_virtual_time
async def test_what_a_stream_has_spent_can_be_asked_at_any_time() -> None:
    stream = streaming_agent(words(1, 1)).run_stream("?")  # type: ignore[arg-type]
    assert stream.usage == Usage()
    async with stream:
        async for _ in stream:
            pass
        assert stream.usage.request_count == 1
    assert stream.response is not None
    assert stream.usage == stream.response.usage


@in_virtual_time
async def test_a_stream_that_was_read_to_its_end_has_nothing_more() -> None:
    stream = streaming_agent(words(1, 1, 1, 1)).run_stream("?")  # type: ignore[arg-type]
    async with stream:
        first = [chunk.content async for chunk in stream]
        assert [chunk async for chunk in stream] == []
    assert "".join(first) == "word " * 4


@pytest.mark.parametrize("method", ["run_stream", "run_stream_events"])
def test_an_option_that_streams_do_not_have_is_refused(method: str) -> None:
    stream = getattr(FastroAgent(TestModel()), method)
    message = rf"FastroAgent\.{method}\(\) got an unexpected keyword argument 'attempt'"
    with pytest.raises(TypeError, match=message):
        stream("hi", attempt=2, timeout=1)
