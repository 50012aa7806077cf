import asyncio
from contextvars import ContextVar

import pytest
from support.leftovers import assert_no_task_is_left
from support.virtual_time import in_virtual_time, now

from fastroai.steps.fanout import run_bounded

VARIABLE: ContextVar[str] = ContextVar("variable", default="unset")


@in_virtual_time
async def test_results_come_in_the_order_of_the_items_whatever_finishes_first() -> None:
    async def one(index: int, seconds: int) -> str:
        await asyncio.sleep(seconds)
        return f"{index}: {seconds}"

    assert await run_bounded(one, [3, 1, 2], 10) == ["0: 3", "1: 1", "2: 2"]
    assert now() == 3


@in_virtual_time
async def test_no_more_than_the_bound_run_at_once_and_the_next_starts_when_one_ends() -> None:
    running = most = 0

    async def one(index: int, seconds: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(seconds)
        running -= 1

    await run_bounded(one, [5, 1, 1, 1, 1, 1], 2)
    assert most == 2
    assert now() == 5, "five short ones pass beside the long one"


@in_virtual_time
async def test_the_first_failure_cancels_the_rest_and_is_raised_as_itself() -> None:
    cancelled: list[int] = []
    failure = ValueError("the first")

    async def one(index: int, seconds: int) -> None:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            cancelled.append(index)
            raise
        raise failure

    with pytest.raises(ValueError, match="the first") as caught:
        await run_bounded(one, [3, 1, 2, 0], 3)
    assert caught.value is failure
    assert sorted(cancelled) == [0, 2], "and the last was never started"
    assert now() == 1
    assert_no_task_is_left()


async def test_nothing_to_do_is_done() -> None:
    async def one(index: int, item: object) -> None:
        raise AssertionError("there are no items")

    assert await run_bounded(one, [], 5) == []


async def test_context_variables_of_one_item_are_not_seen_by_the_next() -> None:
    async def one(index: int, item: int) -> str:
        before = VARIABLE.get()
        VARIABLE.set(f"set by {index}")
        await asyncio.sleep(0)
        return before

    assert await run_bounded(one, [1, 2, 3], 1) == ["unset"] * 3


async def test_cancelling_it_cancels_everything_inside() -> None:
    started, cancelled = asyncio.Event(), []

    async def one(index: int, item: int) -> None:
        if index == 2:
            started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(index)

    task = asyncio.create_task(run_bounded(one, [1, 2, 3], 3))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(cancelled) == [0, 1, 2]
    assert_no_task_is_left()


async def test_an_item_that_cancels_itself_is_not_passed_over() -> None:
    async def one(index: int, item: int) -> int:
        if index == 1:
            raise asyncio.CancelledError
        return item

    with pytest.raises(asyncio.CancelledError):
        await run_bounded(one, [1, 2, 3], 2)
