"""Runs one function for many items, a bounded number at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextvars import copy_context
from typing import Any, TypeVar

from fastroai.human.halting import is_halt
from fastroai.runtime.concurrency.isolation import in_context

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


async def run_bounded(
    one: Callable[[int, ItemT], Coroutine[Any, Any, ResultT]], items: Sequence[ItemT], concurrency: int
) -> list[ResultT]:
    """Call `one(index, item)` for each item, and return the results in item order.

    Context variables that one item sets are not seen by the next. The first failure cancels the other items
    and is raised as itself, not as a group. No task is left behind. If an item waits for a person, this halts
    when all other items are done or wait, too: so people see all questions, and no request is cut off.
    """
    results: dict[int, ResultT] = {}
    halts: list[BaseException] = []
    waiting: Iterator[tuple[int, ItemT]] = iter(enumerate(items))

    async def work() -> None:
        for index, item in waiting:
            try:
                results[index] = await in_context(one(index, item), copy_context())
            except BaseException as error:
                if not is_halt(error):
                    raise
                halts.append(error)

    failure: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(items))):
                group.create_task(work())
    except BaseExceptionGroup as failures:
        failure = failures.exceptions[0]
    if failure is not None:
        raise failure
    if halts:
        raise halts[0]
    if len(results) < len(items):
        raise asyncio.CancelledError  # something cancelled an item, which a task group passes over
    return [results[index] for index in range(len(items))]
