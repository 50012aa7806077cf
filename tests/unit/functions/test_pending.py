"""A call that was not awaited is not taken for its result."""

from __future__ import annotations

import asyncio
import gc
import inspect
import warnings
from collections.abc import Awaitable, Callable

import pytest

from fastroai.functions.pending import Pending


async def forty_two() -> int:
    await asyncio.sleep(0)
    return 42


def call() -> Pending[int]:
    return Pending("answer", forty_two)


async def started(pending: Awaitable[int]) -> int:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(pending)  # type: ignore[arg-type]
    return await task


async def waited_for(pending: Awaitable[int]) -> int:
    return await asyncio.wait_for(pending, 1)


async def gathered(pending: Awaitable[int]) -> int:
    [result] = await asyncio.gather(pending)
    return result


@pytest.mark.parametrize("get", [started, waited_for, gathered])
async def test_it_stands_wherever_a_coroutine_does(get: Callable[[Awaitable[int]], Awaitable[int]]) -> None:
    pending = call()
    assert inspect.isawaitable(pending)
    assert asyncio.iscoroutine(pending)
    assert await pending == 42
    assert await get(call()) == 42
    assert await call() == 42


def test_it_runs_as_a_program() -> None:
    assert asyncio.run(call()) == 42


async def test_a_task_of_it_can_be_shown() -> None:
    task = asyncio.create_task(call())
    assert "Task" in repr(task)
    assert await task == 42


async def test_it_is_awaited_once() -> None:
    pending = call()
    await pending

    with pytest.raises(RuntimeError, match="already awaited"):
        await pending


@pytest.mark.parametrize(
    ("use", "refusal"),
    [
        (bool, "has no truth value"),
        (lambda one: not one, "has no truth value"),
        (lambda one: one == 42, "cannot be compared"),
        (lambda one: one != 42, "cannot be compared"),
        (lambda one: one < 42, "cannot be compared"),
        (lambda one: one >= 42, "cannot be compared"),
        (list, "has no items"),
        (len, "has no items"),
        (lambda one: one[0], "has no items"),
        (lambda one: "label" in one, "has no items"),
    ],
)
def test_it_refuses_truth_comparison_and_items(use: Callable[[Pending[int]], object], refusal: str) -> None:
    with pytest.raises(TypeError, match=rf"'answer' was not awaited, so it {refusal}: write `await answer"):
        use(call())


def test_it_refuses_attributes() -> None:
    with pytest.raises(AttributeError, match=r"so it has no 'label': write `await answer\(\.\.\.\)`"):
        call().label  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(call(), "label")


def test_one_that_is_dropped_is_told_as_a_forgotten_coroutine_is() -> None:
    with pytest.warns(RuntimeWarning, match=r"the call of 'answer' was never awaited: write `await answer"):
        call()
        gc.collect()


def test_one_that_was_refused_is_told_once() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TypeError):
            bool(call())
        gc.collect()


async def test_it_can_be_ended_before_it_has_begun() -> None:
    pending = call()
    pending.close()

    with pytest.raises(RuntimeError, match="already awaited"):
        await pending


async def test_a_task_of_it_can_be_cancelled() -> None:
    never = asyncio.Event()

    async def wait() -> None:
        await never.wait()

    task = asyncio.create_task(Pending("wait", wait))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_it_says_what_it_is() -> None:
    pending = call()
    assert repr(pending) == "<call of 'answer', to be awaited>"
    pending.close()


def test_a_call_that_can_be_made_at_once_is_a_condition() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Pending("answer", forty_two, lambda: 42)
        assert not Pending("answer", forty_two, lambda: 0)
        gc.collect()
    with pytest.raises(TypeError, match="cannot be compared"):
        assert Pending("answer", forty_two, lambda: 42) == 42
