"""An effect is looked up on record, or done and put on record."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from support.leftovers import assert_no_task_is_left

from fastroai.runtime import Scope
from fastroai.runtime.facts import (
    Begins,
    Ends,
    Fact,
    OnceDone,
    OnceFailed,
    OnceStarted,
    Part,
    RunResumed,
    RunStarted,
)
from fastroai.store import MemoryRunStore
from fastroai.store.record.effect import effect, take
from fastroai.store.record.headers import read_header, read_log
from fastroai.store.record.log import Log
from fastroai.store.record.memo import Memo
from fastroai.store.record.runs import DurableRun

BEGINS = OnceStarted(place="a", name="pay")
KEY = BEGINS.about


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    yield
    assert_no_task_is_left()


async def begun(store: MemoryRunStore) -> Log:
    opened = RunStarted(part=Part("r", "p", ("p",)))
    run = await DurableRun.begin(store, [opened], durability="sync", codec=None)
    return Log(Scope("pipeline", "p", parent=None), run)


async def taken_up(store: MemoryRunStore, log: Log) -> Log:
    """The log in another process, after the first one has died."""
    assert log.run is not None
    await log.run.release()
    found = await read_header(store, "r")
    recorded = Memo("r", await read_log(store, found.header))
    run = await DurableRun.take_up(
        store,
        recorded,
        RunResumed(),
        position=len(recorded.entries),
        found=found,
        durability="sync",
        codec=None,
    )
    return Log(Scope("pipeline", "p", parent=None), run)


def given(known: Begins | Ends) -> tuple[Any] | None:
    return (known.result,) if isinstance(known, OnceDone) else None


async def do(log: Log, act: Callable[[], Awaitable[Any]]) -> Any:
    return await effect(
        log,
        KEY,
        act,
        begins=BEGINS,
        given=given,
        done=lambda result: OnceDone(place="a", name="pay", result=result),
        failed=lambda error: OnceFailed(place="a", name="pay") if isinstance(error, ValueError) else None,
    )


async def kinds(store: MemoryRunStore) -> Sequence[str]:
    entries = await read_log(store, (await read_header(store, "r")).header)
    return [entry.kind for entry in entries if isinstance(entry, Fact) and entry.kind.startswith("once")]


async def pay() -> str:
    return "paid"


async def never() -> str:
    raise AssertionError("it has happened")


async def test_an_effect_that_has_happened_does_not_happen_in_another_process() -> None:
    log = await begun(store := MemoryRunStore())
    assert await do(log, pay) == "paid"
    log = await taken_up(store, log)
    assert await do(log, never) == "paid"
    assert await kinds(store) == ["once_started", "once_done"]
    assert log.run is not None
    await log.run.release()


async def test_the_beginning_is_on_record_before_the_effect_happens() -> None:
    log, seen = await begun(store := MemoryRunStore()), list[str]()

    async def look() -> str:
        seen.extend(await kinds(store))
        return "paid"

    await do(log, look)
    assert seen == ["once_started"]
    assert log.run is not None
    await log.run.release()


@pytest.mark.parametrize(
    ("error", "left"),
    [(ValueError("no"), ["once_started", "once_failed"]), (KeyError("no"), ["once_started"])],
)
async def test_an_effect_that_failed_or_was_interrupted_is_done_again(
    error: Exception, left: list[str]
) -> None:
    log = await begun(store := MemoryRunStore())

    async def fail() -> str:
        raise error

    with pytest.raises(type(error)):
        await do(log, fail)
    log = await taken_up(store, log)
    assert await kinds(store) == left
    assert await do(log, pay) == "paid"
    log = await taken_up(store, log)
    assert await do(log, never) == "paid"
    assert log.run is not None
    await log.run.release()


async def test_without_a_store_nothing_is_known_and_the_facts_stay_in_memory() -> None:
    log = Log(Scope("pipeline", "p", parent=None))
    assert await take(log, KEY) is None
    assert await do(log, pay) == "paid"
    assert [type(fact) for fact in log.facts()] == [OnceStarted, OnceDone]


def memo(*entries: Fact) -> Memo:
    return Memo("r", [RunStarted(part=Part("r", "p", ("p",))), *entries])


def test_each_end_is_taken_once_and_only_those_since_the_last_beginning() -> None:
    first, second = (OnceDone(place="a", name="pay", result=number) for number in (1, 2))
    known = memo(first, second)
    assert [known.take(KEY) for _ in range(3)] == [first, second, None]
    failed = OnceFailed(place="a", name="pay")
    known = memo(BEGINS, failed, BEGINS, first)
    assert [known.take(KEY) for _ in range(2)] == [first, None]
    assert memo(BEGINS, failed).take(KEY) is failed


def test_a_beginning_without_an_end_was_interrupted() -> None:
    failed = OnceFailed(place="a", name="pay")
    assert memo(BEGINS, failed, BEGINS).take(KEY) is BEGINS
    assert memo(BEGINS).take(("once", "a", "other")) is None
