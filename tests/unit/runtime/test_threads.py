"""Steps that are not `async` run in threads, and cannot use up those that they wait for."""

import asyncio
import threading
from typing import Any

import pytest
from pydantic_ai.models.test import TestModel
from support.steps import run_alone

from fastroai.agent import FastroAgent
from fastroai.pipelines import Pipeline, PipelineResult, StepContext, step
from fastroai.runtime.threads import THREADS_AT_EACH_DEPTH


def blocking_tool() -> str:
    """A tool that is not async, and so needs a thread itself."""
    return threading.current_thread().name


async def run_as_many_as_there_are_threads(each: Any) -> PipelineResult[Any]:
    """All of them hold a thread before any goes on."""
    barrier = threading.Barrier(THREADS_AT_EACH_DEPTH)

    @step
    def waits(ctx: StepContext) -> Any:
        barrier.wait(10)
        return each(ctx)

    steps = {str(number): waits for number in range(THREADS_AT_EACH_DEPTH)}
    async with asyncio.timeout(30):
        return await Pipeline[Any, Any]("p", steps, output_step="0").execute()


async def test_steps_in_threads_leave_some_for_the_tools_of_the_agents_they_wait_for() -> None:
    agent: FastroAgent[Any, str] = FastroAgent(TestModel(), tools=[blocking_tool])
    result = await run_as_many_as_there_are_threads(lambda ctx: ctx.run_sync(agent, "hello").output)
    assert len(result.step_outputs) == THREADS_AT_EACH_DEPTH


async def test_steps_in_threads_leave_some_for_the_steps_of_the_pipelines_they_wait_for() -> None:
    @step
    def inner(ctx: StepContext) -> int:
        return 1

    nested = Pipeline[Any, int]("nested", {"inner": inner})
    result = await run_as_many_as_there_are_threads(lambda ctx: nested.execute_sync().output)
    assert sum(result.step_outputs.values()) == THREADS_AT_EACH_DEPTH


async def test_no_more_steps_are_in_threads_than_there_may_be() -> None:
    running = most = 0
    lock = threading.Lock()
    full = threading.Semaphore(0)

    @step
    def counts(ctx: StepContext) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == THREADS_AT_EACH_DEPTH:
                full.release(THREADS_AT_EACH_DEPTH * 2)
        full.acquire(timeout=10)
        with lock:
            running -= 1

    steps = {str(number): counts for number in range(THREADS_AT_EACH_DEPTH * 2)}
    await Pipeline[Any, Any]("p", steps, output_step="0").execute()
    assert most == THREADS_AT_EACH_DEPTH


async def test_a_step_that_never_got_a_thread_leaves_none_behind(caplog: pytest.LogCaptureFixture) -> None:
    begun, may_end = asyncio.Semaphore(0), threading.Event()
    loop = asyncio.get_running_loop()

    @step
    def waits(ctx: StepContext) -> None:
        loop.call_soon_threadsafe(begun.release)
        may_end.wait(10)

    steps = {str(number): waits for number in range(THREADS_AT_EACH_DEPTH + 5)}
    run = asyncio.create_task(Pipeline[Any, Any]("p", steps, output_step="0").execute())
    for _ in range(THREADS_AT_EACH_DEPTH):
        await begun.acquire()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    may_end.set()
    assert len(caplog.records) == THREADS_AT_EACH_DEPTH


def test_every_loop_has_threads_of_its_own() -> None:
    @step
    def name(ctx: StepContext) -> str:
        return threading.current_thread().name

    for _ in range(2):
        assert asyncio.run(run_alone(name)).output
