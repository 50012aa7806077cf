"""Worker threads for code that is not `async`: steps, tools and other functions of an agent.

A worker thread may wait for agents and pipelines, whose own steps and tools need threads too. With one limit
for all, waiting threads could use up the limit and leave none for the work that they wait for. So each depth
of waiting has threads of its own, and a thread waits only for a greater depth.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Final, ParamSpec, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar

from fastroai.callers import CALLER
from fastroai.forks import in_forked_process
from fastroai.runtime.scope import current_scope

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("fastroai.runtime")

THREADS_AT_EACH_DEPTH: Final = 40
"""Number of worker threads of an event loop at each depth; anyio has as many in all."""

_limiters: Final[RunVar[dict[int, CapacityLimiter]]] = RunVar("fastroai_threads")


class _ThisThread(threading.local):
    """Data of the running thread."""

    loop: asyncio.AbstractEventLoop | None = None
    """The event loop for which the thread calls a function now; sync calls in the thread run on that loop."""
    depth: int = 0
    """The least depth of code that runs in the thread."""


_this_thread: Final = _ThisThread()


def _after_fork() -> None:
    """Forget the loop of this thread, which is in the process that forked this one."""
    _this_thread.loop = None


in_forked_process(_after_fork)


def depth() -> int:
    """Return how many threads, one inside the other, wait for the running code."""
    return max(CALLER.get().depth, _this_thread.depth)


def mark_thread(at_depth: int) -> None:
    """Set the least depth of all code in this thread, also of code without context variables."""
    _this_thread.depth = at_depth


def loop_of_this_thread() -> asyncio.AbstractEventLoop | None:
    """Return the event loop for which this thread works; `None` if it does not work for FastroAI now."""
    return _this_thread.loop


def work_for(loop: asyncio.AbstractEventLoop, call: Callable[[], T]) -> T:
    """Call a blocking function in this thread, whose sync calls then run on `loop`."""
    _this_thread.loop = loop
    try:
        return call()
    finally:
        _this_thread.loop = None


async def run_in_thread(call: Callable[[], T], *, what: str) -> T:
    """Call a blocking function in a worker thread, with the context variables that are set here.

    If this call is cancelled, the thread cannot be stopped. It runs on unattended, a warning that names
    `what` is logged, and another thread may take its place.
    """
    loop, begun = asyncio.get_running_loop(), False

    def work() -> T:
        nonlocal begun
        begun = True
        return work_for(loop, call)

    try:
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=_limiter())
    except asyncio.CancelledError:
        if begun:
            logger.warning("%s: its thread could not be stopped and continues by itself", what)
        raise


def _limiter() -> CapacityLimiter:
    """Return the limiter of the threads at the depth of the running code, on the running loop."""
    limiters = _limiters.get(None)
    if limiters is None:
        _limiters.set(limiters := {})
    here = depth()
    if here not in limiters:
        limiters[here] = CapacityLimiter(THREADS_AT_EACH_DEPTH)
    return limiters[here]


class WorkerThreads(Executor):
    """An executor that uses `run_in_thread`, for code such as PydanticAI's calls of sync functions."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call the function in a worker thread. If the future is cancelled, the thread runs on unattended."""
        loop = asyncio.get_running_loop()
        future: Future[T] = Future()
        task = loop.create_task(_fulfil(future, functools.partial(fn, *args, **kwargs)))

        def end_task(ended: Future[T]) -> None:
            if ended.cancelled():
                task.cancel()

        future.add_done_callback(end_task)
        return future


async def _fulfil(future: Future[Any], call: Callable[[], Any]) -> None:
    scope = current_scope()
    what = (
        "a function that is not async" if scope is None else f"a sync function of {scope.kind} {scope.name!r}"
    )
    try:
        result = await run_in_thread(call, what=what)
    except asyncio.CancelledError:
        future.cancel()
        raise
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
