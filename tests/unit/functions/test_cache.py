"""Answers that are kept: asked for once, read anew each time, forgotten when they are too many or too old."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.faulty_store import FaultyStore, Write
from support.patience import PATIENCE
from support.run_stores import run_stores
from support.virtual_time import in_virtual_time, now

from fastroai.errors import ConfigurationError, RunStoreUnavailable
from fastroai.functions.cache import AnswerCache, Answers, key_of
from fastroai.runtime import Scope
from fastroai.store import MemoryRunStore


class Clock:
    """The clock of a store."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


class Model:
    """Answers after a second, and counts how often it was asked."""

    def __init__(self, answer: str = "answer") -> None:
        self.asked = 0
        self.answer = answer

    async def __call__(self) -> tuple[Answers, list[str]]:
        self.asked += 1
        await asyncio.sleep(1)
        return (self.answer,), [self.answer]


def read(answers: Answers) -> list[str] | None:
    return list(answers)


async def ask(
    cache: AnswerCache,
    model: Callable[[], Awaitable[tuple[Answers, list[str]]]],
    key: str = "0" * 64,
    read: Callable[[Answers], list[str] | None] = read,
    scope: Scope | None = None,
) -> tuple[list[str], bool]:
    scope = scope or Scope("step", "ask", parent=None)
    return await cache.answer(key, scope, read=read, ask=model)


def key(number: int) -> str:
    return f"{number:08x}{'0' * 56}"


@in_virtual_time
async def test_an_answer_is_asked_for_once_and_read_each_time() -> None:
    cache = AnswerCache(MemoryRunStore())
    model = Model()

    first, is_kept = await ask(cache, model)
    second, is_kept_then = await ask(cache, model)

    assert (first, is_kept, is_kept_then) == (["answer"], False, True)
    assert first == second
    assert first is not second
    assert model.asked == 1


@in_virtual_time
async def test_those_who_want_the_same_at_once_wait_for_one() -> None:
    cache = AnswerCache(MemoryRunStore())
    model, began = Model(), now()

    answers = await asyncio.gather(*(ask(cache, model) for _ in range(5)))

    assert [answer for answer, _ in answers] == [["answer"]] * 5
    assert sorted(is_kept for _, is_kept in answers) == [False, True, True, True, True]
    assert (model.asked, now() - began) == (1, 1)


@in_virtual_time
async def test_where_one_fails_another_asks() -> None:
    cache = AnswerCache(MemoryRunStore())
    model = Model()

    async def fails_first() -> tuple[Answers, list[str]]:
        answer = await model()
        if model.asked == 1:
            raise LookupError
        return answer

    results = await asyncio.gather(*(ask(cache, fails_first) for _ in range(3)), return_exceptions=True)

    assert [type(result) for result in results].count(LookupError) == 1
    assert model.asked == 2


@in_virtual_time
async def test_where_one_is_cancelled_another_asks() -> None:
    cache = AnswerCache(MemoryRunStore())
    model = Model()
    first, second = asyncio.create_task(ask(cache, model)), asyncio.create_task(ask(cache, model))
    await asyncio.sleep(0.5)

    first.cancel()

    assert await second == (["answer"], False)
    assert model.asked == 2


@in_virtual_time
async def test_an_answer_that_is_not_good_enough_is_dropped_and_asked_for_anew() -> None:
    cache = AnswerCache(MemoryRunStore())
    await ask(cache, Model("old"))

    def only_new(answers: Answers) -> list[str] | None:
        return None if answers == ("old",) else list(answers)

    assert await ask(cache, Model("new"), read=only_new) == (["new"], False)
    assert await ask(cache, Model("newer")) == (["new"], True)


@in_virtual_time
async def test_a_call_inside_of_the_one_that_asks_does_not_wait_for_it() -> None:
    cache = AnswerCache(MemoryRunStore())
    inner = Model("inner")

    async def outer() -> tuple[Answers, list[str]]:
        answer, _ = await ask(cache, inner, scope=Scope("step", "inner", parent=scope))
        return tuple(answer), answer

    async with Scope("step", "outer", parent=None) as scope:
        async with asyncio.timeout(PATIENCE):
            assert await ask(cache, outer, scope=scope) == (["inner"], False)
    assert inner.asked == 1


@in_virtual_time
async def test_two_calls_that_would_wait_for_each_other_both_ask() -> None:
    cache = AnswerCache(MemoryRunStore())

    def calling(other: str, scope: Scope) -> Callable[[], Awaitable[tuple[Answers, list[str]]]]:
        async def outer() -> tuple[Answers, list[str]]:
            await asyncio.sleep(1)
            answer, _ = await ask(cache, Model(), other, scope=Scope("step", "inner", parent=scope))
            return tuple(answer), answer

        return outer

    async with Scope("step", "a", parent=None) as a, Scope("step", "b", parent=None) as b:
        async with asyncio.timeout(PATIENCE):
            results = await asyncio.gather(
                ask(cache, calling(key(2), a), key(1), scope=a),
                ask(cache, calling(key(1), b), key(2), scope=b),
            )
    assert [answer for answer, _ in results] == [["answer"], ["answer"]]


