"""Many of one thing, a bounded number at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


async def run_bounded(
    one: Callable[[int, ItemT], Awaitable[ResultT]], items: Sequence[ItemT], concurrency: int
) -> list[ResultT]:
    """`one(index, item)` for each item, results in item order.

    The first failure cancels what runs and is raised as itself, not as a group. No task is left behind.
    """
    results: dict[int, ResultT] = {}
    waiting: Iterator[tuple[int, ItemT]] = iter(enumerate(items))

    async def work() -> None:
        for index, item in waiting:
            results[index] = await one(index, item)

    failure: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(items))):
                group.create_task(work())
    except BaseExceptionGroup as failures:
        failure = failures.exceptions[0]
    if failure is not None:
        raise failure
    if len(results) < len(items):
        raise asyncio.CancelledError  # something cancelled an item, which a task group passes over
    return [results[index] for index in range(len(items))]
