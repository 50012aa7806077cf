"""The clock, the pump, and contexts of their own, under any sequence of uses."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from contextvars import ContextVar, copy_context
from itertools import accumulate, count, islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.leftovers import assert_no_task_is_left
from support.virtual_time import VirtualTimeLoop, now

from fastroai.errors import TimeLimitExceeded
from fastroai.runtime import Clock, Send
from fastroai.runtime.concurrency.isolation import in_context
from fastroai.runtime.concurrency.pump import Pump

common = settings(deadline=None)

# --- clock ---


@common
@given(st.integers(1, 20), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=8))
def test_only_time_outside_of_pauses_counts_however_they_nest(
    limit: int, spans: list[tuple[int, int]]
) -> None:
    """Each span is slept through inside so many pauses, of which none or several may nest.

    The limit lies half a second beside all other times, so that nothing happens at the same moment.
    """

    async def main() -> None:
        async with Clock(limit + 0.5, "it") as clock:
            for depth, seconds in spans:
                with ExitStack() as pauses:
                    for _ in range(depth):
                        pauses.enter_context(clock.paused())
                    await asyncio.sleep(seconds)

    counted = list(accumulate((0 if depth else seconds for depth, seconds in spans), initial=0))
    runs_out = next((index for index, sum_ in enumerate(counted) if sum_ > limit), None)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        loop = runner.get_loop()
        if runs_out is None:
            runner.run(main())
            assert loop.time() == sum(seconds for _, seconds in spans)
            return
        with pytest.raises(TimeLimitExceeded):
            runner.run(main())
        before = sum(seconds for _, seconds in spans[: runs_out - 1])
        assert loop.time() == before + limit + 0.5 - counted[runs_out - 1]


@common
@given(
    st.integers(1, 20),
    st.lists(st.tuples(st.integers(0, 15), st.integers(1, 10)), min_size=1, max_size=5),
)
def test_overlapping_pauses_of_several_tasks_stop_the_clock_for_their_union(
    limit: int, pauses: list[tuple[int, int]]
) -> None:
    clock = Clock(limit + 0.5, "it")

    async def pause(start: int, seconds: int) -> None:
        await asyncio.sleep(start)
        with clock.paused():
            await asyncio.sleep(seconds)

    async def main() -> float:
        tasks = [asyncio.create_task(pause(*one)) for one in pauses]
        try:
            async with clock:
                await asyncio.sleep(10_000)
        except TimeLimitExceeded:
            ended = now()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return ended

    paused = {second for start, length in pauses for second in range(start, start + length)}
    running = (second for second in count() if second not in paused)
    last = next(islice(running, limit, None))
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(main()) == last + 0.5


# --- pump ---


@common
@given(
    items=st.integers(0, 8),
    depth=st.integers(1, 4),
    reads=st.integers(0, 10),
    fails=st.booleans(),
    pauses=st.lists(st.booleans(), max_size=10),
)
def test_a_pump_gives_what_was_sent_in_order_and_ends_with_its_reader(
    items: int, depth: int, reads: int, fails: bool, pauses: list[bool]
) -> None:
    async def main() -> None:
        sent = 0
        ended = False

        async def produce(send: Send[int]) -> None:
            nonlocal sent, ended
            try:
                for number in range(items):
                    if pauses[number : number + 1] == [True]:
                        await asyncio.sleep(0)
                    await send(number)
                    sent += 1
                if fails:
                    raise ValueError("broken")
            finally:
                ended = True

        pump = Pump(produce, depth=depth)
        read: list[int] = []
        failed = False
        for _ in range(reads):
            try:
                read.append(await anext(pump))
            except StopAsyncIteration:
                break
            except ValueError:
                failed = True
                break
            assert sent <= len(read) + depth
        await pump.aclose()
        assert read == list(range(min(items, reads)))
        assert failed == (fails and reads > items)
        assert ended == bool(reads)
        assert_no_task_is_left()

    asyncio.run(main())


# --- contexts of their own ---

VARIABLES = [ContextVar(f"v{number}", default=-1) for number in range(2)]


@common
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9)), max_size=4), min_size=1, max_size=5),
    st.booleans(),
)
def test_nobody_sees_what_another_sets_side_by_side_or_one_after_the_other(
    programs: list[list[tuple[int, int]]], side_by_side: bool
) -> None:
    async def program(sets: list[tuple[int, int]]) -> list[int]:
        seen = [variable.get() for variable in VARIABLES]
        for which, value in sets:
            VARIABLES[which].set(value)
            seen[which] = value
            await asyncio.sleep(0)
            assert [variable.get() for variable in VARIABLES] == seen
        return seen

    async def isolated(sets: list[tuple[int, int]]) -> list[int]:
        return await in_context(program(sets), copy_context())

    async def main() -> None:
        if side_by_side:
            results = await asyncio.gather(*map(isolated, programs))
        else:
            results = [await isolated(sets) for sets in programs]
        for sets, result in zip(programs, results, strict=True):
            assert result == [dict(sets).get(which, -1) for which in range(2)]
        assert [variable.get() for variable in VARIABLES] == [-1, -1]

    asyncio.run(main())
