import asyncio
from contextvars import ContextVar

import pytest
from support.leftovers import assert_no_task_is_left
from support.patience import PATIENCE

from fastroai.runtime import Scope, Send
from fastroai.runtime.concurrency.pump import Pump

WHERE: ContextVar[str] = ContextVar("where", default="nowhere")


async def count(send: Send[int]) -> None:
    for number in range(5):
        await send(number)


async def count_for_ever(send: Send[int]) -> None:
    number = 0
    while True:
        await send(number)
        number += 1


async def settle() -> None:
    """Let every task go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_items_arrive_in_order_and_then_it_ends() -> None:
    pump = Pump(count)
    assert [item async for item in pump] == [0, 1, 2, 3, 4]
    assert [item async for item in pump] == []
    assert_no_task_is_left()


@pytest.mark.parametrize("leaves", [False, True])
async def test_the_end_comes_to_all_who_read_at_the_same_time(leaves: bool) -> None:
    pump = Pump(count)

    async def read() -> list[int]:
        return [item async for item in pump]

    readers = [asyncio.create_task(read()) for _ in range(3)]
    if leaves:
        await asyncio.sleep(0)
        await pump.aclose()
    read_by_all = await asyncio.wait_for(asyncio.gather(*readers), PATIENCE)
    assert leaves or sorted(item for items in read_by_all for item in items) == [0, 1, 2, 3, 4]
    assert_no_task_is_left()


async def test_a_failure_comes_to_all_who_read_at_the_same_time() -> None:
    async def fail(send: Send[int]) -> None:
        await settle()
        raise ValueError("lost")

    pump = Pump(fail)
    reads = (anext(pump) for _ in range(2))
    failures = await asyncio.wait_for(asyncio.gather(*reads, return_exceptions=True), PATIENCE)
    assert [str(failure) for failure in failures] == ["lost", "lost"]


async def test_nothing_happens_before_the_first_item_is_asked_for() -> None:
    pump = Pump(count)
    await settle()
    assert not pump.started
    assert await anext(pump) == 0
    assert pump.started
    await pump.aclose()


@pytest.mark.parametrize("depth", [1, 3])
async def test_the_producer_is_never_more_than_depth_ahead(depth: int) -> None:
    sent = 0

    async def produce(send: Send[int]) -> None:
        nonlocal sent
        while True:
            await send(sent)
            sent += 1

    pump = Pump(produce, depth=depth)
    for read in range(1, 6):
        await anext(pump)
        await settle()
        assert sent == read + depth
    await pump.aclose()


async def test_the_producers_failure_is_raised_after_what_it_sent() -> None:
    async def produce(send: Send[int]) -> None:
        await send(1)
        raise ValueError("broken")

    pump = Pump(produce)
    assert await anext(pump) == 1
    with pytest.raises(ValueError, match="broken"):
        await anext(pump)
    with pytest.raises(StopAsyncIteration):
        await anext(pump)


async def test_closing_cancels_the_producer_and_waits_for_its_end() -> None:
    cleaned = False

    async def produce(send: Send[int]) -> None:
        nonlocal cleaned
        try:
            await count_for_ever(send)
        finally:
            await settle()
            cleaned = True

    pump = Pump(produce)
    await anext(pump)
    await pump.aclose()
    assert cleaned
    assert_no_task_is_left()
    with pytest.raises(StopAsyncIteration):
        await anext(pump)
    await pump.aclose()


async def test_closing_does_not_raise_what_nobody_has_read() -> None:
    async def produce(send: Send[int]) -> None:
        await send(1)
        raise ValueError("broken")

    pump = Pump(produce)
    await anext(pump)
    await settle()
    await pump.aclose()


async def test_closing_one_that_never_started_is_nothing() -> None:
    pump = Pump(count)
    await pump.aclose()
    assert [item async for item in pump] == []


async def test_a_producer_whose_consumer_has_left_ends_all_the_same() -> None:
    async def produce(send: Send[int]) -> None:
        await send(1)

    pump = Pump(produce)
    task = asyncio.create_task(anext(pump))
    await settle()
    assert await task == 1
    await pump.aclose()
    assert_no_task_is_left()


async def test_a_cancelled_consumer_loses_no_item() -> None:
    go = asyncio.Event()

    async def produce(send: Send[int]) -> None:
        await go.wait()
        await send(1)

    pump = Pump(produce)
    reader = asyncio.create_task(anext(pump))
    await settle()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    go.set()
    assert [item async for item in pump] == [1]


async def wait(send: Send[int]) -> None:
    await asyncio.sleep(60)


async def test_closing_ends_the_items_for_a_reader_in_another_task() -> None:
    pump = Pump(wait)
    reader = asyncio.create_task(anext(pump, 7))
    await settle()
    await pump.aclose()
    assert await reader == 7


async def test_stopping_ends_the_items_for_a_reader_in_another_task() -> None:
    pump = Pump(wait)
    reader = asyncio.create_task(anext(pump, 7))
    await settle()
    pump.stop()
    pump.stop()
    assert await reader == 7
    assert pump.is_stopped


async def test_stopping_one_that_never_started_keeps_it_from_starting() -> None:
    pump = Pump(count)
    pump.stop()
    assert [item async for item in pump] == []
    assert not pump.started
    assert pump.is_stopped


async def test_one_that_has_ended_or_failed_is_not_stopped() -> None:
    async def fail(send: Send[int]) -> None:
        raise ValueError("broken")

    ended, failed = Pump(count, depth=9), Pump(fail)
    assert [item async for item in ended] == [0, 1, 2, 3, 4]
    reader = asyncio.create_task(anext(failed))
    await asyncio.wait([reader])
    for pump in (ended, failed):
        pump.stop()
        assert not pump.is_stopped
    with pytest.raises(ValueError, match="broken"):
        await reader


async def test_a_cancellation_that_nobody_asked_for_is_raised() -> None:
    async def cancelled(send: Send[int]) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await anext(Pump(cancelled))


async def test_code_that_the_producer_awaits_can_close_it() -> None:
    async def produce(send: Send[int]) -> None:
        await asyncio.create_task(tool())

    async def tool() -> None:
        await pump.aclose()
        await asyncio.sleep(60)

    pump = Pump(produce)
    assert await asyncio.wait_for(anext(pump, 7), 5) == 7
    assert_no_task_is_left()


async def test_the_producer_has_the_context_of_the_place_where_the_pump_was_made() -> None:
    async def produce(send: Send[str]) -> None:
        await send(WHERE.get())
        WHERE.set("inside the producer")

    token = WHERE.set("where it was made")
    pump = Pump(produce)
    WHERE.reset(token)
    assert [item async for item in pump] == ["where it was made"]
    assert WHERE.get() == "nowhere"


async def test_it_ends_with_the_scope_that_it_was_made_in() -> None:
    async with Scope("step", "s", parent=None) as scope:
        pump = Pump(count_for_ever)
        await anext(pump)
        assert scope.open_inside
    assert_no_task_is_left()
    assert [item async for item in pump] == []


async def test_a_scope_forgets_a_pump_that_has_ended_or_was_closed() -> None:
    async with Scope("step", "s", parent=None) as scope:
        assert [item async for item in Pump(count)] == [0, 1, 2, 3, 4]
        pump = Pump(count_for_ever)
        await anext(pump)
        await pump.aclose()
        assert not scope.open_inside


async def test_cancelling_a_close_still_waits_for_the_producer() -> None:
    ending, may_end = asyncio.Event(), asyncio.Event()

    async def produce(send: Send[int]) -> None:
        try:
            await count_for_ever(send)
        finally:
            ending.set()
            while not may_end.is_set():
                try:
                    await may_end.wait()
                except asyncio.CancelledError:
                    continue

    pump = Pump(produce)
    await anext(pump)
    closing = asyncio.create_task(pump.aclose())
    await ending.wait()
    closing.cancel()
    await settle()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert_no_task_is_left()
