import asyncio
import concurrent.futures
import functools
import inspect
import subprocess
import sys
import threading
from asyncio.selector_events import BaseSelectorEventLoop
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

import pytest
from support.leftovers import assert_no_task_is_left
from support.patience import PATIENCE

from fastroai.agent import FastroAgent
from fastroai.errors import RunningLoopError
from fastroai.graphs import Graph
from fastroai.pipelines import BasePipeline, Pipeline, StepContext
from fastroai.runtime import Scope, blocking, current_scope, run_blocking
from fastroai.runtime.concurrency.sync import background_loop, loop_of_run
from fastroai.runtime.concurrency.threads import run_in_thread

T = TypeVar("T")
WHO: ContextVar[str] = ContextVar("who", default="nobody")


def waiting_for(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return run_blocking(call, called="thing.run_sync", instead="thing.run")


Start = Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]


async def of_the_run(call: Callable[[], Any]) -> Any:
    """In a worker thread of FastroAI."""
    return await run_in_thread(call, what="test")


async def of_their_own(call: Callable[[], Any]) -> Any:
    """In a thread that somebody else has started."""
    return await asyncio.to_thread(call)


async def name_of_the_thread() -> str:
    return threading.current_thread().name


def test_a_script_runs_on_a_loop_in_the_background() -> None:
    assert waiting_for(name_of_the_thread) == "fastroai-sync"


def test_all_calls_of_a_process_share_one_loop() -> None:
    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    first = waiting_for(loop)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        others = set(pool.map(lambda _: waiting_for(loop), range(8)))
    assert others == {first}


async def this_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_the_loop_runs_only_while_somebody_needs_it() -> None:
    """So that PydanticAI can give the clients that were used on it to another loop."""
    loop = waiting_for(this_loop)
    assert not loop.is_running()
    assert waiting_for(this_loop) is loop
    begun, may_end = threading.Event(), threading.Event()

    async def wait() -> None:
        begun.set()
        await loop.run_in_executor(None, may_end.wait, PATIENCE)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(waiting_for, wait)
        assert begun.wait(PATIENCE)
        assert waiting_for(this_loop) is loop
        assert loop.is_running()
        may_end.set()
        waiting.result(PATIENCE)
    assert not loop.is_running()


def test_calls_that_come_and_go_all_at_once_all_come_to_their_end() -> None:
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        loops = set(pool.map(lambda _: waiting_for(this_loop), range(500)))
    assert len(loops) == 1
    assert not loops.pop().is_running()


async def test_the_loop_for_chores_goes_on_after_every_call() -> None:
    chores = background_loop()
    assert chores is background_loop()
    assert await asyncio.to_thread(waiting_for, this_loop) is not chores
    ended = asyncio.run_coroutine_threadsafe(this_loop(), chores)
    assert await asyncio.wrap_future(ended) is chores


FORKED = """
import asyncio, os
from fastroai.runtime import run_blocking
from fastroai.runtime.concurrency.sync import background_loop

async def loop():
    return asyncio.get_running_loop()

def waiting_for():
    return run_blocking(loop, called="run_sync", instead="run")

parents, chores = waiting_for(), background_loop()
if not os.fork():
    os._exit(0 if waiting_for() is not parents and background_loop() is not chores else 1)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_fork_gets_loops_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.split() == ["0"]


LATE = """
import atexit
from fastroai.runtime import run_blocking

async def late():
    print("late")

