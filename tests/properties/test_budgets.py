"""Live budgets, in virtual time: random trees of work that runs side by side, fails, waits and is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from support.spending_plans import Group, runs
from support.spending_runs import SpendingRun
from support.virtual_time import VirtualTimeLoop


@pytest.fixture(autouse=True)
def no_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing here waits for a thread: where all tasks wait, they wait for ever."""
    monkeypatch.setattr("support.virtual_time.THREAD_PATIENCE", 0.0)
    yield


def assert_no_task_of_ours_is_left() -> None:
    """PydanticAI forgets tasks of its own where it is cancelled at certain moments; they have sent nothing."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    left = [task for task in tasks if "pydantic_ai" not in task.get_coro().cr_code.co_filename]
    assert not left, f"still running: {left}"


def carried_out(plan: Group) -> SpendingRun:
    """What became of a plan."""
    run = SpendingRun()

    async def main() -> None:
        await run.attempt(plan)
        assert_no_task_of_ours_is_left()

    with pytest.MonkeyPatch.context() as patch:
        run.watch(patch)
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            try:
                runner.run(main())
            except asyncio.CancelledError as error:
                raise AssertionError("nobody has cancelled the run") from error
    return run


@settings(deadline=None, max_examples=max(300, settings().max_examples))
@given(runs)
def test_budgets_hold_and_nobody_waits_for_ever(plan: Group) -> None:
    run = carried_out(plan)
    run.check_books()
