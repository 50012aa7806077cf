"""A run as a stream of typed events."""

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest
from support.agents import paid_agent, streaming_agent
from support.leftovers import assert_no_task_is_left

from fastroai.errors import ConfigurationError, StepExecutionError
from fastroai.pipelines import (
    BasePipeline,
    BaseStep,
    Pipeline,
    PipelineConfig,
    RunEvent,
    RunFinished,
    RunStarted,
    SpendRecorded,
    StepContext,
    StepFailed,
    StepFinished,
    StepRetried,
    StepSkipped,
    StepStarted,
    TextChunk,
    step,
)


@step
async def works(ctx: StepContext) -> str:
    await ctx.run(paid_agent(100), "hello")
    return f"output of {ctx.step_id}"


@step
async def fails(ctx: StepContext) -> None:
    raise ValueError("x")


@step
async def hangs(ctx: StepContext) -> None:
    await asyncio.Event().wait()


async def events_of(pipeline: Pipeline[Any, Any], *args: Any) -> list[RunEvent]:
    return [event async for event in pipeline.stream(*args)]


def told(events: list[RunEvent]) -> list[str]:
    """Kind and step of each event."""
    return [f"{type(event).__name__} {_about(event)}" for event in events]


def _about(event: RunEvent) -> str:
    of_run = isinstance(event, RunStarted | RunFinished | SpendRecorded)
    return event.pipeline if of_run else str(getattr(event, "step_id", event.pipeline))


async def test_events_come_in_the_order_in_which_things_happen() -> None:
    events = await events_of(Pipeline[Any, Any]("p", {"a": works, "b": works}, {"b": ["a"]}))
    assert told(events) == [
        "RunStarted p",
        "StepStarted a",
        "SpendRecorded p",
        "StepFinished a",
        "StepStarted b",
        "SpendRecorded p",
        "StepFinished b",
        "RunFinished p",
    ]
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert {event.run_id for event in events} == {events[0].run_id}
    assert {event.pipeline for event in events} == {"p"}


async def test_each_event_says_what_there_is_to_know() -> None:
    pipeline = Pipeline[Any, Any]("p", {"a": works, "b": works}, {"b": ["a"]})
    stream = pipeline.stream()
    events = [event async for event in stream]
    started, a_started, a_spent, a_finished, b_started, _, _, finished = events
    assert isinstance(started, RunStarted)
    assert started.steps == ("a", "b")
    assert isinstance(a_started, StepStarted)
    assert isinstance(b_started, StepStarted)
    assert (a_started.cause, b_started.cause) == (
        "it needs no other step",
        "'a' was the last that it needed",
    )
    assert isinstance(a_spent, SpendRecorded)
    assert (a_spent.record.step_id, a_spent.record.cost_usd) == ("a", Decimal("0.0001"))
    assert a_spent.scope_path == ("p", "a", "agent")
    assert isinstance(a_finished, StepFinished)
    assert (a_finished.output, a_finished.usage.cost_microcents) == ("output of a", 100)
    assert a_finished.duration_ms > 0
    assert isinstance(finished, RunFinished)
    assert (finished.usage.cost_microcents, finished.error) == (200, None)
    assert finished.duration_ms >= a_finished.duration_ms
    assert stream.result is not None
    assert stream.result.output == "output of b"
    assert stream.result.run_id == finished.run_id


async def test_inputs_and_deps_arrive() -> None:
    @step
    async def tells(ctx: StepContext[str]) -> str:
        return f"{ctx.get_input('text')} {ctx.deps}"

    stream = Pipeline[str, Any, str]("p", {"tells": tells}).stream({"text": "hello"}, "deps")
    async for _ in stream:
        pass
    assert stream.result is not None
    assert stream.result.output == "hello deps"