@pytest.mark.slow
async def test_loops_of_other_threads_do_not_wait_for_each_other() -> None:
    cache = AnswerCache(MemoryRunStore())

    one, other = await asyncio.gather(
        *(asyncio.to_thread(lambda: asyncio.run(ask(cache, Model()))) for _ in range(2))
    )

    assert one[0] == other[0] == ["answer"]


async def test_a_store_forgets_the_oldest_answers_when_they_are_too_many() -> None:
    clock = Clock()
    cache = AnswerCache(MemoryRunStore(clock=clock), size=3)
    for number in range(5):
        clock.now += timedelta(seconds=1)
        await cache.put(key(9 - number), (str(number),))

    kept = [await cache.get(key(9 - number)) for number in range(5)]

    assert kept == [None, None, ("2",), ("3",), ("4",)]


async def test_a_store_has_a_tenth_too_many_answers_at_most_for_keys_that_come_evenly() -> None:
    clock = Clock()
    store = MemoryRunStore(clock=clock)
    cache = AnswerCache(store, size=100)
    most = 0
    for number in range(1_000):
        clock.now += timedelta(seconds=1)
        await cache.put(key(number), ("answer",))
        most = max(most, len(await store.list("answer:", limit=1_000)))

    assert most == 110 - 1


async def test_answers_older_than_the_age_are_asked_for_anew_and_forgotten() -> None:
    clock = Clock()
    store = MemoryRunStore(clock=clock)
    cache = AnswerCache(store, size=3, age=timedelta(hours=1))
    await cache.put(key(1), ("old",))

    clock.now += timedelta(hours=1)
    assert await cache.get(key(1)) == ("old",)
    clock.now += timedelta(seconds=1)
    assert await cache.get(key(1)) is None

    await cache.put(key(2), ("new",))
    assert [found.key for found in await store.list("answer:")] == [f"answer:{key(2)}"]


@pytest.mark.parametrize(("size", "age"), [(0, None), (True, None), (1, 0), (1, -1.0), (1, timedelta(0))])
def test_a_size_or_age_that_keeps_nothing_is_refused(size: int, age: float | timedelta | None) -> None:
    with pytest.raises(ConfigurationError, match="cache_"):
        AnswerCache(MemoryRunStore(), size=size, age=age)


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_other_clients_of_the_store_find_the_answers(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with run_stores(kind, request, tmp_path) as open_store:
        one, other = open_store(), open_store()
        await AnswerCache(one).put(key(1), ("answer", "other"))
        assert await AnswerCache(other).get(key(1)) == ("answer", "other")
        await AnswerCache(other).drop(key(1))
        assert await AnswerCache(one).get(key(1)) is None
        await one.aclose()
        await other.aclose()


async def test_an_entry_that_cannot_be_read_is_none() -> None:
    store = MemoryRunStore()
    await store.append(f"answer:{key(1)}", [b"{}"], revision=0)
    cache = AnswerCache(store, size=1)

    assert await cache.get(key(1)) is None
    await cache.put(key(2), ("answer",))
    assert [found.key for found in await store.list("answer:")] == [f"answer:{key(2)}"]


@in_virtual_time
async def test_a_store_that_fails_costs_no_call_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(what: object) -> None:
        raise RunStoreUnavailable("memory", "gone")

    cache, model = AnswerCache(FaultyStore(reading=fail, before=fail)), Model()

    with caplog.at_level(logging.WARNING, "fastroai.functions"):
        assert await ask(cache, model) == (["answer"], False)
        await cache.drop(key(1))

    assert [record.message.partition(";")[0] for record in caplog.records] == [
        "the cache cannot be read",
        "the cache cannot be written",
        "the cache cannot be written",
    ]


async def test_what_another_process_wrote_first_stays() -> None:
    store = MemoryRunStore()

    async def write_theirs(write: Write) -> None:
        await AnswerCache(store).put(key(1), ("theirs",))

    await AnswerCache(FaultyStore(store, before=write_theirs)).put(key(1), ("ours",))

    assert await AnswerCache(store).get(key(1)) == ("theirs",)


def test_a_key_is_of_everything_it_is_made_of() -> None:
    shape = ["prompt", {"temperature": 0.1}, None]

    assert key_of(*shape) == key_of("prompt", {"temperature": 0.1}, None)
    assert len({key_of(*shape), key_of("prompt"), key_of(["prompt", {"temperature": 0.1}, None])}) == 3
    assert key_of({1}) != key_of({2}), "what is no JSON counts by its text"
