"""`run`: runs a coroutine as a whole program, for scripts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from fastroai.errors import ConfigurationError, RunningLoopError
from fastroai.runtime.concurrency.wakeup import blocked_loop

T = TypeVar("T")

LAST_WORDS: Final = 5.0
"""Seconds that cancelled tasks may still take after the coroutine has ended."""

logger = logging.getLogger("fastroai.functions")


def run(awaitable: Awaitable[T]) -> T:
    """Run a flow, a typed function or any other coroutine on an event loop of its own, and return its result.

        print(run(triage("The invoice is wrong")))

    An exception of the coroutine is raised as it is. Tasks that are left over at its end are cancelled. A
    task that does not end within 5 seconds is logged and left behind, so that the program continues. This
    does not wait for worker threads that are still busy.

    Raises:
        ConfigurationError: the argument cannot be awaited, such as the function itself.
        RunningLoopError: this thread already runs an event loop, as in a notebook: use `await` there. On the
            loop of trio, the error names the way that works. The coroutine is closed, and nothing runs.
    """
    if not isinstance(awaitable, Awaitable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError("run", awaitable, "a call, such as run(triage(text))")
    if (loop_here := blocked_loop()) is not None:
        if isinstance(awaitable, asyncio.Future):
            awaitable.cancel()
        elif (close := getattr(awaitable, "close", None)) is not None:
            close()
        raise RunningLoopError("run", getattr(awaitable, "__name__", "the flow"), loop_here)
    loop = asyncio.new_event_loop()
    threads = ThreadPoolExecutor(thread_name_prefix="fastroai-run")
    loop.set_default_executor(threads)
    try:
        return loop.run_until_complete(_awaited(awaitable))
    finally:
        try:
            _end_tasks(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            loop.close()


async def _awaited(awaitable: Awaitable[T]) -> T:
    return await awaitable


def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    if tasks := asyncio.all_tasks(loop):
        for task in tasks:
            task.cancel()
        _, pending = loop.run_until_complete(asyncio.wait(tasks, timeout=LAST_WORDS))
        for task in pending:
            logger.warning("a task did not end within %g s of its cancellation: %r", LAST_WORDS, task)
