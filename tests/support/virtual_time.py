"""Tests of time without waiting for it: when nothing can happen before a timer, the clock jumps to it."""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")

THREAD_PATIENCE = 120.0
"""Real seconds to wait for a worker thread when there is nothing else to wait for."""


class _JumpingSelector(selectors.DefaultSelector):
    """Looks whether anything is there, and moves the clock on where the loop would have slept."""

    loop: VirtualTimeLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is not None:
            self.loop.now += timeout
            return []
        if not (ready := super().select(THREAD_PATIENCE)):
            raise AssertionError("everything waits, and nothing will ever happen")
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` starts at 0 and only passes while everything waits."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        """Virtual seconds since the start."""
        return self.now

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait for the threads without a time limit: as real time, it would be over at once here."""
        await super().shutdown_default_executor()


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test on a loop of virtual time."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


def now() -> float:
    """Virtual seconds since the start of the test."""
    return asyncio.get_running_loop().time()


def block(seconds: float) -> None:
    """Let time pass as code does that does not await: no timer fires meanwhile."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.now += seconds
