"""`ctx.run_stream`: text as it comes, and an account that is always settled."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from support.agents import streaming_agent
from support.leftovers import assert_no_task_is_left
from support.steps import failure_of, run_alone
from support.virtual_time import in_virtual_time, now

from fastroai.agent import ChatStream
from fastroai.errors import TimeLimitExceeded, usage_of
from fastroai.pipelines import Pipeline, PipelineConfig, StepContext, TextChunk, step


async def words(prompt: str) -> AsyncIterator[str]:
    for word in ("one ", "two ", "three"):
        yield word


async def slow_words(prompt: str) -> AsyncIterator[str]:
    for word in ("one ", "two ", "three"):
        await asyncio.sleep(2)
        yield word


async def endless(prompt: str) -> AsyncIterator[str]:
    while True:
        yield "more "


async def test_a_stream_read_to_its_end_is_settled_on_the_step() -> None:
    async def read(ctx: StepContext) -> str:
        text = ""
        stream = ctx.run_stream(streaming_agent(words), "hello")
        async for chunk in stream:
            text += chunk.content
        assert ctx.usage.request_count == 1
        assert stream.response is not None
        assert stream.response.output == text
        return text

    result = await run_alone(read)
    assert result.output == "one two three"
    [record] = result.usage.steps["alone"].records
    assert (record.outcome, record.streamed, record.step_id) == ("settled", True, "alone")
    assert result.usage.cost_microcents == record.tokens.total_tokens


async def test_a_stream_that_is_left_early_is_settled_when_it_is_left() -> None:
    async def read(ctx: StepContext) -> Any:
        async with ctx.run_stream(streaming_agent(endless), "hello") as stream:
            async for chunk in stream:
                assert chunk.content == "more "
                break
        assert ctx.usage.request_count == 1
        assert_no_task_is_left_but(2)

    result = await run_alone(read)
    assert result.usage.request_count == 1


def assert_no_task_is_left_but(number: int) -> None:
    """The test and the step's worker."""
    assert len(asyncio.all_tasks()) == number


async def test_a_stream_that_nobody_closes_is_settled_when_the_step_ends() -> None:
    kept: list[ChatStream[Any]] = []

    async def read(ctx: StepContext) -> None:
        stream = ctx.run_stream(streaming_agent(endless), "hello")
        kept.append(stream)
        assert (await anext(aiter(stream))).content == "more "

    result = await run_alone(read)
    assert result.usage.steps["alone"].request_count == 1
    assert_no_task_is_left()
    assert [chunk async for chunk in kept[0]] == [], "it has ended"


async def test_a_stream_that_nobody_reads_sends_nothing() -> None:
    async def read(ctx: StepContext) -> None:
        ctx.run_stream(streaming_agent(endless), "hello")

    assert (await run_alone(read)).usage.request_count == 0


async def test_text_is_told_to_who_listens_to_the_pipeline() -> None:
    @step
    async def read(ctx: StepContext) -> str:
        return "".join([chunk.content async for chunk in ctx.run_stream(streaming_agent(words), "hello")])

    events = [event async for event in Pipeline[None, Any, str]("p", {"read": read}).stream()]
    chunks = [event for event in events if isinstance(event, TextChunk)]
    assert [(chunk.step_id, chunk.text) for chunk in chunks] == [
        ("read", "one "),
        ("read", "two "),
        ("read", "three"),
    ]


@in_virtual_time
async def test_the_steps_clock_pauses_while_the_model_is_waited_for() -> None:
    @step(timeout=3)
    async def read(ctx: StepContext) -> float:
        async for _ in ctx.run_stream(streaming_agent(slow_words), "hello", timeout=100):
            pass
        return now()

    assert (await run_alone(read)).output == 6


@in_virtual_time
async def test_the_time_that_the_step_takes_between_chunks_is_its_own() -> None:
    @step(timeout=3)
    async def read(ctx: StepContext) -> None:
        async for _ in ctx.run_stream(streaming_agent(slow_words), "hello", timeout=100):
            await asyncio.sleep(2)

    error = await failure_of(read)
    assert isinstance(error, TimeLimitExceeded)
    assert error.what == "step 'alone'"
    assert_no_task_is_left()


@in_virtual_time
async def test_a_model_that_takes_too_long_times_out_by_the_steps_timeout() -> None:
    @step(timeout=3)
    async def read(ctx: StepContext) -> None:
        async for _ in ctx.run_stream(streaming_agent(slow_words), "hello"):
            pass

    error = await failure_of(read)
    assert isinstance(error, TimeLimitExceeded)
    assert error.what == "agent 'agent'"
    assert now() == 3


@in_virtual_time
async def test_a_stream_is_tried_again_before_its_first_chunk_only() -> None:
    opened = 0

    async def flaky(prompt: str) -> AsyncIterator[str]:
        nonlocal opened
        opened += 1
        if opened < 3:
            raise ModelHTTPError(503, "m")
        yield "here"

    @step(retries=2)
    async def read(ctx: StepContext) -> str:
        return "".join([chunk.content async for chunk in ctx.run_stream(streaming_agent(flaky), "hello")])

    assert (await run_alone(read)).output == "here"

    async def breaks(prompt: str) -> AsyncIterator[str]:
        nonlocal opened
        opened += 1
        yield "half "
        raise ModelHTTPError(503, "m")

    @step
    async def reads_half(ctx: StepContext) -> None:
        async for _ in ctx.run_stream(streaming_agent(breaks), "hello", retries=5):
            pass

    opened = 0
    await failure_of(reads_half)
    assert opened == 1


async def test_a_cancelled_step_leaves_no_stream_behind_and_what_it_spent_is_known() -> None:
    reading = asyncio.Event()

    async def read(ctx: StepContext) -> None:
        async for _ in ctx.run_stream(streaming_agent(endless), "hello"):
            reading.set()
            await asyncio.Event().wait()

    run = asyncio.create_task(run_alone(read, config=PipelineConfig(on_error="continue")))
    await reading.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await run
    assert_no_task_is_left()
    spent = usage_of(caught.value)
    assert spent is not None
    assert spent.request_count == 1
