"""Live budgets: random trees of work that runs side by side, waits, fails, and is cancelled."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from contextvars import copy_context
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.examples import FUZZ, examples
from support.spending_plans import A_CALL, Call, Group, Limits, limits, quick_calls, runs, shared_limits
from support.spending_runs import SpendingRun
from support.virtual_time import VirtualTimeLoop

from fastroai import budget_scope
from fastroai.runtime.concurrency.sync import unfinished

LONGEST = 60.0
"""Seconds."""


@pytest.fixture(autouse=True)
def no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts at a request follow each other at once."""
    monkeypatch.setattr("fastroai.agent.requests.metering.REQUEST_RETRY_DELAY", 0.0)


def assert_no_task_of_ours_is_left() -> None:
    """Cancelled at certain moments, PydanticAI forgets tasks of its own; they have sent nothing."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    left = [task for task in tasks if "pydantic_ai" not in task.get_coro().cr_code.co_filename]
    assert not left, f"still running: {left}"


def carried_out(
    plan: Group, *, ceiling: int = 1_000_000, patience: float = 0.0, looks_on: bool = False
) -> SpendingRun:
    """What became of a plan, in virtual time: if everything waits, nothing will ever happen.

    With some patience, for threads that do something meanwhile.
    """
    run = SpendingRun(ceiling, looks_on)

    async def main() -> None:
        await run.attempt(plan)
        assert_no_task_of_ours_is_left()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("support.virtual_time.THREAD_PATIENCE", patience)
        run.watch(patch)
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            try:
                runner.run(main())
            except asyncio.CancelledError as error:
                raise AssertionError("nobody has cancelled the run") from error
    return run


TWO_SECONDS = Limits(microcents=60, ms=2_000)
SLOW_STREAM = replace(A_CALL, way="slow stream", budget=TWO_SECONDS)
TWICE_CANCELLED = Group("side by side", TWO_SECONDS, (Group("side by side", None, (SLOW_STREAM,)),))
"""The second time in the midst of what PydanticAI does when it is cancelled."""

HELD_UP_BY_ITS_HANDLER = Group(
    "one by one",
    Limits(microcents=50),
    (replace(A_CALL, way="handler", max_tokens=30, helped=True, inside=(replace(A_CALL, max_tokens=30),)),),
)
"""Which waits for a request that others make."""


# Hypothesis remembers what it has tried: a search is in parts, so that it remembers less at a time.
@pytest.mark.parametrize("part", range(4 if FUZZ else 1))
@settings(max_examples=examples(20))
@given(runs(limits()))
@example(TWICE_CANCELLED)
@example(HELD_UP_BY_ITS_HANDLER)
def test_budgets_hold_and_nobody_waits_for_ever(part: int, plan: Group) -> None:
    carried_out(plan).check_books()


@settings(max_examples=examples(20))
@given(runs(shared_limits), st.integers(5, 200))
def test_shared_ceilings_hold_too(plan: Group, ceiling: int) -> None:
    """The ends of requests reach the store from a thread, in real time, so timers may come before them."""
    run = carried_out(plan, ceiling=ceiling, patience=10.0)
    concurrent.futures.wait(list(unfinished), timeout=LONGEST)
    run.check_books()
    asyncio.run(run.check_ceiling())


@settings(max_examples=examples(20))
@given(runs(shared_limits, reserves=True), st.integers(20, 600))
def test_runs_that_reserve_their_quotes_are_paid_for_and_nobody_waits_for_ever(
    plan: Group, ceiling: int
) -> None:
    run = carried_out(plan, ceiling=ceiling, patience=10.0, looks_on=True)
    concurrent.futures.wait(list(unfinished), timeout=LONGEST)
    run.check_books()
    asyncio.run(run.check_ceiling())


@settings(max_examples=examples(20))
@given(limits(timed=False), st.lists(st.lists(quick_calls, min_size=1, max_size=3), min_size=2, max_size=4))
def test_budgets_hold_across_threads_each_with_a_loop_of_its_own(
    budget: Limits, threads: list[list[Call]]
) -> None:
    run = SpendingRun(looks_on=True)

    async def perform(calls: list[Call]) -> None:
        for call in calls:
            await run.attempt(call)

    with pytest.MonkeyPatch.context() as patch:
        run.watch(patch)
        with budget_scope(run.own_budget(budget)):
            started = [
                threading.Thread(target=copy_context().run, args=(asyncio.run, perform(calls)), daemon=True)
                for calls in threads
            ]
            for thread in started:
                thread.start()
            for thread in started:
                thread.join(LONGEST)
    assert not any(thread.is_alive() for thread in started), "somebody waits for ever"
    run.check_books()
