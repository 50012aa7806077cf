"""Stores that have lost a key, or hold a damaged one: the other runs go on, and what is damaged is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from support.faulty_store import gone
from support.run_stores import KINDS, lose_value, run_stores

from fastroai import Inbox, Pipeline, StepContext, send_message, step
from fastroai.errors import (
    RecordedError,
    RunCorrupt,
    RunNotFound,
    RunStoreUnavailable,
    RunTakenOver,
    StepExecutionError,
)
from fastroai.store import MemoryRunStore, RedisRunStore, RunHistory, RunStore

COST = Decimal("0.5")
OTHERS = ["r2", "r0"]
"""Newest first."""


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with run_stores(request.param, request, tmp_path) as open_store:
        store = open_store()
        yield store
        asyncio.run(store.aclose())


LoseOne = Callable[[str, int], Awaitable[None]]


@pytest.fixture
def lose_one(store: Any, request: pytest.FixtureRequest) -> LoseOne:
    """Remove one value of a key behind the store's back."""
    url = request.getfixturevalue("redis_url") if isinstance(store, RedisRunStore) else ""
    return lambda key, position: lose_value(store, key, position, url)


@pytest.fixture
def memory() -> MemoryRunStore:
    return MemoryRunStore()


@step
async def buy(ctx: StepContext) -> str:
    ctx.record_usage(model="a shop", cost_usd=COST)
    return "bought"


@step
async def ask(ctx: StepContext) -> str:
    return await ctx.ask("all right?", str)


PIPELINE = Pipeline("desk", {"buy": buy, "ask": ask}, {"ask": ["buy"]})


async def three_runs(store: Any) -> list[str]:
    """Begin them, and return the keys of the one in the middle."""
    for number in range(3):
        await PIPELINE.execute({}, run_id=f"r{number}", store=store)
    await send_message("r1", "note", "hello", store=store)
    return [found.key for found in await store.list("", limit=1000) if "r1" in found.key]


async def lose(store: Any, key: str) -> None:
    await store.delete(key)


async def rewrite(store: Any, key: str, change: Callable[[bytes], bytes]) -> None:
    found = await store.read(key)
    values = [change(value) for value in found.values]
    if key.startswith("run:"):
        return await store.compare_and_set(key, values[0], revision=found.revision)
    await store.delete(key)
    await store.append(key, values, revision=0)


async def damage(store: Any, key: str) -> None:
    await rewrite(store, key, lambda value: value[:-3] + b"\xff#}")


async def empty(store: Any, key: str) -> None:
    await rewrite(store, key, lambda value: b"")


