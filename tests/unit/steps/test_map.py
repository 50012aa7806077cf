"""`ctx.map`: a fan-out whose width is known only while running."""

import asyncio
import math
import random
from typing import Any

import pytest
from support.agents import paid_agent
from support.leftovers import assert_no_task_is_left
from support.steps import failure_of, run_alone
from support.tracing import RecordingTracer
from support.virtual_time import in_virtual_time, now

from fastroai.errors import (
    CancelledInside,
    ConfigurationError,
    CostBudgetExceeded,
    StepExecutionError,
    TimeLimitExceeded,
)
from fastroai.pipelines import (
    Pipeline,
    PipelineConfig,
    RunEvent,
    StepContext,
    StepRetried,
    step,
)


async def sleep(prompt: str) -> None:
    await asyncio.sleep(float(prompt))


@in_virtual_time
async def test_an_agent_answers_every_item_in_order() -> None:
    async def ask(ctx: StepContext) -> list[str]:
        responses = await ctx.map(paid_agent(100, before=sleep), ["3", "1", "2"])
        return [response.output for response in responses]

    result = await run_alone(ask)
    assert result.output == ["answer to 3", "answer to 1", "answer to 2"]
    assert result.usage.steps["alone"].cost_microcents == 300
    assert now() == 3


@pytest.mark.parametrize(("options", "number", "at_once"), [({"concurrency": 3}, 12, 3), ({}, 21, 10)])
@in_virtual_time
async def test_no_more_than_concurrency_run_at_once(
    options: dict[str, int], number: int, at_once: int
) -> None:
    running, most = 0, 0

    async def count(prompt: str) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1

    async def ask(ctx: StepContext) -> None:
        await ctx.map(paid_agent(before=count), ("x" for _ in range(number)), **options)

    await run_alone(ask)
    assert most == at_once
    assert now() == math.ceil(number / at_once)


async def test_a_step_gets_each_item_as_an_input_beside_those_of_the_run() -> None:
    @step
    async def times(ctx: StepContext[int]) -> int:
        return int(ctx.get_input("item") * ctx.get_input("factor") + ctx.deps)

    async def fan_out(ctx: StepContext[int]) -> list[int]:
        return await ctx.map(times, [1, 2, 3])

    assert (await run_alone(fan_out, inputs={"factor": 10}, deps=5)).output == [15, 25, 35]


async def test_a_mapped_step_reads_what_the_step_that_maps_it_can_read() -> None:
    @step
    async def source(ctx: StepContext) -> int:
        return 7

    @step
    async def inner(ctx: StepContext) -> int:
        return ctx.get_dependency("source", int) + int(ctx.get_input("item"))

    @step
    async def middle(ctx: StepContext) -> list[int]:
        return await ctx.map(inner, [ctx.get_input("item"), 100])

    @step
    async def fan_out(ctx: StepContext) -> list[list[int]]:
        return await ctx.map(middle, [1, 2])

    pipeline = Pipeline[None, Any]("p", {"source": source, "fan_out": fan_out}, {"fan_out": ["source"]})
    assert (await pipeline.execute()).output == [[8, 107], [9, 107]]


async def test_a_pipeline_is_mapped_with_the_outputs_that_the_step_depends_on() -> None:
    @step
    async def source(ctx: StepContext) -> int:
        return 7

    @step
    async def inner(ctx: StepContext) -> int:
        return int(ctx.get_input("source") + ctx.get_input("item"))

    nested = Pipeline[None, Any, int]("nested", {"inner": inner}).as_step()

    @step
    async def fan_out(ctx: StepContext) -> list[int]:
        return await ctx.map(nested, [1, 2])

    pipeline = Pipeline[None, Any]("p", {"source": source, "fan_out": fan_out}, {"fan_out": ["source"]})
    assert (await pipeline.execute()).output == [8, 9]


async def test_mapped_steps_are_told_apart_and_their_usage_is_the_steps() -> None:
    @step
    async def inner(ctx: StepContext) -> str:
        await ctx.run(paid_agent(100), "hello")
        return ctx.step_id

    async def fan_out(ctx: StepContext) -> list[str]:
        return await ctx.map(inner, ["a", "b"])

    result = await run_alone(fan_out)
    assert result.output == ["alone[0]", "alone[1]"]
    assert list(result.usage.steps) == ["alone"]
    usage = result.usage.steps["alone"]
    assert usage.cost_microcents == 200
    assert {record.step_id for record in usage.records} == {"alone[0]", "alone[1]"}


