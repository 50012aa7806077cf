"""Ending tasks for sure."""

from __future__ import annotations

import asyncio
from typing import Any


async def end_task(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end, however often the caller is cancelled meanwhile.

    What the task raises is not raised here; a cancellation of the caller is, when the task has ended.
    """
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        task.cancel()
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if not task.cancelled():
        task.exception()  # seen, so that nobody complains that it never was
    if cancelled is not None:
        raise cancelled
