"""Stores that have lost a key, or hold a damaged one: the other runs go on, and what is damaged is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from support.run_stores import KINDS, run_stores

from fastroai import Inbox, Pipeline, StepContext, send_message, step
from fastroai.errors import RunCorrupt, RunNotFound, RunTakenOver
from fastroai.store import RunHistory, RunStore

COST = Decimal("0.5")
OTHERS = ["r2", "r0"]
"""Newest first."""


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with run_stores(request.param, request, tmp_path) as open_store:
        store = open_store()
        yield store
        asyncio.run(store.aclose())


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
    values = [change(value) for value in (await store.read(key)).values]
    await store.delete(key)
    await store.append(key, values, revision=0)


async def damage(store: Any, key: str) -> None:
    await rewrite(store, key, lambda value: value[:-3] + b"\xff#}")


async def empty(store: Any, key: str) -> None:
    await rewrite(store, key, lambda value: b"")


async def lose_half(store: Any, key: str) -> None:
    await rewrite(store, key, lambda value: value[: len(value) // 2])


@pytest.mark.slow
@pytest.mark.parametrize("harm", [lose, damage, empty, lose_half])
async def test_the_other_runs_go_on_whatever_key_of_a_run_is_lost_or_damaged(store: Any, harm: Any) -> None:
    number = 0
    while True:
        keys = await three_runs(store)
        if number == len(keys):
            break
        await harm(store, keys[number])
        try:
            await check_the_others(store)
        except BaseException as error:
            error.add_note(f"{harm.__name__}: {keys[number]}")
            raise
        number += 1
        for found in await store.list("", limit=1000):
            await store.delete(found.key)
    assert number >= 6, keys


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
    with pytest.raises(RunCorrupt, match="its log is gone from the store"):
        await RunHistory(store).spending()
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
    with pytest.raises(RunTakenOver, match="its store was emptied .* cannot be resumed") as info:
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
                    client.delete(*client.keys(f"{{{store._prefix}}}*"))
            else:
                dsn = request.getfixturevalue("postgres_dsn")
                with psycopg.connect(dsn, autocommit=True) as connection:
                    connection.execute(f"DROP SCHEMA {store._driver.schema} CASCADE".encode())
            return "x"

        pipeline = Pipeline("p", {"lose": lose_all})
        with pytest.raises(RunTakenOver, match="its store was emptied") as info:
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