atexit.register(run_blocking, late, called="run_sync", instead="run")
run_blocking(late, called="run_sync", instead="run")
"""


def test_a_call_can_be_made_while_the_process_exits() -> None:
    command = [sys.executable, "-X", "dev", "-c", LATE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout.split(), done.stderr) == (["late", "late"], "")


def test_the_callers_context_variables_are_there() -> None:
    async def who() -> str:
        return WHO.get()

    WHO.set("the caller")
    assert waiting_for(who) == "the caller"


def test_exceptions_come_out_as_themselves() -> None:
    async def fail() -> None:
        raise LookupError("x")

    with pytest.raises(LookupError, match="x"):
        waiting_for(fail)


@pytest.mark.parametrize("exit_", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_an_exit_reaches_the_thread_that_waits_and_the_loop_goes_on(exit_: BaseException) -> None:
    async def leave() -> None:
        raise exit_

    with pytest.raises(type(exit_)) as caught:
        waiting_for(leave)
    assert caught.value is exit_
    assert waiting_for(name_of_the_thread) == "fastroai-sync"


def test_an_exit_that_nobody_carries_does_not_stop_the_calls_of_others() -> None:
    stopped = threading.Event()

    async def exit_beside() -> None:
        def leave() -> None:
            stopped.set()
            raise SystemExit(3)

        asyncio.get_running_loop().call_soon(leave)

    waiting_for(exit_beside)
    assert stopped.wait(PATIENCE)
    assert waiting_for(name_of_the_thread) == "fastroai-sync"


async def test_an_exit_in_a_call_of_a_worker_thread_reaches_that_thread() -> None:
    async def leave() -> None:
        raise SystemExit(3)

    def in_the_thread() -> str:
        try:
            waiting_for(leave)
        except SystemExit as error:
            return f"exit {error.code}"
        return "nothing"

    async with Scope("step", "s", parent=None):
        assert await of_the_run(in_the_thread) == "exit 3"


async def test_on_a_running_loop_it_says_what_to_await_instead() -> None:
    with pytest.raises(RunningLoopError, match=r"^thing.run_sync\(\) .* use: await thing.run\(...\)$"):
        waiting_for(name_of_the_thread)


async def test_a_worker_thread_of_a_run_uses_the_runs_loop_and_scope() -> None:
    async def where() -> tuple[object, object]:
        return asyncio.get_running_loop(), current_scope()

    async with Scope("step", "s", parent=None) as scope:
        found = await of_the_run(lambda: waiting_for(where))
        assert not scope.open_inside
    assert found == (asyncio.get_running_loop(), scope)


async def test_another_thread_uses_a_background_loop_in_the_runs_scope() -> None:
    """Its loop may need the thread in which it waits: to look up a host, for example."""

    async def where() -> tuple[object, object]:
        return asyncio.get_running_loop(), current_scope()

    async with Scope("step", "s", parent=None) as scope:
        loop, there = await asyncio.to_thread(waiting_for, where)
        assert not scope.open_inside
    assert there is scope
    assert loop is not asyncio.get_running_loop()


async def test_another_thread_uses_the_runs_loop_for_what_is_at_home_there() -> None:
    here = asyncio.get_running_loop()

    def call() -> object:
        return run_blocking(this_loop, called="thing.run_sync", instead="thing.run", home=here)

    assert await asyncio.to_thread(call) is not here, "a loop that no run is on may be blocked"
    async with Scope("step", "s", parent=None):
        assert await asyncio.to_thread(call) is here


async def test_what_belongs_to_a_step_runs_on_the_loop_of_its_run() -> None:
    def call() -> object:
        return run_blocking(this_loop, called="ctx.run_sync", instead="ctx.run", home=loop_of_run())

    async with Scope("step", "s", parent=None):
        assert await asyncio.to_thread(call) is asyncio.get_running_loop()


def test_each_thread_that_waits_for_a_background_loop_waits_for_another_one() -> None:
    """Otherwise that loop would wait for its own threads."""

    async def loops(*around: asyncio.AbstractEventLoop) -> list[asyncio.AbstractEventLoop]:
        loop = asyncio.get_running_loop()
        if len(around) == 4:
            return [*around, loop]
        inner = functools.partial(loops, *around, loop)
        if len(around) % 2:
            return await asyncio.to_thread(waiting_for, inner)
        return await loop.run_in_executor(None, waiting_for, inner)  # without context variables

    assert len(set(waiting_for(loops))) == 5


@pytest.mark.parametrize("start", [of_the_run, of_their_own], ids=["of the run", "of its own"])
async def test_a_call_of_a_thread_ends_with_its_scope(start: Start) -> None:
    started, cancelled = threading.Event(), threading.Event()

    async def never() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with Scope("step", "s", parent=None):
        thread = asyncio.create_task(start(lambda: waiting_for(never)))
        await asyncio.to_thread(started.wait, PATIENCE)
    assert cancelled.is_set()
    with pytest.raises(asyncio.CancelledError):
        await thread
    assert_no_task_is_left()


@pytest.mark.parametrize("start", [of_the_run, of_their_own], ids=["of the run", "of its own"])
async def test_a_call_made_after_its_scope_has_ended_ends_with_the_nearest_that_is_open(start: Start) -> None:
    started = threading.Event()

    async def never() -> None:
        started.set()
        await asyncio.Event().wait()

    async with Scope("pipeline", "p", parent=None) as run:
        async with Scope("step", "s", parent=run) as step:
            step.close()
            thread = asyncio.create_task(start(lambda: waiting_for(never)))
            await asyncio.to_thread(started.wait, PATIENCE)
        assert not thread.done()
    with pytest.raises(asyncio.CancelledError):
        await thread


INTERRUPTED = """
import asyncio, os, signal, sys, threading
from fastroai.errors import records_of, usage_of
from fastroai.records import RequestRecord
from fastroai.runtime import Scope, run_blocking

