import asyncio
from collections.abc import Awaitable, Generator
from contextvars import ContextVar, copy_context
from typing import Any

import pytest

from fastroai.runtime.concurrency.isolation import going_on, in_context

VARIABLE: ContextVar[str] = ContextVar("variable", default="outside")


async def set_and_wait(value: str, ready: asyncio.Event) -> str:
    VARIABLE.set(value)
    await ready.wait()
    return VARIABLE.get()


async def test_what_is_set_inside_stays_inside_also_while_it_waits() -> None:
    ready = asyncio.Event()
    context = copy_context()

    async def look() -> None:
        assert VARIABLE.get() == "outside"
        ready.set()

    looker = asyncio.create_task(look())
    assert await in_context(set_and_wait("inside", ready), context) == "inside"
    await looker
    assert VARIABLE.get() == "outside"
    assert context[VARIABLE] == "inside"


async def test_it_starts_from_the_context_that_it_is_given() -> None:
    context = copy_context()
    context.run(VARIABLE.set, "given")

    async def look() -> str:
        return VARIABLE.get()

    assert await in_context(look(), context) == "given"


async def test_it_runs_in_the_current_task() -> None:
    async def task() -> object:
        await asyncio.sleep(0)
        return asyncio.current_task()

    assert await in_context(task(), copy_context()) is asyncio.current_task()


async def test_an_exception_comes_out_as_itself() -> None:
    error = ValueError("x")

    async def fail() -> None:
        await asyncio.sleep(0)
        raise error

    with pytest.raises(ValueError, match="x") as caught:
        await in_context(fail(), copy_context())
    assert caught.value is error


async def test_cancellation_is_thrown_in_and_may_be_handled() -> None:
    async def work() -> str:
        VARIABLE.set("inside")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            return f"handled {VARIABLE.get()}"
        raise AssertionError("nothing else wakes it")

    async def call() -> str:
        return await in_context(work(), copy_context())

    task = asyncio.create_task(call())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "handled inside"


async def test_one_that_has_begun_in_its_context_goes_on_there() -> None:
    ready = asyncio.Event()
    context = copy_context()
    coroutine = set_and_wait("inside", ready)
    waits_for = context.run(coroutine.send, None)
    asyncio.get_running_loop().call_soon(ready.set)
    assert await going_on(coroutine, context.run, waits_for) == "inside"
    assert VARIABLE.get() == "outside"


def drive(awaitable: Awaitable[Any]) -> Generator[Any, Any, Any]:
    return awaitable.__await__()


class Suspend:
    """Waits for whatever the loop sends."""

    def __await__(self) -> Generator[str, str, str]:
        sent = yield "waiting"
        return sent


def test_what_the_loop_sends_arrives() -> None:
    async def work() -> str:
        return await Suspend()

    steps = drive(in_context(work(), copy_context()))
    assert next(steps) == "waiting"
    with pytest.raises(StopIteration) as end:
        steps.send("sent")
    assert end.value.value == "sent"


def test_closing_it_closes_what_is_inside_in_its_context() -> None:
    closed_in: list[str] = []

    async def work() -> None:
        VARIABLE.set("inside")
        try:
            await Suspend()
        finally:
            closed_in.append(VARIABLE.get())

    steps = drive(in_context(work(), copy_context()))
    next(steps)
    steps.close()
    assert closed_in == ["inside"]
