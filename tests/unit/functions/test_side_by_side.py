"""Calls side by side: what comes of them, in which order, and what is cancelled."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest
from support.virtual_time import in_virtual_time, now

from fastroai.errors import ConfigurationError, NoRunningLoopError, TokenBudgetExceeded
from fastroai.functions.errors import ParallelFailed, ParallelValidationFailed
from fastroai.functions.several.outcomes import Failure, Success
from fastroai.functions.several.side_by_side import parallel, race
from fastroai.human.halting import Halted
from fastroai.runtime import Scope

SEEN: ContextVar[str] = ContextVar("seen", default="outside")


@pytest.fixture(autouse=True)
def no_coroutine_is_left_behind() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
        gc.collect()  # where Python warns of coroutines that were never awaited


class Members:
    """Coroutines that take virtual time, and what became of them."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def __call__(
        self, name: str, seconds: float, error: BaseException | None = None, cleanup: float = 0
    ) -> str:
        self.told.append(f"{name} begins")
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.told.append(f"{name} is cancelled")
            await asyncio.sleep(cleanup)
            raise
        if error is not None:
            raise error
        return name


@in_virtual_time
async def test_failures_while_the_others_are_cancelled_are_notes_of_the_first() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(5)
        finally:
            raise ValueError("cannot\nclean up")

    with pytest.raises(RuntimeError) as caught:
        await parallel(stubborn(), Members()("b", 1, RuntimeError("first")))
    assert caught.value.__notes__ == ["Another coroutine failed: ValueError: cannot clean up"]


@in_virtual_time
async def test_a_number_that_can_no_longer_be_met_fails_at_once() -> None:
    one = Members()
    errors = [ValueError("first"), RuntimeError("second")]
    members = [one("a", 9), one("b", 2, errors[1]), one("c", 1, errors[0]), one("d", 9)]
    with pytest.raises(ParallelFailed) as caught:
        await parallel(*members, require=3)
    assert now() == 2
    assert caught.value.errors == (errors[0], errors[1])
    assert (caught.value.required, caught.value.started) == (3, 4)
    assert caught.value.__cause__ is errors[0]
    assert one.told[4:] == ["a is cancelled", "d is cancelled"]


@pytest.mark.parametrize("require", ["all", 0, 1, "any"])
def test_each_member_has_a_copy_of_the_context(require: Any) -> None:
    async def member(name: str) -> str:
        before = SEEN.get()
        SEEN.set(name)
        await asyncio.sleep(0)
        return f"{before}, {SEEN.get()}"

    async def run() -> list[Any]:
        SEEN.set("inside")
        results = await parallel(member("a"), member("b"), require=require)
        assert SEEN.get() == "inside"
        return [*results]

    results = asyncio.run(run())
    assert [getattr(one, "value", one) for one in results][0] == "inside, a"


@in_virtual_time
async def test_validate_takes_the_tuple_of_results() -> None:
    one = Members()
    assert await parallel(one("a", 1), validate=lambda found: found == ("a",)) == ("a",)
    with pytest.raises(ParallelValidationFailed) as caught:
        await parallel(one("a", 1), one("b", 1), validate=lambda found: len(found) > 2)
    assert caught.value.violations == ("validate: len(results) > 2 (results = ('a', 'b'))",)
    assert caught.value.outputs == ("a", "b")

    def are_different(found: tuple[str, ...]) -> None:
        """They differ."""
        if len({*found}) < len(found):
            raise ValueError("twice the same")

    with pytest.raises(ParallelValidationFailed, match="twice the same"):
        await parallel(one("a", 1), one("a", 1), validate=are_different)
    with pytest.raises(ParallelValidationFailed):
        await parallel(one("a", 1, ValueError()), require=0, validate=lambda found: all(o.ok for o in found))