async def lose_half(store: Any, key: str) -> None:
    await rewrite(store, key, lambda value: value[: len(value) // 2])


async def check_each(store: Any, harm: Callable[..., Awaitable[None]], *, is_value: bool, least: int) -> None:
    """Harm each key of a run, or each value in them, and check each time that the other runs go on."""
    number = 0
    while True:
        keys = await three_runs(store)
        places = [place for key in keys for place in (await places_of(store, key) if is_value else [(key,)])]
        if number == len(places):
            break
        await harm(*places[number])
        try:
            await check_the_others(store)
        except BaseException as error:
            error.add_note(f"{places[number]}")
            raise
        number += 1
        for found in await store.list("", limit=1000):
            await store.delete(found.key)
    assert number >= least, places


HARMS = (lose, damage, empty, lose_half)
CASES = [(kind, harm) for kind in KINDS for harm in (HARMS if kind == "memory" else (lose, empty))]
"""A store does not look into a value, except that it may take an empty one for none."""


@pytest.mark.slow
@pytest.mark.parametrize(("store", "harm"), CASES, indirect=["store"])
async def test_the_other_runs_go_on_whatever_key_of_a_run_is_lost_or_damaged(store: Any, harm: Any) -> None:
    await check_each(store, partial(harm, store), is_value=False, least=3)


@pytest.mark.slow
async def test_the_other_runs_go_on_whatever_single_value_of_a_run_is_lost(
    store: Any, lose_one: LoseOne
) -> None:
    await check_each(store, lose_one, is_value=True, least=10)


async def places_of(store: Any, key: str) -> list[tuple[str, int]]:
    found = await store.read(key)
    return [(key, found.revision - back) for back in reversed(range(len(found.values)))]


@pytest.mark.parametrize("which", ["first", "middle", "answer"])
async def test_a_run_that_lacks_an_entry_of_its_log_says_that_the_entry_is_gone(
    store: Any, lose_one: LoseOne, which: str
) -> None:
    keys = await three_runs(store)
    (question,) = await Inbox(store).list(run_id="r1")
    await Inbox(store).answer(question.id, "yes")
    (log,) = [key for key in keys if key.startswith("log:")]
    places = await places_of(store, log)
    await lose_one(*places[{"first": 0, "middle": 2, "answer": -1}[which]])
    gone = rf"run 'r1' cannot be read: the store has lost 1 of its {len(places)} log entries"
    history = RunHistory(store)
    for call in (
        lambda: PIPELINE.resume("r1", store=store),
        lambda: history.trace("r1"),
        lambda: history.state("r1"),
        lambda: anext(history.follow("r1")),
        lambda: PIPELINE.fork("r1", at="ask", store=store),
        lambda: PIPELINE.execute({}, run_id="r1", store=store, on_existing="resume"),
        lambda: Inbox(store).get(question.id),
        lambda: Inbox(store).answer(question.id, "no"),
    ):
        with pytest.raises(RunCorrupt, match=gone) as info:
            await call()
        assert info.value.run_id == "r1"
    woken = await PIPELINE.wake(store=store)
    assert [type(outcome) for outcome in woken.values()] == [RunCorrupt]
    await history.delete("r1")
    assert [run.run_id for run in await history.list()] == OTHERS


async def test_a_lost_entry_is_noticed_that_came_after_the_last_header(store: Any, lose_one: LoseOne) -> None:
    if isinstance(store, MemoryRunStore):
        pytest.skip("a dict has no index that would know the entry")
    await three_runs(store)
    (header,) = (await store.read("run:r1")).values
    await answer_all(store)
    await put_back(store, "run:r1", header)  # as if the process had died before it wrote the next header
    (log,) = [found.key for found in await store.list("log:r1:")]
    places = await places_of(store, log)
    await lose_one(*places[-1])
    gone = rf"run 'r1' cannot be read: the store has lost 1 of its {len(places)} log entries"
    for call in (lambda: PIPELINE.resume("r1", store=store), lambda: RunHistory(store).trace("r1")):
        with pytest.raises(RunCorrupt, match=gone):
            await call()
    woken = await PIPELINE.wake(store=store)
    assert [woken[run_id].output for run_id in OTHERS] == ["yes", "yes"]


async def put_back(store: Any, key: str, value: bytes) -> None:
    await store.compare_and_set(key, value, revision=(await store.read(key)).revision)


async def test_a_run_whose_header_lost_its_value_is_listed_and_can_be_deleted(
    store: Any, lose_one: LoseOne, request: pytest.FixtureRequest
) -> None:
    if isinstance(store, MemoryRunStore):
        pytest.skip("a dict has no index that would know the header")
    await three_runs(store)
    await lose_one(*(await places_of(store, "run:r1"))[0])
    history = RunHistory(store)
    for runs in (await history.list(), await history.list(limit=9), await history.list(status="unreadable")):
        (damaged,) = [run for run in runs if run.run_id == "r1"]
        assert damaged.status == "unreadable"
        assert "its header is gone from the store" in str(damaged.error)
    for call in (
        lambda: PIPELINE.resume("r1", store=store),
        lambda: PIPELINE.execute({}, run_id="r1", store=store),
        lambda: history.trace("r1"),
        lambda: history.delete("r1"),
        lambda: send_message("r1", "note", store=store),
    ):
        with pytest.raises(RunCorrupt, match="run 'r1' cannot be read: its header is gone from the store"):
            await call()
    await history.delete("r1", force=True)
    assert [found.key for found in await store.list("", limit=1000) if "r1" in found.key] == []
    assert (await PIPELINE.execute({}, run_id="r1", store=store)).status == "paused"


async def test_a_run_that_lacks_the_message_for_which_it_waits_says_so(store: Any, lose_one: LoseOne) -> None:
    @step
    async def receive(ctx: StepContext) -> str:
        return await ctx.receive("note", str)

    pipeline = Pipeline("p", {"receive": receive})
    await pipeline.execute({}, run_id="r", store=store)
    await send_message("r", "other", "before", store=store)
    await send_message("r", "note", "hello", store=store)
    (mail,) = [found.key for found in await store.list("mail:")]
    await lose_one(mail, 2)
    gone = (
        "step 'receive' failed: RunCorrupt: .* run 'r' cannot be read: the store has lost 1 of its 2 messages"
    )
    with pytest.raises(StepExecutionError, match=gone):
        await pipeline.resume("r", store=store)


async def check_the_others(store: Any) -> None:
    history, inbox = RunHistory(store), Inbox(store)
    every = {run.run_id: run.status for run in await history.list()}
    assert [run for run in every if run != "r1"] == OTHERS
    assert every.get("r1") in (None, "paused", "unreadable")
    for found in (await history.list(limit=9), await history.list(status="paused")):
        assert [run.run_id for run in found if run.run_id != "r1"] == OTHERS
    assert [one.run_id for one in await inbox.list() if one.run_id != "r1"] == OTHERS
    assert "r0" not in [run.run_id for run in await history.due("desk")]
    with names_the_run():
        (total,) = await history.spending(by=())
        there = [run.run_id for run in await history.list(limit=9)]
        assert total.usage.cost_usd == len(there) * COST
    await told_of_the_run(store)
    await history.rebuild_indexes()
    for run_id in OTHERS:
        (question,) = await inbox.list(run_id=run_id)
        await inbox.answer(question.id, f"yes, {run_id}")
    woken = await PIPELINE.wake(store=store)
    assert sorted(run_id for run_id in woken if run_id != "r1") == sorted(OTHERS)
    for run_id in OTHERS:
        assert (await PIPELINE.resume(run_id, store=store)).output == f"yes, {run_id}"
    purged = await history.purge(timedelta(0))
    assert [run_id for run_id in purged if run_id != "r1"] == OTHERS
    assert {run.run_id for run in await history.list()} <= {"r1"}
    with suppress(RunNotFound):
        await history.delete("r1", force=True)
    assert await history.list() == ()


async def told_of_the_run(store: Any) -> None:
    """What is done with the run itself works, or raises an error that names the run."""
    history = RunHistory(store)
    for call in (history.summary, history.trace, history.state):
        with names_the_run():
            await call("r1")
    with names_the_run():
        assert (await PIPELINE.resume("r1", store=store)).status == "paused"


@contextmanager
def names_the_run() -> Iterator[None]:
    """It works, or says which run cannot be read, or is not there."""
    errors: list[RunCorrupt | RunNotFound] = []
    try:
        yield
    except (RunCorrupt, RunNotFound) as error:
        errors.append(error)
    assert {error.run_id for error in errors} <= {"r1"}


async def test_a_run_that_cannot_be_read_is_left_out_of_the_inbox_and_named(
    store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    keys = await three_runs(store)
    (log,) = [key for key in keys if key.startswith("log:")]
    await store.delete(log)
    with caplog.at_level(logging.WARNING, "fastroai.store"):
        assert [one.run_id for one in await Inbox(store).list()] == OTHERS
    assert "run 'r1' may wait for answers and is left out: " in caplog.text
    with pytest.raises(RunCorrupt, match="its log is gone from the store"):
        await Inbox(store).list(run_id="r1")
    (total,) = await RunHistory(store).spending(by=())  # the header has what the run has spent
    assert total.usage.cost_usd == 3 * COST
    with pytest.raises(RunCorrupt, match="its log is gone from the store"):
        await PIPELINE.resume("r1", store=store)


async def forget_everything(store: RunStore) -> None:
    for found in await store.list("", limit=1000):
        await store.delete(found.key)


async def test_a_run_whose_store_is_emptied_says_that_nothing_of_it_is_left(store: Any) -> None:
    done: list[str] = []

    @step
    async def lose_all(ctx: StepContext) -> str:
        await forget_everything(store)
        return "x"

    @step
    async def never(ctx: StepContext) -> str:
        done.append("never")
        return "x"

    pipeline = Pipeline("p", {"lose": lose_all, "never": never}, {"never": ["lose"]})
    with pytest.raises(RunTakenOver, match="the store has lost it, .* cannot be resumed") as info:
        await pipeline.execute({}, run_id="r", store=store)
    assert info.value.is_gone
    assert not done
    with pytest.raises(RunNotFound):
        await pipeline.resume("r", store=store)
    assert (await PIPELINE.execute({}, run_id="r", store=store)).status == "paused"


@pytest.mark.parametrize("kind", ["redis", "postgres"])
async def test_a_run_whose_server_is_emptied_says_that_nothing_of_it_is_left(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with run_stores(kind, request, tmp_path) as open_store:
        store = open_store()

        @step
        async def lose_all(ctx: StepContext) -> str:
            if kind == "redis":
                with redis.Redis.from_url(request.getfixturevalue("redis_url")) as client:
                    client.delete(*client.keys(f"{{{store.prefix}}}*"))
            else:
                dsn = request.getfixturevalue("postgres_dsn")
                with psycopg.connect(dsn, autocommit=True) as connection:
                    connection.execute(f"DROP SCHEMA {store.schema} CASCADE".encode())
            return "x"

        pipeline = Pipeline("p", {"lose": lose_all})
        with pytest.raises(RunTakenOver, match="the store has lost it") as info:
            await pipeline.execute({}, run_id="r", store=store)
        assert info.value.is_gone
        assert await RunHistory(store).list() == ()
        await store.aclose()


async def test_a_run_whose_header_is_lost_ends_and_a_warning_says_so(
    store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    @step
    async def lose_header(ctx: StepContext) -> str:
        await store.delete("run:r")
        return "x"

    with caplog.at_level(logging.WARNING, "fastroai.store"):
        assert (await Pipeline("p", {"a": lose_header}).execute({}, run_id="r", store=store)).output == "x"
    assert "run 'r': its header is gone from the store" in caplog.text


async def answer_all(store: Any) -> None:
    for question in await Inbox(store).list():
        await Inbox(store).answer(question.id, "yes")


async def test_a_due_run_with_a_damaged_header_is_told_by_wake_and_the_others_go_on(store: Any) -> None:
    await three_runs(store)
    await answer_all(store)
    await damage(store, "run:r1")
    woken = await PIPELINE.wake(store=store)
    assert isinstance(woken["r1"], RunCorrupt)
    assert [woken[run_id].output for run_id in OTHERS] == ["yes", "yes"]


class Odd(BaseException):
    pass


@pytest.mark.parametrize("error", [SystemExit("bye"), Odd("odd")], ids=["exit", "odd"])
async def test_an_error_that_is_no_exception_ends_one_woken_run_and_not_the_others(
    memory: MemoryRunStore, error: BaseException
) -> None:
    @step
    async def stop(ctx: StepContext) -> str:
        answer = await ctx.ask("all right?", str)
        if ctx.run_id == "r1":
            raise error
        return answer

    pipeline = Pipeline("p", {"stop": stop})
    for run_id in ("r0", "r1", "r2"):
        await pipeline.execute({}, run_id=run_id, store=memory)
    await answer_all(memory)
    woken = await pipeline.wake(store=memory)
    told = woken["r1"]
    assert isinstance(told, RecordedError)
    assert told.__cause__ is error
    assert told.error_type == f"{type(error).__module__}.{type(error).__name__}"
    assert [woken[run_id].output for run_id in OTHERS] == ["yes", "yes"]
    recovered = await pipeline.recover(store=memory)
    assert [*recovered] == ["r1"]
    assert isinstance(recovered["r1"], RecordedError)


async def test_an_interrupted_run_with_a_damaged_header_is_told_by_recover_and_the_others_go_on(
    memory: MemoryRunStore,
) -> None:
    dies = True

    @step
    async def work(ctx: StepContext) -> str:
        if dies:
            raise SystemExit
        return "done"

    pipeline = Pipeline("p", {"work": work})
    for run_id in ("r0", "r1", "r2"):
        with pytest.raises(SystemExit):
            await pipeline.execute({}, run_id=run_id, store=memory)
    dies = False
    await damage(memory, "run:r1")
    recovered = await pipeline.recover(store=memory)
    assert isinstance(recovered["r1"], RunCorrupt)
    assert [recovered[run_id].output for run_id in OTHERS] == ["done", "done"]


async def test_wake_and_recover_raise_the_error_of_a_store_as_it_is() -> None:
    class Unlistable(MemoryRunStore):
        async def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Any:
            raise gone()

    for call in (PIPELINE.wake, PIPELINE.recover):
        with pytest.raises(RunStoreUnavailable, match="no connection"):
            await call(store=Unlistable())
