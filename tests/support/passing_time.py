"""Moves the clock of an event loop forward, in tests that wait for something real, such as a server."""

from __future__ import annotations

import asyncio


def time_passes(seconds: float) -> None:
    """Move the clock of the running event loop forward: timers that are due by then go off."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]