@in_virtual_time
async def test_the_first_failure_cancels_the_rest_and_is_the_steps_failure() -> None:
    cancelled: list[str] = []

    @step
    async def inner(ctx: StepContext) -> None:
        try:
            await asyncio.sleep(ctx.get_input("item"))
        except asyncio.CancelledError:
            cancelled.append(ctx.step_id)
            raise
        raise ValueError(ctx.step_id)

    async def fan_out(ctx: StepContext) -> None:
        await ctx.map(inner, [3, 1, 2], concurrency=3)

    assert str(await failure_of(fan_out)) == "alone[1]"
    assert sorted(cancelled) == ["alone[0]", "alone[2]"]
    assert now() == 1
    assert_no_task_is_left()


@in_virtual_time
async def test_a_mapped_agent_is_tried_again_as_the_step_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    failed: set[str] = set()

    async def fail_once(prompt: str) -> None:
        if prompt not in failed:
            failed.add(prompt)
            raise ValueError(prompt)

    @step(retries=1)
    async def fan_out(ctx: StepContext) -> int:
        return len(await ctx.map(paid_agent(before=fail_once), ["a", "b"]))

    assert (await run_alone(fan_out)).output == 2


@in_virtual_time
async def test_a_mapped_step_inherits_what_holds_for_the_step_around_it() -> None:
    @step
    async def inner(ctx: StepContext) -> tuple[Any, ...]:
        return ctx.config.timeout, ctx.config.retries, ctx.config.total_timeout, ctx.config.limits

    @step(timeout=7)
    async def own(ctx: StepContext) -> float | None:
        return ctx.config.timeout

    @step(timeout=2, retries=3, total_timeout=50, cost_budget=9)
    async def fan_out(ctx: StepContext) -> Any:
        return await ctx.map(inner, [1]), await ctx.map(own, [1])

    assert (await run_alone(fan_out)).output == ([(2, 3, None, None)], [7])


@in_virtual_time
async def test_the_steps_own_clock_pauses_and_each_item_has_one() -> None:
    @step
    async def inner(ctx: StepContext) -> None:
        await asyncio.sleep(ctx.get_input("item"))

    @step(timeout=3)
    async def fan_out(ctx: StepContext) -> None:
        await ctx.map(inner, [2, 2, 2], concurrency=1)
        await ctx.map(inner, [5])

    error = await failure_of(fan_out)
    assert isinstance(error, TimeLimitExceeded)
    assert error.what == "step 'alone[0]'"
    assert now() == 9


async def test_the_items_share_the_steps_budget() -> None:
    @step(cost_budget=250)
    async def fan_out(ctx: StepContext) -> None:
        await ctx.map(paid_agent(100), ["x"] * 10, concurrency=1)

    error = await failure_of(fan_out)
    assert isinstance(error, CostBudgetExceeded)
    assert (error.actual_microcents, error.requested_microcents) == (200, 100)
    assert error.usage.request_count == 2


async def test_a_mapped_step_that_is_not_traced_has_no_spans() -> None:
    @step(trace=False)
    async def quiet(ctx: StepContext) -> None:
        await ctx.run(paid_agent(), "hello")

    async def fan_out(ctx: StepContext) -> None:
        await ctx.map(quiet, [1, 2])

    tracer = RecordingTracer()
    await run_alone(fan_out, tracer=tracer)
    assert [span.name for span in tracer.spans] == ["pipeline p", "step alone"]


async def test_listeners_hear_which_item_is_tried_again() -> None:
    @step(retries=1, retry_delay=0)
    async def inner(ctx: StepContext) -> None:
        if ctx.step_id == "fan_out[1]" and ctx.attempt == 1:
            raise ValueError("once")

    @step
    async def fan_out(ctx: StepContext) -> None:
        await ctx.map(inner, [1, 2])

    events: list[RunEvent] = [
        event async for event in Pipeline[None, Any, None]("p", {"fan_out": fan_out}).stream()
    ]
    assert [event.step_id for event in events if isinstance(event, StepRetried)] == ["fan_out[1]"]


async def test_nothing_to_map_is_an_empty_list() -> None:
    async def fan_out(ctx: StepContext) -> list[Any]:
        return await ctx.map(paid_agent(), [])

    assert (await run_alone(fan_out)).output == []


@pytest.mark.parametrize(
    ("option", "value"),
    [*(("concurrency", value) for value in (0, -1, 1.5, None, True)), ("on_error", "ignore")],
)
async def test_an_option_that_cannot_be_meant_is_refused_by_name(option: str, value: Any) -> None:
    options: dict[str, Any] = {option: value}

    async def fan_out(ctx: StepContext) -> None:
        await ctx.map(paid_agent(), ["x"], **options)

    error = await failure_of(fan_out)
    assert isinstance(error, ConfigurationError)
    assert error.option == option


