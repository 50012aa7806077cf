"""Time that passes at once, when a test says so, on an event loop that waits for something real."""

from __future__ import annotations

import asyncio


def time_passes(seconds: float) -> None:
    """Let so many seconds pass for all timers of the event loop that runs."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]
