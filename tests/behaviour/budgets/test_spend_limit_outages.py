"""Stores of spend limits that cannot be reached: one call finds out, and all that wait are told."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pytest
import redis
from support.agents import paid_agent
from support.patience import PATIENCE
from support.servers import started_valkey

from fastroai import SpendLimit
from fastroai.errors import SpendStoreUnavailable, usage_of
from fastroai.runtime.budgets.spend_upkeep import SpendUpkeep
from fastroai.store import MemorySpendStore, RedisSpendStore, SQLiteSpendStore
from fastroai.usage import SpendClaim, SpendStore, SpendVerdict

CALLS = 12


class SlowStore(MemorySpendStore):
    """A store that lets the first that asks wait until it is told that it is down, or works."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.may_answer = asyncio.Event()
        self.down = True

    async def reserve(self, claim: SpendClaim) -> SpendVerdict:
        self.asked.append(claim.id)
        await self.may_answer.wait()
        if self.down:
            raise SpendStoreUnavailable("test", "it is down")
        return await super().reserve(claim)


@pytest.fixture
def store() -> SlowStore:
    return SlowStore()


async def in_line(limit: SpendLimit, count: int) -> None:
    """Wait until so many calls have come, of which all but the first wait for their turn."""
    account = limit.account_for(None)
    async with asyncio.timeout(PATIENCE):
        while SpendUpkeep.of(limit.store).counter(account).arrivals < count:
            await asyncio.sleep(0)
    for _ in range(10):  # those who have come go as far as they can
        await asyncio.sleep(0)


def start(limit: SpendLimit, count: int = CALLS) -> list[asyncio.Task[Any]]:
    agent = paid_agent(100)
    return [asyncio.create_task(agent.run("?", budget=limit)) for _ in range(count)]


def limited(store: SpendStore, on_unavailable: Literal["refuse", "allow"] = "refuse") -> SpendLimit:
    return SpendLimit(usd=1, window="total", store=store, on_unavailable=on_unavailable)


async def test_all_who_wait_are_refused_when_the_first_finds_the_store_down(store: SlowStore) -> None:
    limit = limited(store)
    calls = start(limit)
    await in_line(limit, CALLS)
    store.may_answer.set()
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(error) for error in errors} == {SpendStoreUnavailable}
    assert len(store.asked) == 1
    assert len({id(error) for error in errors}) == CALLS
    for error in errors:
        assert isinstance(error, SpendStoreUnavailable)
        assert (error.store, error.reason) == ("test", "it is down")
        spent = usage_of(error)
        assert spent is not None
        assert spent.request_count == 0


async def test_all_who_wait_are_let_through_where_that_is_allowed(store: SlowStore) -> None:
    limit = limited(store, "allow")
    calls = start(limit)
    await in_line(limit, CALLS)
    store.may_answer.set()
    answers = await asyncio.gather(*calls)
    assert [answer.output for answer in answers] == ["answer to ?"] * CALLS
    assert len(store.asked) == 1
    status = await limit.status()
    assert (status.spent_usd, status.reserved_usd) == (0, 0)


async def test_each_limit_decides_for_itself_what_becomes_of_its_calls(store: SlowStore) -> None:
    strict, lenient = limited(store), limited(store, "allow")
    first = start(strict, 1)
    await asyncio.sleep(0)
    others = [*start(lenient, 2), *start(strict, 2)]
    await in_line(strict, 5)
    store.may_answer.set()
    outcomes = await asyncio.gather(*first, *others, return_exceptions=True)
    assert [isinstance(each, SpendStoreUnavailable) for each in outcomes] == [True, False, False, True, True]
    assert len(store.asked) == 1


async def test_who_comes_after_an_outage_asks_anew(store: SlowStore) -> None:
    limit = limited(store)
    store.may_answer.set()
    for _ in range(2):
        with pytest.raises(SpendStoreUnavailable):
            await paid_agent(100).run("?", budget=limit)
    assert len(store.asked) == 2
    store.down = False
    answers = await asyncio.gather(*start(limit))
    assert len(answers) == CALLS
    assert (await limit.status()).spent_usd == Decimal("0.0001") * CALLS


