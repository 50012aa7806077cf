"""`parallel` and `race`: random members, compared with what the specification says of them."""

from __future__ import annotations

import asyncio
import gc
import warnings
from dataclasses import dataclass, field
from typing import Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st
from support.leftovers import assert_no_task_is_left
from support.virtual_time import VirtualTimeLoop, now

from fastroai.errors import ScopeClosedError
from fastroai.functions.errors import ParallelFailed
from fastroai.functions.several.outcomes import Failure, Success
from fastroai.functions.several.side_by_side import parallel, race
from fastroai.human.halting import Halted

common = settings(deadline=None)

Fate = Literal["returns", "fails", "halts", "stops", "is cancelled"]


@dataclass(frozen=True)
class Member:
    """A coroutine. Those that end later than at once all end at different times."""

    seconds: int
    fate: Fate
    cleanup: int
    """Seconds that it takes to end when it is cancelled."""


@dataclass(frozen=True)
class Scenario:
    members: tuple[Member, ...]
    require: Any
    cancelled_at: float | None
    """When the whole is cancelled from outside; never at a whole second."""


@dataclass
class Ended:
    """How the whole ended, when, and what became of each member."""

    how: tuple[Any, ...] = ()
    at: float = 0
    members: dict[int, str] = field(default_factory=dict)
    """Those that began: how they ended."""


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    count = draw(st.integers(0, 6))
    times = iter(draw(st.permutations(range(1, count + 1))))
    fates = st.sampled_from(
        ["returns", "returns", "returns", "fails", "fails", "halts", "stops", "is cancelled"]
    )
    members = tuple(
        Member(draw(st.sampled_from([0, 1, 1, 1])) * next(times), draw(fates), draw(st.integers(0, 3)))
        for _ in range(count)
    )
    require = draw(st.sampled_from(["all", *(["any"] if count else []), *range(count + 1)]))
    return Scenario(members, require, draw(st.none() | st.integers(0, count + 4).map(lambda n: n + 0.5)))


def specified(scenario: Scenario) -> Ended:
    """What the specification says, member by member in the order in which they end."""
    members, require = scenario.members, scenario.require
    required = {"all": len(members), "any": 1}.get(require, require)
    outside = float("inf") if scenario.cancelled_at is None else scenario.cancelled_at
    came: list[int] = []
    failed: list[int] = []
    halted: list[int] = []
    ended = Ended()
    over: tuple[Any, ...] = ()
    order = sorted(range(len(members)), key=lambda number: (members[number].seconds, number))
    for number in order:
        member = members[number]
        if member.seconds > outside:
            over, ended.at = ("cancelled",), outside
            break
        ended.at, ended.members[number] = member.seconds, member.fate
        match member.fate:
            case "returns":
                came.append(number)
            case "fails":
                failed.append(number)
            case "halts":
                halted.append(number)
            case "stops":
                over = ("stopped", number)
            case "is cancelled":
                over = ("cancelled",)
        if required and len(came) == required:
            over = ("returned", came)
        elif required and len(failed) > len(members) - required:
            over = ("raised", number) if require == "all" else ("failed", failed)
        if over:
            break
    if over:
        # Members begin one after the other: a decision at time 0 comes before those after it have begun.
        last = order[len(ended.members) - 1] if ended.members and ended.at == 0 else len(members)
        left = [number for number in order if number not in ended.members and number < last]
        ended.members |= dict.fromkeys(left, "was cancelled")
        done = max((ended.at + members[number].cleanup for number in left), default=ended.at)
        if ended.at < outside < done:  # a second cancellation, while they clean up
            over, done = ("cancelled",), outside
        ended.at = done
    elif halted:
        over = ("halted",)
    elif required:
        over = ("returned", came)
    else:
        over = ("outcomes",)
    if over[0] == "returned" and require == "all":
        over = ("returned", sorted(came))
    ended.how = over
    return ended


def performed(scenario: Scenario, *, as_race: bool) -> Ended:
    """What really happens."""
    ended = Ended()
    errors = [ValueError(number) for number in range(len(scenario.members))]
    stops = [ScopeClosedError(str(number)) for number in range(len(scenario.members))]

    async def run(number: int, member: Member) -> int:
        ended.members[number] = "never ended"
        try:
            if member.seconds:
                await asyncio.sleep(member.seconds)
        except asyncio.CancelledError:
            ended.members[number] = "was cancelled"
            await asyncio.sleep(member.cleanup)
            raise
        ended.members[number] = member.fate
        match member.fate:
            case "returns":
                return number
            case "fails":
                raise errors[number]
            case "halts":
                raise Halted
            case "stops":
                raise stops[number]
            case "is cancelled":
                raise asyncio.CancelledError

    async def whole() -> tuple[Any, ...]:
        members = [run(number, member) for number, member in enumerate(scenario.members)]
        try:
            if as_race:
                return "returned", [await race(*members)]
            results = await parallel(*members, require=scenario.require)
        except ParallelFailed as error:
            return "failed", [errors.index(one) for one in error.errors]  # type: ignore[arg-type]
        except ValueError as error:
            return "raised", errors.index(error)
        except ScopeClosedError as error:
            return "stopped", stops.index(error)
        except Halted:
            return ("halted",)
        if scenario.require != 0 and (scenario.require != "all" or results):
            return "returned", [*results]
        fates = [member.fate for member in scenario.members]
        assert results == tuple(
            Success(number) if fate == "returns" else Failure(errors[number])
            for number, fate in enumerate(fates)
        )
        return ("outcomes",)

    async def outside() -> None:
        task = asyncio.create_task(whole())
        if scenario.cancelled_at is not None:
            asyncio.get_running_loop().call_later(scenario.cancelled_at, task.cancel)
        try:
            ended.how = await task
        except asyncio.CancelledError:
            ended.how = ("cancelled",)
        ended.at = now()
        assert_no_task_is_left()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner, warnings.catch_warnings():
        warnings.simplefilter("error")
        runner.run(outside())
    return ended


@common
@given(scenarios())
def test_results_times_and_cancellations_are_as_specified(scenario: Scenario) -> None:
    assert performed(scenario, as_race=False) == specified(scenario)


@common
@given(scenarios().filter(lambda scenario: bool(scenario.members)))
def test_a_race_is_parallel_that_requires_one(scenario: Scenario) -> None:
    first = Scenario(scenario.members, 1, scenario.cancelled_at)
    assert performed(first, as_race=True) == specified(first)


@common
@given(scenarios())
def test_members_that_never_begin_are_closed(scenario: Scenario) -> None:
    async def member() -> None: ...

    async def cancelled() -> None:
        inner = [parallel(member(), member(), require=0) for _ in scenario.members]
        task = asyncio.create_task(parallel(*inner, require=scenario.require))
        task.cancel()
        await asyncio.wait([task])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(cancelled())
        gc.collect(0)
