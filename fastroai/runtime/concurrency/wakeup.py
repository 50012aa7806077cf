"""Waking a coroutine from any thread or event loop."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import Future
from contextlib import suppress
from typing import Literal, TypeVar

from fastroai.errors import NoRunningLoopError

T = TypeVar("T")


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread; `None` if none does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def blocked_loop() -> Literal["asyncio", "trio"] | None:
    """Return the library whose event loop runs in this thread: waiting here would block it."""
    if running_loop() is not None:
        return "asyncio"
    trio = sys.modules.get("trio")  # runs nothing if nobody has imported it
    return "trio" if trio is not None and trio.lowlevel.in_trio_run() else None


def no_running_loop() -> NoRunningLoopError:
    """Return the error for code that needs asyncio but runs outside of an asyncio event loop."""
    return NoRunningLoopError("trio" if blocked_loop() == "trio" else None)


class Wakeup:
    """An event that one coroutine waits for, and that any thread may set, once."""

    __slots__ = ("_future", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()

    async def wait(self) -> None:
        """Wait until the event is set."""
        await self._future

    async def wait_for(self, seconds: float) -> bool:
        """Wait until the event is set, for at most `seconds`. Returns whether it is set."""
        done, _ = await asyncio.wait([self._future], timeout=seconds)
        return bool(done)

    def set(self) -> None:
        """Wake the coroutine that waits. If its loop is closed, nothing happens."""
        if running_loop() is self._loop:
            self._finish()
            return
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        if not self._future.done():
            self._future.set_result(None)


async def result_of(future: Future[T]) -> T:
    """Wait for the result of a future of any thread. The waiting task may be cancelled; the future is not."""
    done = Wakeup()
    future.add_done_callback(lambda _: done.set())
    await done.wait()
    return future.result()


async def wait_for(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, at most `seconds`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