async def test_a_failure_is_told_and_then_raised_where_the_events_are_read() -> None:
    pipeline = Pipeline[Any, Any]("p", {"a": works, "b": fails, "c": works}, {"b": ["a"], "c": ["b"]})
    events: list[RunEvent] = []

    async def read() -> None:
        async for event in pipeline.stream():
            events.append(event)

    with pytest.raises(StepExecutionError) as caught:
        await read()
    assert told(events)[-4:] == ["StepStarted b", "StepFailed b", "StepSkipped c", "RunFinished p"]
    failed, skipped, finished = events[-3:]
    assert isinstance(skipped, StepSkipped)
    assert skipped.cause == "'b' failed"
    assert isinstance(failed, StepFailed)
    assert isinstance(failed.error, ValueError)
    assert isinstance(finished, RunFinished)
    assert finished.error is caught.value
    assert caught.value.step_outputs == {"a": "output of a"}


async def test_what_is_skipped_is_told_with_the_reason() -> None:
    pipeline = Pipeline[Any, Any](
        "p",
        {"a": fails, "b": works, "c": works},
        {"b": ["a"], "c": ["b"]},
        config=PipelineConfig(on_error="continue"),
    )
    skipped = [event for event in await events_of(pipeline) if isinstance(event, StepSkipped)]
    assert [(event.step_id, event.cause) for event in skipped] == [
        ("b", "it needs 'a', which failed"),
        ("c", "it needs 'a', which failed"),
    ]


async def test_a_step_that_is_tried_again_is_told_before_it_fails_for_good() -> None:
    pipeline = Pipeline[Any, Any](
        "p", {"a": fails}, config=PipelineConfig(retries=2, retry_delay=0, on_error="continue")
    )
    events = await events_of(pipeline)
    assert told(events)[1:-1] == ["StepStarted a", "StepRetried a", "StepRetried a", "StepFailed a"]
    assert [event.attempt for event in events if isinstance(event, StepRetried)] == [1, 2]


async def test_text_that_a_step_streams_comes_as_it_is_written() -> None:
    """The model goes on only after the reader has seen what it wrote: there is no buffer in between."""
    seen = asyncio.Event()

    async def writes(prompt: str) -> AsyncIterator[str]:
        yield "one "
        await seen.wait()
        yield "two"

    @step
    async def reads(ctx: StepContext) -> None:
        async for _ in ctx.run_stream(streaming_agent(writes), "hello"):
            pass

    texts: list[str] = []
    async for event in Pipeline[Any, Any]("p", {"reads": reads}).stream():
        if isinstance(event, TextChunk):
            texts.append(event.text)
            seen.set()
    assert texts == ["one ", "two"]


async def test_nested_pipelines_tell_their_own_events() -> None:
    inner = Pipeline[Any, Any]("inner", {"x": works})
    events = await events_of(Pipeline[Any, Any]("outer", {"nested": inner.as_step()}))
    assert told(events) == [
        "RunStarted outer",
        "StepStarted nested",
        "RunStarted inner",
        "StepStarted x",
        "SpendRecorded inner",
        "StepFinished x",
        "RunFinished inner",
        "StepFinished nested",
        "RunFinished outer",
    ]
    assert len({event.run_id for event in events}) == 1
    paths = {type(event).__name__ + " " + event.pipeline: event.path for event in events}
    assert paths["StepFinished inner"] == ("outer", "nested", "inner")
    assert paths["StepFinished outer"] == ("outer",)


async def test_two_runs_of_one_pipeline_side_by_side_can_be_told_apart() -> None:
    inner = Pipeline[Any, Any]("inner", {"x": works})
    pipeline = Pipeline[Any, Any]("outer", {"a": inner.as_step(), "b": inner.as_step()}, output_step="a")
    finished = [event for event in await events_of(pipeline) if isinstance(event, StepFinished)]
    assert {event.path for event in finished if event.pipeline == "inner"} == {
        ("outer", "a", "inner"),
        ("outer", "b", "inner"),
    }


async def test_a_nested_router_passes_events_on() -> None:
    class Only(BasePipeline[Any, Any]):
        async def route(self, inputs: Any, deps: Any) -> str:
            return "one"

    router = Only("router")
    router.register_pipeline("one", Pipeline[Any, Any]("inner", {"x": works}))
    events = await events_of(Pipeline[Any, Any]("outer", {"nested": router.as_step()}))
    assert "StepFinished x" in told(events)


