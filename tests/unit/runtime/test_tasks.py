import asyncio

import pytest

from fastroai.runtime.concurrency.tasks import end_task, end_tasks


async def test_a_task_is_cancelled_and_awaited() -> None:
    task = asyncio.create_task(asyncio.Event().wait())
    await end_task(task)
    assert task.cancelled()


async def test_a_task_that_has_ended_is_left_as_it_is() -> None:
    task = asyncio.create_task(asyncio.sleep(0, "result"))
    await task
    await end_task(task)
    assert task.result() == "result"


async def test_what_the_task_raises_stays_its_own() -> None:
    async def fail() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("while ending")

    task = asyncio.create_task(fail())
    await asyncio.sleep(0)
    await end_task(task)
    assert isinstance(task.exception(), ValueError)


async def test_cancelling_the_one_who_waits_does_not_leave_the_task_behind() -> None:
    ending, may_end = asyncio.Event(), asyncio.Event()

    async def slow_to_end() -> None:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                ending.set()

    task = asyncio.create_task(slow_to_end())
    await asyncio.sleep(0)
    waiter = asyncio.create_task(end_task(task))
    await ending.wait()
    waiter.cancel()
    await asyncio.sleep(0)
    assert not waiter.done(), "it goes on waiting"
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert task.done()


async def test_tasks_are_all_ended_with_those_that_join_them_meanwhile() -> None:
    tasks: set[asyncio.Task[object]] = set()

    async def call_another() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            tasks.add(asyncio.create_task(asyncio.Event().wait()))

    tasks.add(asyncio.create_task(call_another()))
    tasks.add(asyncio.create_task(asyncio.Event().wait()))
    await asyncio.sleep(0)
    await end_tasks(tasks)
    assert [task.cancelled() for task in tasks] == [True] * 3


async def test_no_tasks_are_ended_at_once() -> None:
    await end_tasks([])
