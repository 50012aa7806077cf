"""Steps and tools that are not `async` run in threads, and cannot use up those that they wait for."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pydantic_ai.capabilities import UseThreadExecutor
from pydantic_ai.models.test import TestModel
from support.leftovers import assert_no_task_is_left
from support.patience import PATIENCE
from support.steps import run_alone

from fastroai.agent import FastroAgent
from fastroai.errors import TimeLimitExceeded
from fastroai.pipelines import Pipeline, PipelineResult, StepContext, step
from fastroai.runtime import Scope
from fastroai.runtime.concurrency.threads import THREADS_AT_EACH_DEPTH, WorkerThreads


def blocking_tool() -> str:
    """A tool that is not async, and so needs a thread itself."""
    return threading.current_thread().name


async def run_as_many_as_there_are_threads(each: Any) -> PipelineResult[Any]:
    """All of them hold a thread before any goes on."""
    barrier = threading.Barrier(THREADS_AT_EACH_DEPTH)

    @step
    def waits(ctx: StepContext) -> Any:
        barrier.wait(PATIENCE)
        return each(ctx)

    steps = {str(number): waits for number in range(THREADS_AT_EACH_DEPTH)}
    async with asyncio.timeout(PATIENCE):
        return await Pipeline[Any, Any]("p", steps, output_step="0").execute()


async def test_steps_in_threads_leave_some_for_the_tools_of_the_agents_they_wait_for() -> None:
    agent: FastroAgent[Any, str] = FastroAgent(TestModel(), tools=[blocking_tool])
    result = await run_as_many_as_there_are_threads(lambda ctx: ctx.run_sync(agent, "hello").output)
    assert len(result.step_outputs) == THREADS_AT_EACH_DEPTH


async def test_steps_in_threads_leave_some_for_the_steps_of_the_pipelines_they_wait_for() -> None:
    @step
    def inner(ctx: StepContext) -> int:
        return 1

    nested = Pipeline[Any, Any, int]("nested", {"inner": inner})
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
        full.acquire(timeout=PATIENCE)
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
        may_end.wait(PATIENCE)

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


# --- the executor for PydanticAI's functions that are not async ---


async def in_executor(call: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(WorkerThreads(), call)


async def test_the_executor_gives_results_and_exceptions() -> None:
    def fail() -> None:
        raise LookupError("x")

    assert await in_executor(lambda: 1) == 1
    with pytest.raises(LookupError, match="x"):
        await in_executor(fail)
    assert_no_task_is_left()


async def test_a_function_that_was_given_up_leaves_its_place_to_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, may_end = threading.Semaphore(0), threading.Event()

    def hang() -> None:
        begun.release()
        may_end.wait(PATIENCE)

    async with Scope("agent", "a", parent=None):
        hanging = [asyncio.create_task(in_executor(hang)) for _ in range(THREADS_AT_EACH_DEPTH)]
        for _ in hanging:
            assert await asyncio.to_thread(begun.acquire, timeout=PATIENCE)
        waiting = asyncio.create_task(in_executor(lambda: "there is room again"))
        for task in hanging:
            task.cancel()
        assert await asyncio.wait_for(waiting, PATIENCE) == "there is room again"
    may_end.set()
    messages = {record.getMessage() for record in caplog.records}
    assert messages == {
        "a sync function of agent 'a': its thread could not be stopped and continues by itself"
    }
    assert_no_task_is_left()


async def test_a_time_limit_of_an_agent_holds_although_a_tool_hangs() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def hangs() -> str:
        begun.set()
        may_end.wait(PATIENCE)
        return "late"

    agent: FastroAgent[Any, str] = FastroAgent(TestModel(), tools=[hangs])
    limit = 0.05
    while not begun.is_set():
        with pytest.raises(TimeLimitExceeded):
            await agent.run("hello", timeout=limit)
        limit *= 2  # on a busy machine, it takes longer to get to the tool
    may_end.set()


async def test_an_executor_of_the_users_own_is_used() -> None:
    with ThreadPoolExecutor(1, thread_name_prefix="their-own") as executor:
        names: list[str] = []

        def noted() -> str:
            names.append(threading.current_thread().name)
            return "noted"

        capability: UseThreadExecutor = UseThreadExecutor(executor)
        agent: FastroAgent[Any, str] = FastroAgent(TestModel(), tools=[noted], capabilities=[capability])
        await agent.run("hello")
    assert names == ["their-own_0"]
