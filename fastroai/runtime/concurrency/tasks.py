"""Functions that cancel tasks and always wait for their end."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any, TypeVar

import anyio

T = TypeVar("T")


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Await work that goes on to its end, however often the caller is cancelled meanwhile.

    A cancellation of the caller is raised once the work has ended.
    """
    task, cancelled = asyncio.create_task(work), None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result


async def end_task(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end, however often the caller is cancelled meanwhile.

    Exceptions of the task are not raised here. A cancellation of the caller is, once the task has ended.
    """
    await end_tasks([task])


async def end_tasks(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel several tasks and wait for their end, including tasks that join `tasks` meanwhile."""
    cancelled: asyncio.CancelledError | None = None
    while running := [task for task in tasks if not task.done()]:
        for task in running:
            task.cancel()
        try:
            # A cancelled scope of anyio would interrupt this wait in each turn of the loop. That would cancel
            # the tasks again, which may be about to put their last facts on record.
            with anyio.CancelScope(shield=True):
                await asyncio.wait(running)
        except asyncio.CancelledError as error:
            cancelled = error
    for task in tasks:
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log that it never was
    if cancelled is not None:
        raise cancelled