async def test_a_claim_of_which_the_store_said_nothing_does_not_stand_in_line(store: SlowStore) -> None:
    """It was asked and did not answer, so that the claim may be there; nobody renews it."""

    async def take_and_fail(claim: SpendClaim) -> SpendVerdict:
        await MemorySpendStore.reserve(store, claim)
        raise SpendStoreUnavailable("test", "the answer was lost")

    for policy in ("refuse", "allow"):
        store.reserve = take_and_fail  # type: ignore[method-assign]
        limit = limited(store, policy)  # type: ignore[arg-type]
        await asyncio.gather(*start(limit, 1), return_exceptions=True)
        async with asyncio.timeout(PATIENCE):
            while (await limit.status()).reserved_usd:
                await asyncio.sleep(0)


async def told_after(limit: SpendLimit, calls: int = CALLS) -> list[float]:
    """After how many seconds each call learns that the store is unavailable."""
    begin = time.monotonic()
    agent = paid_agent(100)

    async def call() -> float:
        with pytest.raises(SpendStoreUnavailable):
            await agent.run("?", budget=limit)
        return time.monotonic() - begin

    return await asyncio.gather(*(call() for _ in range(calls)))


def assert_together(seconds: list[float], timeout: float) -> None:
    """One after the other, calls take all of their time limits; together less than half, on any machine."""
    assert max(seconds) < len(seconds) * timeout / 2, "one after the other"


async def test_a_locked_file_is_found_out_once(tmp_path: Path) -> None:
    timeout, path = 1.0, tmp_path / "spend.db"
    store = SQLiteSpendStore(path, timeout=timeout)
    limit = limited(store)
    await paid_agent(100).run("?", budget=limit)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert_together(await told_after(limit), timeout)
    assert (await paid_agent(100).run("?", budget=limit)).output == "answer to ?"
    assert (await limit.status()).spent_usd == Decimal("0.0002")
    await store.aclose()


class RedisServer:
    """A server of its own, which can be frozen."""

    def __init__(self, url: str) -> None:
        self.url = url
        with closing(redis.Redis.from_url(url, protocol=2)) as client:
            self._pid: int = client.info("server")["process_id"]

    def freeze(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._pid, signal.SIGCONT)


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    server = started_valkey()
    ours = RedisServer(server.connection_url)
    yield ours
    ours.thaw()
    server.stop()


async def test_a_frozen_server_is_found_out_once_and_a_new_call_finds_it_back(
    redis_server: RedisServer,
) -> None:
    timeout = 1.0
    store = RedisSpendStore(redis_server.url, timeout=timeout)
    limit = limited(store)
    await paid_agent(100).run("?", budget=limit)
    redis_server.freeze()
    for _ in range(2):
        assert_together(await told_after(limit), timeout)
    redis_server.thaw()
    assert (await paid_agent(100).run("?", budget=limit)).output == "answer to ?"
    await store.aclose()


async def test_answers_that_come_while_the_server_is_frozen_are_settled_when_it_is_back(
    redis_server: RedisServer,
) -> None:
    store = RedisSpendStore(redis_server.url, timeout=1.0)
    limit = limited(store)
    arrived, may_answer = asyncio.Semaphore(0), asyncio.Event()

    async def think(prompt: str) -> None:
        arrived.release()
        await may_answer.wait()

    agent = paid_agent(100, before=think)
    calls = [asyncio.create_task(agent.run("?", budget=limit)) for _ in range(CALLS)]
    for _ in calls:
        await asyncio.wait_for(arrived.acquire(), PATIENCE)
    redis_server.freeze()
    begin = time.monotonic()
    may_answer.set()
    await asyncio.gather(*calls)
    assert_together([time.monotonic() - begin] * CALLS, timeout=1.0)
    redis_server.thaw()
    async with asyncio.timeout(PATIENCE):
        while (await limit.status()).spent_usd != Decimal("0.0001") * CALLS:
            await asyncio.sleep(0.01)
    assert (await limit.status()).reserved_usd == 0
    await store.aclose()