# --- the reader ---


async def test_leaving_the_block_early_cancels_the_run_and_waits_for_its_end() -> None:
    pipeline = Pipeline[Any, Any]("p", {"a": works, "hangs": hangs}, output_step="a")
    async with pipeline.stream() as stream:
        async for event in stream:
            if isinstance(event, StepFinished):
                break
    assert_no_task_is_left()
    assert stream.result is None


async def test_inside_the_block_reading_can_be_taken_up_again() -> None:
    pipeline = Pipeline[Any, Any]("p", {"a": works, "b": works}, {"b": ["a"]})
    events: list[RunEvent] = []
    async with pipeline.stream() as stream:
        async for event in stream:
            events.append(event)
            break
        async for event in stream:
            events.append(event)
    assert told(events)[0] == "RunStarted p"
    assert told(events)[-1] == "RunFinished p"
    assert stream.result is not None


async def test_leaving_the_loop_early_without_a_block_cancels_the_run_too() -> None:
    pipeline = Pipeline[Any, Any]("p", {"a": works, "hangs": hangs}, output_step="a")
    events = aiter(pipeline.stream())
    await anext(events)
    await events.aclose()  # type: ignore[attr-defined]  # which leaving `async for` does
    assert_no_task_is_left()


async def test_an_error_in_the_block_cancels_the_run() -> None:
    pipeline = Pipeline[Any, Any]("p", {"hangs": hangs})

    async def read() -> None:
        async with pipeline.stream() as stream:
            async for _ in stream:
                raise LookupError("the reader's")

    with pytest.raises(LookupError):
        await read()
    assert_no_task_is_left()


async def test_nothing_runs_before_the_first_event_is_asked_for() -> None:
    ran = False

    @step
    async def runs(ctx: StepContext) -> None:
        nonlocal ran
        ran = True

    stream = Pipeline[Any, Any]("p", {"a": runs}).stream()
    await asyncio.sleep(0)
    assert not ran
    async with stream:
        pass
    assert not ran


async def test_a_reader_that_does_not_read_holds_the_run_back() -> None:
    """Events are bounded: the run goes on only as fast as they are read, and never gets far ahead."""
    done = 0

    @step
    async def counts(ctx: StepContext) -> None:
        nonlocal done
        done += 1

    names = [str(number) for number in range(500)]
    dependencies = {name: [str(int(name) - 1)] for name in names[1:]}
    pipeline = Pipeline[Any, Any]("p", dict.fromkeys(names, counts), dependencies)
    async with pipeline.stream() as stream:
        async for _ in stream:
            for _ in range(1_000):
                await asyncio.sleep(0)
            assert 0 < done < 20
            break
        async for _ in stream:
            pass
    assert done == 500


async def test_a_failure_while_the_reader_is_slow_still_ends_the_run_with_its_reason() -> None:
    read_on = asyncio.Event()

    @step
    async def fails_later(ctx: StepContext) -> None:
        await read_on.wait()
        raise ValueError("x")

    @step
    async def quick(ctx: StepContext) -> None: ...

    steps: dict[str, BaseStep[Any, Any]] = {f"quick{number}": quick for number in range(40)}
    pipeline = Pipeline[Any, Any]("p", {"fails": fails_later, **steps}, output_step="fails")

    async def read() -> None:
        async for _ in pipeline.stream():
            read_on.set()
            for _ in range(20):
                await asyncio.sleep(0)

    with pytest.raises(StepExecutionError, match="'fails' failed"):
        await read()
    assert_no_task_is_left()


async def test_bad_inputs_are_refused_where_the_events_are_read() -> None:
    with pytest.raises(ConfigurationError, match=r"^inputs="):
        await events_of(Pipeline[Any, Any]("p", {"a": works}), ["not a mapping"])


async def test_the_next_event_can_be_asked_for_one_by_one() -> None:
    async with Pipeline("p", {"a": works}).stream() as stream:
        assert isinstance(await anext(stream), RunStarted)
        assert [event async for event in stream][-1].pipeline == "p"
        assert await anext(stream, None) is None
    assert stream.result is not None