async def is_async(found: tuple[str, ...]) -> bool:
    return True


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"require": 3}, "require=3: expected at most 2, the number of coroutines"),
        ({"require": -1}, "require=-1: expected 'all', 'any', 0 or a number of coroutines"),
        ({"require": True}, "require=True: expected 'all', 'any', 0 or a number of coroutines"),
        ({"require": "some"}, "require='some': expected 'all', 'any', 0 or a number of coroutines"),
        ({"validate": is_async}, "is async, and a condition must not be"),
        ({"validate": lambda: True}, "must take one argument"),
    ],
)
def test_mistakes_are_told_before_anything_runs(arguments: dict[str, Any], said: str) -> None:
    one = Members()
    with pytest.raises(ValueError, match=".") as caught:
        parallel(one("a", 1), one("b", 1), **arguments)
    assert said in str(caught.value)
    assert isinstance(caught.value, ConfigurationError)
    assert one.told == []


def test_what_is_no_coroutine_is_refused() -> None:
    one = Members()
    not_called: Any = one
    with pytest.raises(ConfigurationError, match="a coroutine, such as"):
        parallel(one("a", 1), not_called)
    in_a_list: Any = [one("a", 1)]
    with pytest.raises(ConfigurationError, match=r"those of a list are parallel\(\*calls\)"):
        parallel(in_a_list)
    in_a_list[0].close()
    with pytest.raises(ConfigurationError, match=r"coroutines=\(\): expected at least one"):
        race()
    twice = one("a", 1)
    with pytest.raises(ConfigurationError, match="each coroutine once"):
        parallel(twice, twice)


@in_virtual_time
async def test_a_member_that_waits_for_a_person_lets_the_others_end() -> None:
    one, halt = Members(), Halted()
    for require in ("all", 0, 2):
        with pytest.raises(Halted):
            await parallel(one("a", 1, halt), one("b", 3), require=require)
    assert now() == 9
    assert not [text for text in one.told if "cancelled" in text]
    assert await race(one("a", 1, halt), one("b", 3)) == "b"
    with pytest.raises(Halted):
        await race(one("a", 3, halt), one("b", 1, ValueError()))
    with pytest.raises(ValueError, match="b is wrong"):
        await parallel(one("a", 1, halt), one("b", 2, ValueError("b is wrong")), one("c", 9))


@in_virtual_time
async def test_a_stop_of_a_budget_around_ends_all_and_that_of_a_member_is_its_failure() -> None:
    one = Members()

    async with Scope("step", "flow", parent=None) as scope:
        stopped = TokenBudgetExceeded(10, 10, scope_path=scope.path)
        with pytest.raises(TokenBudgetExceeded):
            await parallel(one("a", 1, stopped), one("b", 3), require=1)
        assert one.told[2:] == ["b is cancelled"]
        # If no success is required, those before the budget was used up are kept.
        assert await parallel(one("a", 1, stopped), one("b", 3), require=0) == (
            Failure(stopped),
            Success("b"),
        )
        own = TokenBudgetExceeded(10, 10, scope_path=(*scope.path, "classify"))
        assert await parallel(one("a", 1, own), one("b", 3), require=0) == (Failure(own), Success("b"))


def test_an_interrupt_of_a_member_passes() -> None:
    one = Members()
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(_interrupted(one))
    assert "b is cancelled" in one.told


async def _interrupted(one: Members) -> None:
    await parallel(one("a", 0.01, KeyboardInterrupt()), one("b", 3))


@pytest.mark.parametrize("eager", [True, False])
def test_tasks_that_begin_eagerly_decide_as_well(eager: bool) -> None:
    one = Members()

    async def at_once() -> str:
        return "now"

    async def run() -> str:
        if eager and hasattr(asyncio, "eager_task_factory"):
            asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        return await race(at_once(), one("b", 5))

    assert asyncio.run(run()) == "now"


def test_without_asyncio_nothing_begins_and_the_error_says_so() -> None:
    one = Members()
    with pytest.raises(NoRunningLoopError):
        parallel(one("a", 1), one("b", 1)).send(None)
    assert one.told == []