@pytest.mark.parametrize("wrong", ["agent", None, len])
async def test_what_is_neither_agent_nor_step_cannot_be_mapped(wrong: Any) -> None:
    async def fan_out(ctx: StepContext) -> None:
        await ctx.map(wrong, ["x"])

    assert isinstance(await failure_of(fan_out), ConfigurationError)


async def test_an_item_whose_own_task_was_cancelled_has_failed() -> None:
    @step
    async def inner(ctx: StepContext) -> None:
        if ctx.get_input("item") == 2:
            raise asyncio.CancelledError

    async def fan_out(ctx: StepContext) -> None:
        await ctx.map(inner, [1, 2, 3])

    result = await run_alone(fan_out, config=PipelineConfig(on_error="continue"))
    (error,) = result.errors.values()
    assert isinstance(error, CancelledInside)
    assert_no_task_is_left()


# --- failures that are kept ---


def fails_for(*items: int) -> Any:
    @step
    async def half(ctx: StepContext) -> float:
        item = ctx.get_input("item", int)
        await asyncio.sleep(item)
        if item in items:
            raise ValueError(f"{item} is odd")
        return item / 2

    return half


@in_virtual_time
async def test_with_continue_what_finished_is_kept_and_failures_are_in_their_places() -> None:
    async def fan_out(ctx: StepContext) -> list[Any]:
        return await ctx.map(fails_for(1, 3), [4, 1, 2, 3], concurrency=2, on_error="continue")

    four, one, two, three = (await run_alone(fan_out)).output
    assert (four, two) == (2, 1)
    assert (str(one), str(three)) == ("1 is odd", "3 is odd")
    assert now() == 6, "nothing was cancelled, and every item had its turn"


@in_virtual_time
async def test_an_agent_that_fails_for_one_item_is_paid_for_the_others_and_their_answers_are_there() -> None:
    async def refuse(prompt: str) -> None:
        if prompt == "b":
            raise ValueError("no")

    async def fan_out(ctx: StepContext) -> list[str]:
        answers = await ctx.map(paid_agent(100, before=refuse), ["a", "b", "c"], on_error="continue")
        return [type(one).__name__ if isinstance(one, Exception) else one.output for one in answers]

    result = await run_alone(fan_out)
    assert result.output == ["answer to a", "ValueError", "answer to c"]
    assert result.usage.cost_microcents == 200


async def test_a_budget_of_an_item_is_its_failure_and_one_of_the_step_ends_the_fan_out() -> None:
    @step(cost_budget=150)
    async def inner(ctx: StepContext) -> int:
        for _ in range(ctx.get_input("item")):
            await ctx.run(paid_agent(100), "hello")
        return 1

    @step(cost_budget=350)
    async def fan_out(ctx: StepContext) -> list[Any]:
        first = await ctx.map(inner, [1, 2, 1], concurrency=1, on_error="continue")
        assert [type(one) for one in first] == [int, CostBudgetExceeded, int]
        assert first[1].scope_path == ("p", "alone", "alone[1]")
        return await ctx.map(inner, [1, 1, 1], concurrency=1, on_error="continue")

    error = await failure_of(fan_out)
    assert isinstance(error, CostBudgetExceeded)
    assert error.scope_path == ("p", "alone")


@in_virtual_time
async def test_an_item_is_tried_again_before_its_failure_is_kept() -> None:
    times: list[float] = []

    @step(retries=2, retry_delay=0)
    async def flaky(ctx: StepContext) -> int:
        times.append(now())
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return ctx.attempt

    async def fan_out(ctx: StepContext) -> list[Any]:
        return await ctx.map(flaky, [1], on_error="continue")

    assert (await run_alone(fan_out)).output == [3]
    assert len(times) == 3


@in_virtual_time
async def test_a_fan_out_that_is_cancelled_keeps_nothing() -> None:
    @step(total_timeout=2)
    async def fan_out(ctx: StepContext) -> list[Any]:
        return await ctx.map(fails_for(), [1, 3], on_error="continue")

    assert isinstance(await failure_of(fan_out), TimeLimitExceeded)
    assert_no_task_is_left()


async def test_a_mapped_step_that_asks_for_another_input_is_told_the_name_of_the_item() -> None:
    @step
    async def labels(ctx: StepContext) -> str:
        return str(ctx.get_input("text"))

    @step
    async def outer(ctx: StepContext) -> list[str]:
        return await ctx.map(labels, ["a", "b"])

    with pytest.raises(StepExecutionError) as failure:
        await Pipeline("p", {"outer": outer}).execute()
    assert "ctx.map gives a step each item as the input 'item'" in str(failure.value)
    assert "function.as_step({'text': 'item'})" in str(failure.value)
