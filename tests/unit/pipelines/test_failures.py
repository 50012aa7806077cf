"""What a failure stops, and what it does not lose."""

import asyncio
from typing import Any

import pytest
from support.agents import paid_agent
from support.leftovers import assert_no_task_is_left
from support.virtual_time import in_virtual_time, now

from fastroai.errors import StepExecutionError, usage_of
from fastroai.pipelines import BaseStep, Pipeline, PipelineConfig, StepConfig, StepContext, step


@step
async def works(ctx: StepContext) -> str:
    await ctx.run(paid_agent(100), ctx.step_id)
    return f"output of {ctx.step_id}"


@step
async def fails(ctx: StepContext) -> None:
    await ctx.run(paid_agent(50), ctx.step_id)
    raise ValueError(f"failure of {ctx.step_id}")


def pipeline(
    steps: dict[str, BaseStep[Any, Any]], dependencies: dict[str, list[str]], output: str, **options: Any
) -> Pipeline[Any, Any]:
    return Pipeline("p", steps, dependencies, output, **options)


# --- fail ---


async def test_a_failure_is_raised_with_the_step_and_the_reason() -> None:
    with pytest.raises(StepExecutionError) as caught:
        await pipeline({"a": fails}, {}, "a").execute()
    error = caught.value
    assert str(error) == "step 'a' failed: ValueError: failure of a"
    assert error.step_id == "a"
    assert isinstance(error.original_error, ValueError)
    assert error.__cause__ is error.original_error


async def test_a_failure_loses_nothing_of_what_finished_and_was_spent() -> None:
    with pytest.raises(StepExecutionError) as caught:
        await pipeline(
            {"a": works, "b": works, "c": fails, "d": works},
            {"b": ["a"], "c": ["b"], "d": ["c"]},
            "d",
        ).execute()
    error = caught.value
    assert error.step_outputs == {"a": "output of a", "b": "output of b"}
    assert (error.usage.cost_microcents, error.usage.request_count) == (250, 3)
    assert error.run_id


@in_virtual_time
async def test_a_failure_cancels_what_runs_and_starts_nothing_more() -> None:
    happened: list[str] = []

    @step
    async def slow(ctx: StepContext) -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            happened.append(f"{ctx.step_id} was cancelled")
            raise

    @step
    async def fails_later(ctx: StepContext) -> None:
        await asyncio.sleep(1)
        raise ValueError("x")

    @step
    async def never(ctx: StepContext) -> None:
        happened.append("something started")

    with pytest.raises(StepExecutionError):
        await pipeline(
            {"slow": slow, "fails": fails_later, "after_slow": never, "after_fails": never},
            {"after_slow": ["slow"], "after_fails": ["fails"]},
            "after_slow",
        ).execute()
    assert happened == ["slow was cancelled"]
    assert now() == 1
    assert_no_task_is_left()


@in_virtual_time
async def test_of_several_failures_the_first_is_the_one_that_is_raised() -> None:
    @step
    async def fails_when_cancelled(ctx: StepContext) -> None:
        try:
            await asyncio.sleep(10)
        finally:
            raise LookupError("while cleaning up")

    @step
    async def fails_later(ctx: StepContext) -> None:
        await asyncio.sleep(1)
        raise ValueError("the first")

    with pytest.raises(StepExecutionError, match="the first"):
        await pipeline({"a": fails_when_cancelled, "b": fails_later}, {}, "a").execute()


async def test_the_original_error_of_somebody_else_knows_what_was_spent_as_well() -> None:
    with pytest.raises(StepExecutionError) as caught:
        await pipeline({"a": works, "b": fails}, {"b": ["a"]}, "b").execute()
    spent = usage_of(caught.value.original_error)
    assert spent is not None
    assert spent.cost_microcents == 50, "what the step had spent when it left it"


# --- continue ---


async def test_continue_finishes_every_branch_that_does_not_need_the_failed_step() -> None:
    result = await pipeline(
        {"a": fails, "needs_a": works, "needs_that": works, "b": works, "needs_b": works},
        {"needs_a": ["a"], "needs_that": ["needs_a", "b"], "needs_b": ["b"]},
        "needs_b",
        config=PipelineConfig(on_error="continue"),
    ).execute()
    assert not result.ok
    assert {step_id: str(error) for step_id, error in result.errors.items()} == {"a": "failure of a"}
    assert result.skipped == {
        "needs_a": "it needs 'a', which failed",
        "needs_that": "it needs 'a', which failed",
    }
    assert list(result.step_outputs) == ["b", "needs_b"]
    assert result.output == "output of needs_b"
    assert result.usage.cost_microcents == 250
    assert list(result.usage.steps) == ["a", "b", "needs_b"]


@pytest.mark.parametrize("output", ["a", "needs_a"])
async def test_the_output_is_none_where_its_step_failed_or_was_skipped(output: str) -> None:
    result = await pipeline(
        {"a": fails, "needs_a": works, "b": works},
        {"needs_a": ["a"]},
        output,
        config=PipelineConfig(on_error="continue"),
    ).execute()
    assert result.output is None
    assert not result.ok


async def test_every_failure_of_a_run_that_continues_is_there() -> None:
    result = await pipeline(
        {"a": fails, "b": fails}, {}, "a", config=PipelineConfig(on_error="continue")
    ).execute()
    assert {step_id: str(error) for step_id, error in result.errors.items()} == {
        "a": "failure of a",
        "b": "failure of b",
    }


async def test_continue_on_a_step_exempts_that_step_only() -> None:
    steps: dict[str, BaseStep[Any, Any]] = {"optional": fails, "needs_it": works, "b": works}
    dependencies = {"needs_it": ["optional"]}
    exempt = {"optional": StepConfig(on_error="continue")}
    result = await pipeline(steps, dependencies, "b", step_configs=exempt).execute()
    assert (result.output, list(result.errors)) == ("output of b", ["optional"])
    with pytest.raises(StepExecutionError, match="'b' failed"):
        await pipeline({**steps, "b": fails}, dependencies, "b", step_configs=exempt).execute()


async def test_fail_on_a_step_makes_it_an_exception_from_a_pipeline_that_continues() -> None:
    with pytest.raises(StepExecutionError, match="'b' failed"):
        await pipeline(
            {"a": fails, "b": fails},
            {},
            "a",
            config=PipelineConfig(on_error="continue"),
            step_configs={"b": StepConfig(on_error="fail")},
        ).execute()


async def test_a_run_without_failures_is_ok() -> None:
    result = await pipeline(
        {"a": works, "b": works}, {"b": ["a"]}, "b", config=PipelineConfig(on_error="continue")
    ).execute()
    assert result.ok
    assert (result.errors, result.skipped) == ({}, {})


async def test_the_same_error_in_two_runs_belongs_to_the_run_that_it_left_last() -> None:
    error = ValueError("shared")

    @step
    async def raises(ctx: StepContext) -> None:
        await ctx.run(paid_agent(int(ctx.get_input("microcents"))), "x")
        raise error

    shared = pipeline({"a": raises}, {}, "a")
    for microcents in (10, 20):
        with pytest.raises(StepExecutionError) as caught:
            await shared.execute({"microcents": microcents})
        assert caught.value.usage.cost_microcents == microcents
