import asyncio
import concurrent.futures
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

import pytest
from support.leftovers import assert_no_task_is_left

from fastroai.errors import RunningLoopError
from fastroai.runtime import Scope, current_scope, run_blocking

T = TypeVar("T")
WHO: ContextVar[str] = ContextVar("who", default="nobody")


def blocking(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return run_blocking(call, called="thing.run_sync", instead="thing.run")


async def name_of_the_thread() -> str:
    return threading.current_thread().name


def test_a_script_runs_on_a_loop_in_the_background() -> None:
    assert blocking(name_of_the_thread) == "fastroai-sync"


def test_all_calls_of_a_process_share_one_loop() -> None:
    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    first = blocking(loop)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        others = set(pool.map(lambda _: blocking(loop), range(8)))
    assert others == {first}


def test_a_fork_gets_a_loop_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    parents = blocking(loop)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    childs = blocking(loop)
    assert childs is not parents
    for running in (parents, childs):
        running.call_soon_threadsafe(running.stop)
    for thread in threading.enumerate():
        if thread.name == "fastroai-sync":
            thread.join(10)
    for running in (parents, childs):
        running.close()


def test_the_callers_context_variables_are_there() -> None:
    async def who() -> str:
        return WHO.get()

    WHO.set("the caller")
    assert blocking(who) == "the caller"


def test_exceptions_come_out_as_themselves() -> None:
    async def fail() -> None:
        raise LookupError("x")

    with pytest.raises(LookupError, match="x"):
        blocking(fail)


@pytest.mark.parametrize("exit_", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_an_exit_reaches_the_thread_that_waits_and_the_loop_goes_on(exit_: BaseException) -> None:
    async def leave() -> None:
        raise exit_

    with pytest.raises(type(exit_)) as caught:
        blocking(leave)
    assert caught.value is exit_
    assert blocking(name_of_the_thread) == "fastroai-sync"


def test_an_exit_that_nobody_carries_does_not_stop_the_calls_of_others() -> None:
    stopped = threading.Event()

    async def exit_beside() -> None:
        def leave() -> None:
            stopped.set()
            raise SystemExit(3)

        asyncio.get_running_loop().call_soon(leave)

    blocking(exit_beside)
    assert stopped.wait(10)
    assert blocking(name_of_the_thread) == "fastroai-sync"


async def test_an_exit_in_a_call_of_a_worker_thread_reaches_that_thread() -> None:
    async def leave() -> None:
        raise SystemExit(3)

    def in_the_thread() -> str:
        try:
            blocking(leave)
        except SystemExit as error:
            return f"exit {error.code}"
        return "nothing"

    async with Scope("step", "s", parent=None):
        assert await asyncio.to_thread(in_the_thread) == "exit 3"


async def test_on_a_running_loop_it_says_what_to_await_instead() -> None:
    with pytest.raises(RunningLoopError, match=r"^thing.run_sync\(\) .* use: await thing.run\(...\)$"):
        blocking(name_of_the_thread)


async def test_a_worker_thread_of_a_run_uses_the_runs_loop_and_scope() -> None:
    async def where() -> tuple[object, object]:
        return asyncio.get_running_loop(), current_scope()

    async with Scope("step", "s", parent=None) as scope:
        found = await asyncio.to_thread(blocking, where)
        assert not scope.is_open_inside
    assert found == (asyncio.get_running_loop(), scope)


async def test_a_call_of_a_thread_ends_with_its_scope() -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def never() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with Scope("step", "s", parent=None):
        thread = asyncio.create_task(asyncio.to_thread(blocking, never))
        await started.wait()
    assert cancelled.is_set()
    with pytest.raises(asyncio.CancelledError):
        await thread
    assert_no_task_is_left()


async def test_a_call_made_after_its_scope_has_ended_ends_with_the_nearest_that_is_open() -> None:
    started = asyncio.Event()

    async def never() -> None:
        started.set()
        await asyncio.Event().wait()

    async with Scope("pipeline", "p", parent=None) as run:
        async with Scope("step", "s", parent=run) as step:
            step.close()
            thread = asyncio.create_task(asyncio.to_thread(blocking, never))
            await started.wait()
        assert not thread.done()
    with pytest.raises(asyncio.CancelledError):
        await thread


INTERRUPTED = """
import asyncio, os, signal
from fastroai.errors import records_of, usage_of
from fastroai.records import RequestRecord
from fastroai.runtime import Scope, run_blocking

async def spend_and_hang():
    async with Scope("agent", "a", parent=None) as scope:
        scope.charge(RequestRecord(model="m", provider="p", outcome="unmeasured"))
        try:
            asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            print("ended")

signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    run_blocking(spend_and_hang, called="run_sync", instead="run")
except KeyboardInterrupt as error:
    print(usage_of(error).unmeasured_requests, len(records_of(error)))
"""


def test_an_interrupt_waits_for_the_end_of_the_call_and_has_what_it_spent() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60)
    assert (done.stdout.split(), done.stderr) == (["ended", "1", "1"], "")
