"""How long a step may take, and how often it is tried."""

import asyncio
import logging
import random
import threading
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel
from support.agents import paid_agent
from support.leftovers import assert_no_task_is_left
from support.patience import PATIENCE
from support.steps import failure_of, run_alone
from support.virtual_time import in_virtual_time, now

from fastroai.agent import Dispatch, FastroAgent
from fastroai.errors import (
    DispatchSkippedError,
    ScopeClosedError,
    StepExecutionError,
    TimeLimitExceeded,
    UnpricedModelError,
    usage_of,
)
from fastroai.pipelines import Pipeline, PipelineConfig, StepContext, StepRetried, step


@pytest.fixture(autouse=True)
def longest_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """No jitter: each wait is as long as it can be."""
    monkeypatch.setattr(random, "uniform", lambda low, high: high)


async def sleep(prompt: str) -> None:
    """What a slow model does: the prompt says for how many seconds."""
    await asyncio.sleep(float(prompt))


def fails(times: int, error: Exception | None = None) -> Any:
    """Fails so often, then returns the number of the attempt."""
    attempts = 0

    async def attempt(*_: object) -> int:
        nonlocal attempts
        attempts += 1
        if attempts <= times:
            raise error or ValueError(f"failure {attempts}")
        return attempts

    return attempt


# --- time ---


@in_virtual_time
async def test_a_steps_own_code_times_out() -> None:
    @step(timeout=3)
    async def slow(ctx: StepContext) -> None:
        await asyncio.sleep(10)

    error = await failure_of(slow)
    assert isinstance(error, TimeLimitExceeded)
    assert str(error) == "step 'alone' took longer than 3 s"
    assert now() == 3


@in_virtual_time
async def test_the_clock_of_a_step_pauses_while_it_waits_for_an_agent() -> None:
    @step(timeout=3)
    async def asks(ctx: StepContext) -> str:
        await asyncio.sleep(1)
        await ctx.run(paid_agent(before=sleep), "100", timeout=200)
        await asyncio.sleep(1)
        await ctx.run(paid_agent(before=sleep), "100", timeout=200)
        return "in time"

    assert (await run_alone(asks)).output == "in time"
    assert now() == 202


@in_virtual_time
async def test_a_steps_own_code_around_its_calls_still_counts() -> None:
    @step(timeout=3)
    async def asks(ctx: StepContext) -> None:
        await asyncio.sleep(2)
        await ctx.run(paid_agent(before=sleep), "100", timeout=200)
        await asyncio.sleep(2)

    assert isinstance(await failure_of(asks), TimeLimitExceeded)
    assert now() == 103


@in_virtual_time
async def test_each_call_of_an_agent_has_the_steps_timeout_as_its_own() -> None:
    @step(timeout=3)
    async def asks(ctx: StepContext) -> None:
        await ctx.run(paid_agent(before=sleep), "2")
        await ctx.run(paid_agent(before=sleep), "2")
        await ctx.run(paid_agent(before=sleep), "10")

    error = await failure_of(asks)
    assert isinstance(error, TimeLimitExceeded)
    assert error.what == "agent 'agent'"
    assert now() == 7


@in_virtual_time
async def test_the_shorter_of_the_agents_own_timeout_and_the_steps_holds() -> None:
    @step(timeout=3)
    async def asks(ctx: StepContext) -> None:
        await ctx.run(paid_agent(before=sleep, timeout=2), "10")

    assert isinstance(await failure_of(asks), TimeLimitExceeded)
    assert now() == 2


@pytest.mark.parametrize(("timeout", "ends"), [(1, 1), (8, 8), (None, 10)])
def test_a_timeout_said_for_the_call_wins(timeout: float | None, ends: float) -> None:
    @in_virtual_time
    async def story() -> None:
        @step(timeout=3)
        async def asks(ctx: StepContext) -> None:
            await ctx.run(paid_agent(before=sleep), "10", timeout=timeout)

        if ends < 10:
            assert isinstance(await failure_of(asks), TimeLimitExceeded)
        else:
            await run_alone(asks)
        assert now() == ends

    story()


@in_virtual_time
async def test_an_agent_called_directly_is_the_steps_own_code() -> None:
    @step(timeout=3)
    async def asks(ctx: StepContext) -> None:
        await paid_agent(before=sleep).run("10")

    error = await failure_of(asks)
    assert isinstance(error, TimeLimitExceeded)
    assert error.what == "step 'alone'"


