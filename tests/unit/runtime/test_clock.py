import asyncio

import pytest
from support.virtual_time import block, in_virtual_time, now

from fastroai.errors import TimeLimitExceeded
from fastroai.runtime import Clock


@in_virtual_time
async def test_running_out_cancels_what_is_inside_and_says_what_took_too_long() -> None:
    cancelled = False

    async def work() -> None:
        nonlocal cancelled
        async with Clock(2.5, "the thing"):
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                cancelled = True
                raise

    with pytest.raises(TimeLimitExceeded, match=r"^the thing took longer than 2.5 s$") as caught:
        await work()
    assert cancelled
    assert now() == 2.5
    assert (caught.value.what, caught.value.seconds) == ("the thing", 2.5)


@in_virtual_time
async def test_a_clock_that_did_not_run_out_does_nothing() -> None:
    async with Clock(2, "the thing") as clock:
        await asyncio.sleep(1)
        assert clock.remaining() == 1
    assert clock.remaining() is None
    await asyncio.sleep(5)


@in_virtual_time
async def test_none_bounds_nothing_and_can_be_paused() -> None:
    async with Clock(None, "the thing") as clock:
        assert clock.remaining() is None
        with clock.paused():
            await asyncio.sleep(1_000_000)


@in_virtual_time
async def test_paused_time_does_not_count() -> None:
    async def work() -> None:
        async with Clock(2, "the thing") as clock:
            await asyncio.sleep(1.5)
            with clock.paused():
                assert clock.remaining() is None
                await asyncio.sleep(100)
            assert clock.remaining() == 0.5
            await asyncio.sleep(1)

    with pytest.raises(TimeLimitExceeded):
        await work()
    assert now() == 102


@in_virtual_time
async def test_a_clock_paused_by_several_runs_again_when_the_last_one_resumes() -> None:
    clock = Clock(2, "the thing")

    async def call(starts: float, seconds: float) -> None:
        await asyncio.sleep(starts)
        with clock.paused():
            await asyncio.sleep(seconds)

    async def work() -> None:
        async with clock:
            # from 1 to 4 and from 2 to 9: paused from 1 to 9
            await asyncio.gather(call(1, 3), call(2, 7))
            await asyncio.sleep(10)

    with pytest.raises(TimeLimitExceeded):
        await work()
    assert now() == 10


@in_virtual_time
async def test_an_inner_pause_does_not_end_the_outer_one() -> None:
    async with Clock(1, "the thing") as clock:
        with clock.paused():
            with clock.paused():
                await asyncio.sleep(10)
            await asyncio.sleep(10)
        assert clock.remaining() == 1


@in_virtual_time
async def test_an_outer_deadline_passes_through_an_inner_clock() -> None:
    with pytest.raises(TimeLimitExceeded, match="the outer"):
        async with Clock(1, "the outer"), Clock(5, "the inner"):
            await asyncio.sleep(10)
    assert now() == 1


@in_virtual_time
async def test_somebody_elses_timeout_error_stays_what_it_is() -> None:
    theirs = TimeoutError("theirs")
    with pytest.raises(TimeoutError) as caught:
        async with Clock(1, "the thing"):
            raise theirs
    assert caught.value is theirs


@in_virtual_time
async def test_pausing_and_resuming_after_it_ran_out_changes_nothing() -> None:
    async def work() -> None:
        async with Clock(1, "the thing") as clock:
            try:
                await asyncio.sleep(10)
            finally:
                with clock.paused():
                    await asyncio.sleep(1)

    with pytest.raises(TimeLimitExceeded):
        await work()
    assert now() == 2


@in_virtual_time
async def test_resuming_after_the_block_was_left_changes_nothing() -> None:
    async with Clock(1, "the thing") as clock:
        pause = clock.paused()
        pause.__enter__()
    pause.__exit__(None, None, None)
    await asyncio.sleep(10)


@in_virtual_time
async def test_a_deadline_that_passed_while_the_loop_was_busy_counts_after_a_pause() -> None:
    async def work() -> None:
        async with Clock(1, "the thing") as clock:
            block(3)
            with clock.paused():
                assert clock.remaining() is None
            await asyncio.sleep(5)

    with pytest.raises(TimeLimitExceeded):
        await work()
    assert now() == 3


@in_virtual_time
async def test_cancellation_from_outside_is_not_a_timeout() -> None:
    async def work() -> None:
        async with Clock(5, "the thing"):
            await asyncio.sleep(10)

    task = asyncio.create_task(work())
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