async def spend_and_hang():
    async with Scope("agent", "a", parent=None) as scope:
        scope.charge(RequestRecord(model="m", provider="p", outcome="unmeasured"))
        try:
            while sys._current_frames()[threading.main_thread().ident].f_code.co_name != "wait":
                await asyncio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)
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
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.stdout.split(), done.stderr) == (["ended", "1", "1"], "")


# --- sync twins ---


class Thing:
    async def add(self, number: int, *, to: int = 1) -> int:
        """Add a number to another.

        Args:
            number: The number.
            to: The other.
        """
        return number + to

    add_sync = blocking(add, of="thing")


def test_a_twin_takes_and_gives_what_the_async_method_does() -> None:
    assert Thing().add_sync(2) == 3
    assert Thing().add_sync(number=2, to=3) == Thing.add_sync(Thing(), 2, to=3) == 5
    with pytest.raises(TypeError, match=r"Thing.add_sync\(\) got an unexpected keyword argument 'two'"):
        Thing().add_sync(2, two=3)  # type: ignore[call-arg]


def test_a_twin_calls_the_method_of_a_subclass_and_of_the_object() -> None:
    class Negative(Thing):
        async def add(self, number: int, *, to: int = 1) -> int:
            return -await super().add(number, to=to)

    async def nothing(number: int) -> int:
        return 0

    assert Negative().add_sync(2) == -3
    thing = Thing()
    thing.add = nothing  # type: ignore[method-assign, assignment]
    assert thing.add_sync(2) == 0


def test_a_twin_has_the_signature_and_the_documentation_of_the_method() -> None:
    assert inspect.signature(Thing().add_sync) == inspect.signature(Thing().add)
    assert not inspect.iscoroutinefunction(Thing.add_sync)
    assert (Thing.add_sync.__name__, Thing.add_sync.__qualname__) == ("add_sync", "Thing.add_sync")
    documentation = inspect.getdoc(Thing.add_sync) or ""
    assert documentation.startswith("`add` for scripts and worker threads. On a running event loop it raises")
    assert documentation.endswith(inspect.getdoc(Thing.add) or "nothing")


async def test_a_twin_says_what_to_await_instead() -> None:
    with pytest.raises(RunningLoopError, match=r"^thing.add_sync\(\) .* use: await thing.add\(...\)$"):
        Thing().add_sync(2)


async def test_a_twin_runs_at_home_if_the_run_around_it_is_there() -> None:
    given: list[object] = []

    def home(*args: object, **options: object) -> asyncio.AbstractEventLoop:
        given.append((args, options))
        return here

    class Settled:
        async def where(self, *of: str, **options: str) -> asyncio.AbstractEventLoop:
            return asyncio.get_running_loop()

        where_sync = blocking(where, of="settled", home=home)

    here, settled = asyncio.get_running_loop(), Settled()
    assert await asyncio.to_thread(settled.where_sync, "a", b="c") is not here
    async with Scope("step", "s", parent=None):
        assert await asyncio.to_thread(settled.where_sync) is here
    assert given == [((settled, "a"), {"b": "c"}), ((settled,), {})]


@pytest.mark.parametrize("kind", [Pipeline, BasePipeline, Graph, FastroAgent, StepContext])
def test_sync_methods_have_the_parameters_and_defaults_of_the_async_ones(kind: type) -> None:
    def parameters(name: str) -> list[tuple[str, object, object]]:
        of_name = inspect.signature(getattr(kind, name)).parameters.values()
        return [(one.name, one.kind, one.default) for one in of_name]

    twins = [name for name in dir(kind) if name.endswith("_sync") and not name.startswith("_")]
    assert twins
    for twin in twins:
        name = twin.removesuffix("_sync")
        assert parameters(twin) == parameters(name)
        is_for_steps = kind is StepContext
        callers = "steps that are not `async`" if is_for_steps else "scripts and worker threads"
        assert (inspect.getdoc(getattr(kind, twin)) or "").startswith(f"`{name}` for {callers}.")


def test_an_interrupt_while_a_call_is_handed_over_ends_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended, interrupts = threading.Event(), threading.Event(), list[Any]()
    write = BaseSelectorEventLoop._write_to_self  # type: ignore[attr-defined]

    def interrupted(loop: Any) -> None:
        write(loop)
        if threading.current_thread() is threading.main_thread() and not interrupts:
            interrupts.append(loop)
            assert begun.wait(PATIENCE)
            raise KeyboardInterrupt

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    monkeypatch.setattr(BaseSelectorEventLoop, "_write_to_self", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_blocking(work, called="work_sync", instead="work")
    assert ended.is_set()