@in_virtual_time
async def test_total_timeout_bounds_everything_calls_and_retries_included() -> None:
    @step(total_timeout=10, retries=9, retry_delay=1)
    async def asks(ctx: StepContext) -> None:
        await ctx.run(paid_agent(before=sleep), "8")
        raise ValueError("again")

    error = await failure_of(asks)
    assert isinstance(error, TimeLimitExceeded)
    assert str(error) == "step 'alone', retries included, took longer than 10 s"
    assert now() == 10


@in_virtual_time
async def test_each_attempt_has_the_whole_timeout() -> None:
    attempts: list[float] = []

    @step(timeout=3, retries=2, retry_delay=1)
    async def slow(ctx: StepContext) -> None:
        attempts.append(now())
        await asyncio.sleep(10)

    assert isinstance(await failure_of(slow), TimeLimitExceeded)
    assert attempts == [0, 4, 9], "three seconds each, and pauses of one and two"


@in_virtual_time
async def test_a_step_that_swallows_its_timeout_and_returns_has_an_output() -> None:
    @step(timeout=3)
    async def stubborn(ctx: StepContext) -> str:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            return "late, but here"
        return "unreachable"

    assert (await run_alone(stubborn)).output == "late, but here"


# --- retries of the step's own code ---


@in_virtual_time
async def test_a_steps_own_code_is_tried_again_with_growing_pauses() -> None:
    attempts: list[tuple[int, float]] = []

    @step(retries=3, retry_delay=2)
    async def flaky(ctx: StepContext) -> str:
        attempts.append((ctx.attempt, now()))
        if ctx.attempt < 4:
            raise ValueError("not yet")
        return "done"

    assert (await run_alone(flaky)).output == "done"
    assert attempts == [(1, 0), (2, 2), (3, 6), (4, 14)]


@pytest.mark.parametrize("retries", [None, 0])
async def test_without_retries_a_failure_is_final(retries: int | None) -> None:
    attempt = fails(1)
    flaky = step(attempt) if retries is None else step(retries=retries)(attempt)
    error = await failure_of(flaky)
    assert str(error) == "failure 1"


@in_virtual_time
async def test_the_last_failure_is_the_one_that_counts() -> None:
    assert str(await failure_of(step(retries=2)(fails(9)))) == "failure 3"


@in_virtual_time
async def test_usage_of_every_attempt_is_on_the_step() -> None:
    @step(retries=2)
    async def flaky(ctx: StepContext) -> None:
        await ctx.run(paid_agent(100), "hello")
        if ctx.attempt < 3:
            raise ValueError("after spending")

    usage = (await run_alone(flaky)).usage.steps["alone"]
    assert (usage.cost_microcents, usage.request_count, usage.agent_call_count) == (300, 3, 3)


@pytest.mark.parametrize("error", [DispatchSkippedError("no"), UnpricedModelError("m", "p")], ids=repr)
async def test_what_cannot_be_helped_is_not_tried_again(error: Exception) -> None:
    assert await failure_of(step(retries=5)(fails(1, error))) is error


@pytest.mark.parametrize("of_pipeline", [False, True])
@in_virtual_time
async def test_no_pause_goes_past_a_deadline_and_then_the_failure_itself_is_final(of_pipeline: bool) -> None:
    @step(retries=5, retry_delay=4, total_timeout=None if of_pipeline else 10)
    async def flaky(ctx: StepContext) -> None:
        raise ValueError(f"attempt {ctx.attempt}")

    error = await failure_of(flaky, config=PipelineConfig(total_timeout=10 if of_pipeline else None))
    assert str(error) == "attempt 2", "4 s are over, and 8 more would not fit"
    assert now() == 4


# --- retries of agent calls ---


@in_virtual_time
async def test_a_call_of_an_agent_is_tried_again_and_not_the_code_around_it() -> None:
    runs = 0

    @step(retries=2, retry_delay=1)
    async def asks(ctx: StepContext) -> str:
        nonlocal runs
        runs += 1
        return (await ctx.run(paid_agent(before=fails(2)), "hello")).output

    assert (await run_alone(asks)).output == "answer to hello"
    assert runs == 1
    assert now() == 3


