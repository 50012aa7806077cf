"""Waking a coroutine from any thread or event loop."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import Literal

from fastroai.errors import NoRunningLoopError


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, if one does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def blocked_loop() -> Literal["asyncio", "trio"] | None:
    """Return the library whose event loop runs in this thread: waiting here would block it."""
    if running_loop() is not None:
        return "asyncio"
    trio = sys.modules.get("trio")  # where nobody has imported it, it runs nothing
    return "trio" if trio is not None and trio.lowlevel.in_trio_run() else None


def no_running_loop() -> NoRunningLoopError:
    """Return the error for code that needs asyncio and is not run by it."""
    return NoRunningLoopError("trio" if blocked_loop() == "trio" else None)


class Wakeup:
    """Something that one coroutine waits for, and anyone may set, once."""

    __slots__ = ("_future", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()

    async def wait(self) -> None:
        """Wait until it is set."""
        await self._future

    async def wait_for(self, seconds: float) -> bool:
        """Wait until it is set, for so long at most. Returns whether it is."""
        done, _ = await asyncio.wait([self._future], timeout=seconds)
        return bool(done)

    def set(self) -> None:
        """Wake who waits. Nothing happens where its loop is closed: it waits no more."""
        if running_loop() is self._loop:
            self._finish()
            return
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        if not self._future.done():
            self._future.set_result(None)
