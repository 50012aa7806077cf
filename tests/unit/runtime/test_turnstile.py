from __future__ import annotations

import asyncio
import threading

from support.leftovers import assert_no_task_is_left

from fastroai.errors import SpendStoreUnavailable
from fastroai.runtime.concurrency.turnstile import Turnstile


async def let_all_wait() -> None:
    """Let every task go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_one_at_a_time_in_the_order_in_which_they_came() -> None:
    turnstile, inside, order = Turnstile(), 0, list[int]()

    async def pass_through(number: int) -> None:
        nonlocal inside
        async with turnstile.turn():
            inside += 1
            assert inside == 1
            order.append(number)
            await let_all_wait()
            inside -= 1

    await asyncio.gather(*map(pass_through, range(5)))
    assert order == [0, 1, 2, 3, 4]
    async with turnstile.turn():
        pass


async def test_whoever_is_cancelled_in_line_leaves_it() -> None:
    turnstile, passed = Turnstile(), list[str]()

    async def pass_through(name: str) -> None:
        async with turnstile.turn():
            passed.append(name)

    async with turnstile.turn():
        tasks = [asyncio.create_task(pass_through(name)) for name in ("a", "b", "c")]
        await let_all_wait()
        tasks[1].cancel()
    await asyncio.wait(tasks)
    assert passed == ["a", "c"]
    assert_no_task_is_left()


async def test_whoever_is_cancelled_when_it_was_their_turn_lets_the_next_one_through() -> None:
    turnstile, passed = Turnstile(), list[str]()

    async def pass_through(name: str) -> None:
        async with turnstile.turn():
            passed.append(name)

    async with turnstile.turn():
        tasks = [asyncio.create_task(pass_through(name)) for name in ("a", "b")]
        await let_all_wait()
    tasks[0].cancel()  # it is its turn, and it has not noticed
    await asyncio.wait(tasks)
    assert passed == ["b"]


async def test_any_number_of_those_in_line_may_be_cancelled_before_the_next_one() -> None:
    turnstile = Turnstile()

    async def pass_through() -> None:
        async with turnstile.turn():
            pass

    async with turnstile.turn():
        tasks = [asyncio.create_task(pass_through()) for _ in range(5_000)]
        await let_all_wait()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        last = asyncio.create_task(pass_through())
        await let_all_wait()
    await last


async def test_an_error_inside_lets_the_next_one_through() -> None:
    turnstile = Turnstile()

    async def fail() -> None:
        async with turnstile.turn():
            raise ValueError

    assert [type(error) for error in await asyncio.gather(fail(), fail(), return_exceptions=True)] == [
        ValueError,
        ValueError,
    ]


async def test_all_who_wait_are_turned_away_and_who_comes_later_is_not() -> None:
    turnstile, passed = Turnstile(), list[str]()
    refusal = SpendStoreUnavailable("redis", "is down")

    async def pass_through(name: str) -> None:
        async with turnstile.turn():
            passed.append(name)

    async with turnstile.turn() as turn:
        waiting = [asyncio.create_task(pass_through(name)) for name in "abc"]
        await let_all_wait()
        turn.set_exception(refusal)
        errors = await asyncio.gather(*waiting, return_exceptions=True)
        assert passed == []
        await pass_through("later")
    assert passed == ["later"]
    assert errors == [refusal] * 3


async def test_whoever_is_cancelled_while_turned_away_passes_the_error_on() -> None:
    turnstile = Turnstile()

    async def pass_through() -> None:
        async with turnstile.turn():
            raise AssertionError

    async with turnstile.turn() as turn:
        tasks = [asyncio.create_task(pass_through()) for _ in range(2)]
        await let_all_wait()
        turn.set_exception(ValueError())
        tasks[0].cancel()
        errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(error) for error in errors] == [asyncio.CancelledError, ValueError]
    async with turnstile.turn():
        pass


def test_it_lets_through_those_of_many_event_loops_one_at_a_time() -> None:
    turnstile, together, passed = Turnstile(), threading.Barrier(6), 0
    inside = threading.Lock()

    async def pass_through() -> None:
        nonlocal passed
        async with turnstile.turn():
            assert inside.acquire(blocking=False), "alone"
            await asyncio.sleep(0)
            passed += 1
            inside.release()

    async def pass_often() -> None:
        await asyncio.gather(*(pass_through() for _ in range(20)))

    def work() -> None:
        together.wait()
        asyncio.run(pass_often())

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert passed == 120