@pytest.mark.parametrize("wraps", [False, True])
@in_virtual_time
async def test_what_a_call_has_exhausted_the_step_does_not_repeat(wraps: bool) -> None:
    calls = 0

    async def always_fails(prompt: str) -> None:
        nonlocal calls
        calls += 1
        raise ValueError("again and again")

    @step(retries=2)
    async def asks(ctx: StepContext) -> None:
        try:
            await ctx.run(paid_agent(before=always_fails), "hello")
        except ValueError as error:
            if wraps:
                raise RuntimeError("could not ask") from error
            raise

    error = await failure_of(asks)
    assert str(error) == ("could not ask" if wraps else "again and again")
    assert calls == 3, "and not nine"
    spent = usage_of(error)
    assert spent is not None
    assert spent.request_count == 3


@pytest.mark.parametrize(("retries", "calls"), [(0, 1), (1, 2), (5, 6)])
def test_retries_said_for_the_call_win(retries: int, calls: int) -> None:
    made = 0

    async def always_fails(prompt: str) -> None:
        nonlocal made
        made += 1
        raise ValueError("again and again")

    @in_virtual_time
    async def story() -> None:
        @step(retries=2)
        async def asks(ctx: StepContext) -> None:
            await ctx.run(paid_agent(before=always_fails), "hello", retries=retries)

        await failure_of(asks)

    story()
    assert made == calls


@in_virtual_time
async def test_hooks_see_which_attempt_it_is() -> None:
    seen: list[tuple[int, str | None]] = []

    def before(dispatch: Dispatch) -> None:
        seen.append((dispatch.attempt, dispatch.step_id))

    @step(retries=2)
    async def asks(ctx: StepContext) -> None:
        await ctx.run(paid_agent(before=fails(2), on_before_dispatch=before), "hello")

    await run_alone(asks)
    assert seen == [(1, "alone"), (2, "alone"), (3, "alone")]


@pytest.mark.parametrize(("options", "expected"), [({"retries": 1}, 2), ({}, 4)], ids=str)
@in_virtual_time
async def test_a_request_that_failed_on_its_way_is_repeated_as_the_step_or_else_the_agent_says(
    options: dict[str, int], expected: int
) -> None:
    requests = 0

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        nonlocal requests
        requests += 1
        raise ModelHTTPError(503, "m")

    agent: FastroAgent[Any, str] = FastroAgent(FunctionModel(respond), request_retries=3)

    async def asks(ctx: StepContext) -> None:
        await ctx.run(agent, "hello")

    assert isinstance(await failure_of(step(**options)(asks)), ModelHTTPError)
    assert requests == expected, "neither the call nor the step repeats what the request has exhausted"


@in_virtual_time
async def test_a_request_of_an_agent_called_directly_does_not_wait_past_the_steps_timeout() -> None:
    async def busy(prompt: str) -> None:
        raise ModelHTTPError(503, "m", headers={"retry-after": "30"})

    @step(timeout=10)
    async def asks(ctx: StepContext) -> None:
        await paid_agent(before=busy, request_retries=5).run("hello")

    assert isinstance(await failure_of(asks), ModelHTTPError)
    assert now() == 0


# --- retries and nesting ---


@in_virtual_time
async def test_a_nested_pipeline_whose_step_exhausted_its_retries_is_not_repeated() -> None:
    attempts = 0

    @step(retries=2)
    async def inner(ctx: StepContext) -> None:
        nonlocal attempts
        attempts += 1
        raise ValueError("again and again")

    nested = Pipeline[None, Any, None]("inner", {"step": inner})
    error = await failure_of(nested.as_step(), config=PipelineConfig(retries=3))
    assert isinstance(error, StepExecutionError)
    assert attempts == 3


@in_virtual_time
async def test_a_nested_pipeline_that_tries_nothing_itself_is_repeated_by_the_step_around_it() -> None:
    nested = Pipeline[None, Any, int]("inner", {"step": step(fails(2))})
    result = await run_alone(nested.as_step(), config=PipelineConfig(retries=3))
    assert result.output == 3


# --- threads ---


async def test_a_thread_has_the_scope_and_can_call_agents() -> None:
    def asks(ctx: StepContext) -> str:
        return ctx.run_sync(paid_agent(100), "hello").output + "!"

    result = await run_alone(step(asks))
    assert result.output == "answer to hello!"
    assert result.usage.steps["alone"].cost_microcents == 100


