"""Ending tasks for sure."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import anyio


async def end_task(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end, however often the caller is cancelled meanwhile.

    What the task raises is not raised here; a cancellation of the caller is, when the task has ended.
    """
    await end_tasks([task])


async def end_tasks(tasks: Collection[asyncio.Task[Any]]) -> None:
    """`end_task` for several, those included that join `tasks` meanwhile."""
    cancelled: asyncio.CancelledError | None = None
    while running := [task for task in tasks if not task.done()]:
        for task in running:
            task.cancel()
        try:
            # A cancelled scope of anyio would interrupt this in each turn of the loop, and so the tasks,
            # which may be about to put their last words on record.
            with anyio.CancelScope(shield=True):
                await asyncio.wait(running)
        except asyncio.CancelledError as error:
            cancelled = error
    for task in tasks:
        if not task.cancelled():
            task.exception()  # seen, so that nobody complains that it never was
    if cancelled is not None:
        raise cancelled