async def test_a_thread_that_calls_an_agent_directly_is_charged_to_its_step() -> None:
    def asks(ctx: StepContext) -> str:
        return paid_agent(100).run_sync("hello").output

    result = await run_alone(step(asks))
    assert result.usage.steps["alone"].cost_microcents == 100


async def test_options_of_run_sync_are_those_of_run() -> None:
    calls = fails(1)

    def asks(ctx: StepContext) -> str:
        return ctx.run_sync(paid_agent(before=calls), "hello", retries=1, retry_delay=0).output

    assert (await run_alone(step(asks))).output == "answer to hello"


async def test_a_failure_in_a_thread_is_the_steps_failure_and_may_be_tried_again() -> None:
    attempts: list[int] = []

    @step(retries=1, retry_delay=0)
    def flaky(ctx: StepContext) -> str:
        attempts.append(ctx.attempt)
        if ctx.attempt == 1:
            raise ValueError("in the thread")
        return "done"

    assert (await run_alone(flaky)).output == "done"
    assert attempts == [1, 2]


async def test_run_sync_on_the_loop_says_to_await() -> None:
    async def asks(ctx: StepContext) -> None:
        ctx.run_sync(paid_agent(), "hello")

    assert "use: await ctx.run(...)" in str(await failure_of(asks))


async def test_the_clock_of_a_thread_pauses_too_while_it_waits_for_an_agent() -> None:
    @step(timeout=2)
    def asks(ctx: StepContext) -> str:
        return ctx.run_sync(paid_agent(before=sleep), "2.1", timeout=PATIENCE).output

    assert (await run_alone(asks)).output == "answer to 2.1"


async def test_a_thread_that_timed_out_is_left_alone_and_can_call_nothing_any_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, may_go_on, tried = threading.Event(), threading.Event(), threading.Event()
    late: list[BaseException] = []

    @step
    def slow(ctx: StepContext) -> None:
        begun.set()
        may_go_on.wait(PATIENCE)
        try:
            ctx.run_sync(paid_agent(), "late")
        except ScopeClosedError as error:
            late.append(error)
        try:
            paid_agent().run_sync("late")
        except ScopeClosedError as error:
            late.append(error)
        tried.set()

    limit = 0.05
    while not begun.is_set():
        with caplog.at_level(logging.WARNING, "fastroai.steps"):
            error = await failure_of(slow, config=PipelineConfig(timeout=limit))
        assert isinstance(error, TimeLimitExceeded)
        limit *= 2  # on a busy machine, it takes longer to get to the thread
    assert [record.getMessage() for record in caplog.records] == [
        "step 'alone': its thread could not be stopped and continues by itself"
    ]
    assert not tried.is_set(), "nobody waited for the thread"
    may_go_on.set()
    assert await asyncio.to_thread(tried.wait, PATIENCE)
    assert len(late) == 2


async def test_what_an_abandoned_thread_was_waiting_for_ends_with_the_step() -> None:
    asked, cancelled, thread_ended = asyncio.Event(), asyncio.Event(), threading.Event()
    late: list[BaseException] = []

    async def never(prompt: str) -> None:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    @step
    def asks(ctx: StepContext) -> None:
        try:
            ctx.run_sync(paid_agent(before=never), "hello")
        except BaseException as error:
            late.append(error)
            raise
        finally:
            thread_ended.set()

    run = asyncio.create_task(run_alone(asks))
    await asked.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert cancelled.is_set()
    assert_no_task_is_left()
    assert await asyncio.to_thread(thread_ended.wait, PATIENCE)
    assert isinstance(late[0], asyncio.CancelledError)


async def test_a_call_that_an_abandoned_thread_makes_between_attempts_ends_with_the_step() -> None:
    asked, cancelled, may_go_on = asyncio.Event(), asyncio.Event(), threading.Event()

    async def never(prompt: str) -> None:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    @step(timeout=1, retries=1, retry_delay=30)
    def slow(ctx: StepContext) -> None:
        may_go_on.wait(PATIENCE)
        paid_agent(before=never).run_sync("late")

    async def listen() -> None:
        async for event in Pipeline[Any, Any]("p", {"slow": slow}).stream():
            if isinstance(event, StepRetried):
                may_go_on.set()

    run = asyncio.create_task(listen())
    await asked.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await cancelled.wait()
    assert_no_task_is_left()
