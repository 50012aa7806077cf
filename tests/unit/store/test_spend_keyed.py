"""How accounts in a store of runs are changed: in groups, by compare-and-set, and never from zero again."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from pathlib import Path

import pytest
from support.faulty_store import FaultyStore, Write, gone
from support.patience import PATIENCE
from support.run_stores import AsyncStore, PlainStore
from support.spend_stores import account, claim

from fastroai.errors import ConfigurationError, RevisionConflict, SpendStoreUnavailable
from fastroai.runtime.concurrency import sync
from fastroai.store import (
    FilePayloadStore,
    MemoryRunStore,
    OffloadingRunStore,
    SQLiteRunStore,
    SQLiteSpendStore,
    StoredValues,
    open_spend_store,
    shared_values,
)
from fastroai.store.backends import groups
from fastroai.store.record.checksums import with_checksum, without_checksum
from fastroai.store.run_store import deletes_at_revision
from fastroai.store.shared_spending.spend_keyed import KeyedSpendStore
from fastroai.usage import SpendClaim, SpendStore, SpendVerdict

KEY = "spend:total:acme"


class Slow(MemoryRunStore):
    """Lets each write wait until it may go, and knows how many there were."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.may_go = threading.Semaphore(0), threading.Semaphore(0)
        self.writes = 0

    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        self.began.release()
        await asyncio.to_thread(self.may_go.acquire)
        await super().compare_and_set(key, value, revision=revision)
        self.writes += 1

    async def has_begun(self) -> None:
        assert await asyncio.to_thread(self.began.acquire, timeout=PATIENCE)


@pytest.fixture
async def slow() -> AsyncIterator[Slow]:
    store = Slow()
    yield store
    store.may_go.release(100)


def start(store: SpendStore, *names: str) -> list[asyncio.Task[SpendVerdict]]:
    return [asyncio.create_task(store.reserve(claim(name))) for name in names]


async def turns() -> None:
    """Let tasks that were started ask."""
    for _ in range(5):
        await asyncio.sleep(0)


# --- groups ---


async def test_what_comes_during_a_write_is_decided_together_in_the_next(slow: Slow) -> None:
    store = KeyedSpendStore(slow)
    first = start(store, "first")
    await slow.has_begun()
    others = start(store, *(str(number) for number in range(12)))
    await turns()
    slow.may_go.release(2)
    verdicts = await asyncio.gather(*first, *others)
    assert [verdict.granted for verdict in verdicts] == [True] * 10 + [False] * 3, "in order"
    assert slow.writes == 2


async def test_other_keys_do_not_wait(slow: Slow) -> None:
    store = KeyedSpendStore(slow)
    first = start(store, "first")
    await slow.has_begun()
    other = asyncio.create_task(store.reserve(claim("a", of=account(key="other"))))
    await slow.has_begun()
    slow.may_go.release(2)
    await asyncio.gather(*first, other)


async def test_one_that_fails_fails_alone_and_leaves_no_trace(slow: Slow) -> None:
    store = KeyedSpendStore(slow)
    first = start(store, "first")
    await slow.has_begun()
    calls = [
        asyncio.create_task(store.reserve(claim("a"))),
        asyncio.create_task(store.reserve(claim("b", -1))),
        asyncio.create_task(store.settle(claim("first", limit="NaN"), Decimal(1))),
        asyncio.create_task(store.reserve(claim("c"))),
    ]
    await turns()
    slow.may_go.release(2)
    await asyncio.gather(*first)
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [
        SpendVerdict,
        ConfigurationError,
        ConfigurationError,
        SpendVerdict,
    ]
    slow.may_go.release()
    assert (await store.balance(account())).reserved_usd == 3


async def test_who_is_cancelled_in_a_group_takes_nothing_from_the_others(slow: Slow) -> None:
    store = KeyedSpendStore(slow)
    begun = start(store, "begun", "with it")
    await slow.has_begun()
    waiting = start(store, "waits", "behind")
    await turns()
    begun[0].cancel()
    waiting[0].cancel()
    await turns()
    slow.may_go.release(100)
    outcomes = await asyncio.gather(*begun, *waiting, return_exceptions=True)
    granted = [isinstance(outcome, SpendVerdict) and outcome.granted for outcome in outcomes]
    assert granted == [False, True, False, True]
    assert (await store.balance(account())).reserved_usd == 3, "one had begun, and one had not"
    await store.settle(claim("begun"), Decimal(0))
    assert (await store.balance(account())).reserved_usd == 2


async def test_the_loop_of_one_who_asks_may_be_blocked_or_closed(slow: Slow) -> None:
    store = KeyedSpendStore(slow)
    blocked, free = threading.Event(), threading.Event()

    async def ask_and_block() -> None:
        task = asyncio.create_task(store.reserve(claim("of a blocked loop")))
        await slow.has_begun()
        blocked.set()
        free.wait(PATIENCE)
        task.cancel()  # as `asyncio.run` does at its end

    thread = threading.Thread(target=lambda: asyncio.run(ask_and_block()))
    thread.start()
    assert await asyncio.to_thread(blocked.wait, PATIENCE)
    mine = start(store, "mine")
    slow.may_go.release(2)
    assert (await asyncio.wait_for(mine[0], PATIENCE)).balance.reserved_usd == 2
    free.set()
    await asyncio.to_thread(thread.join)


async def test_all_who_wait_are_told_when_the_store_is_gone_each_with_an_error_of_its_own() -> None:
    began, may_fail = threading.Event(), threading.Event()

    async def fail(write: Write) -> None:
        began.set()
        await asyncio.to_thread(may_fail.wait, PATIENCE)
        raise gone()

    faulty = FaultyStore(before=fail)
    store = KeyedSpendStore(faulty)
    calls = start(store, "first")
    assert await asyncio.to_thread(began.wait, PATIENCE)
    calls += start(store, "a", "b")
    await turns()
    may_fail.set()
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(error) for error in errors} == {SpendStoreUnavailable}
    assert len({id(error) for error in errors}) == 3
    assert len(faulty.writes) == 1
    faulty.before = None
    assert (await store.reserve(claim("later"))).balance.reserved_usd == 1


async def test_what_a_store_of_a_user_raises_is_raised_where_it_was_asked() -> None:
    class Odd(AsyncStore):
        async def read(self, key: str, *, after: int = 0) -> StoredValues:
            raise LookupError("odd")

    store = open_spend_store(Odd({}))
    for _ in range(2):
        with pytest.raises(LookupError, match="odd"):
            await store.balance(account())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
async def test_who_asks_while_no_thread_can_start_is_told_and_the_next_one_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_thread() -> asyncio.AbstractEventLoop:
        raise RuntimeError("can't start new thread")

    store = open_spend_store(MemoryRunStore())
    with monkeypatch.context() as patch:
        patch.setattr(groups, "background_loop", no_thread)
        patch.setattr(sync, "background_loop", no_thread)
        with pytest.raises(RuntimeError, match="thread"):
            await store.reserve(claim("a"))
    assert (await asyncio.wait_for(store.reserve(claim("a")), PATIENCE)).granted


async def test_a_forked_process_does_not_wait_for_groups_of_its_parent(tmp_path: Path) -> None:
    store = SQLiteSpendStore(tmp_path / "spend.db")
    await store.reserve(claim("parent"))
    calls = start(store, "a", "b", "c")  # a group is at work, or about to be
    reader, writer = os.pipe()
    if not (child := os.fork()):
        status = 1
        try:
            found = asyncio.run(asyncio.wait_for(store.reserve(claim("child")), PATIENCE))
            os.write(writer, b"granted" if found.granted else b"refused")
            status = 0
        finally:
            os._exit(status)
    assert await asyncio.to_thread(os.waitpid, child, 0) == (child, 0)
    assert os.read(reader, 10) == b"granted"
    await asyncio.gather(*calls)
    assert (await store.balance(account())).reserved_usd == 5
    await store.aclose()
    os.close(reader)
    os.close(writer)


# --- compare and set ---


async def test_a_write_whose_answer_was_lost_has_its_effect_once() -> None:
    class Repeating(MemoryRunStore):
        async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
            await super().compare_and_set(key, value, revision=revision)
            if (revision % 2) == 0:  # as a client repeats it that has got no answer
                await super().compare_and_set(key, value, revision=revision)

    store = KeyedSpendStore(Repeating())
    for name in "abcd":
        wanted = claim(name, 2, warn_at=(0.4,))
        assert (await store.reserve(wanted)).granted
        assert await store.mark_sent(wanted)
        told = (await store.settle(wanted, Decimal(2))).reached
        assert told == ((0.4,) if name == "b" else ())
    balance = await store.balance(account())
    assert (balance.spent_usd, balance.reserved_usd) == (8, 0)


async def test_who_is_overtaken_decides_anew() -> None:
    runs = MemoryRunStore()
    other = KeyedSpendStore(runs)

    class Overtaken(FaultyStore):
        async def read(self, key: str, *, after: int = 0) -> StoredValues:
            found = await super().read(key, after=after)
            if not (await runs.read(key)).revision:
                await other.reserve(claim("faster", 10))
            return found

    verdict = await KeyedSpendStore(Overtaken(runs)).reserve(claim("slower", 1))
    assert (verdict.granted, verdict.balance.reserved_usd) == (False, 10)


async def test_who_is_always_overtaken_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Overtaken(MemoryRunStore):
        async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
            raise RevisionConflict(key, revision, revision + 1)

    monkeypatch.setattr(shared_values, "_PATIENCE", 0.05)
    with pytest.raises(SpendStoreUnavailable, match="at every attempt"):
        await KeyedSpendStore(Overtaken()).reserve(claim("a"))


async def test_a_process_that_was_stopped_reads_again_before_it_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs, times = Slow(), iter([0.0, 1_000.0, 1_000.0, 1_001.0])
    runs.may_go.release()
    reads: list[str] = []
    faulty = FaultyStore(runs, reading=reads.append)
    monkeypatch.setattr(shared_values, "steady_seconds", lambda: next(times))
    assert (await KeyedSpendStore(faulty).reserve(claim("a"))).granted
    assert (reads, runs.writes) == ([KEY, KEY], 1)


# --- values ---


async def test_a_store_that_has_lost_an_account_is_unavailable_and_starts_no_limit_from_zero() -> None:
    class Lossy(MemoryRunStore):
        lost = False

        async def read(self, key: str, *, after: int = 0) -> StoredValues:
            found = await super().read(key, after=after)
            return StoredValues(values=(), revision=found.revision, now=found.now) if self.lost else found

    runs = Lossy()
    store = KeyedSpendStore(runs)
    await store.reserve(claim("a"))
    runs.lost = True
    with pytest.raises(SpendStoreUnavailable, match=r"'acme' \(total\) cannot be read: its value is gone"):
        await store.reserve(claim("b"))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda value: value[:-1] + b"?", "its checksum does not match"),
        (lambda value: value[:40], "its checksum does not match"),
        (lambda value: with_checksum(without_checksum(value).replace(b"[2,", b"[3,")), "reads format 2"),
        (lambda _: with_checksum(b'{"format":1,"steady":0}'), "reads format 2"),
    ],
)
async def test_a_damaged_account_or_one_of_a_later_version_is_unavailable_and_stays_as_it_is(
    damage: Callable[[bytes], bytes], reason: str
) -> None:
    runs = MemoryRunStore()
    store = KeyedSpendStore(runs)
    await store.reserve(claim("a"))
    found = await runs.read(KEY)
    await runs.compare_and_set(KEY, damage(found.values[-1]), revision=found.revision)
    before = await runs.read(KEY)
    for operation in (store.reserve(claim("b")), store.windows(account()), store.balance(account())):
        with pytest.raises(SpendStoreUnavailable, match=reason):
            await operation
    assert (await runs.read(KEY)).values == before.values
    assert (await store.accounts()).accounts == (account(),)


async def test_an_account_with_a_thousand_claims_in_flight_is_small() -> None:
    runs = MemoryRunStore()
    store = KeyedSpendStore(runs)
    holders = [
        f"host-{number} pid 1{number} (3a1b2c3d-0000-1111:4026531836 99{number})" for number in range(4)
    ]

    def of(number: int) -> SpendClaim:
        amount = f"{number}.{number:03}0123456789"
        return claim(os.urandom(16).hex(), amount, limit=10**8, holder=holders[number % 4], lease=30 + number)

    claims = list(map(of, range(1_000)))
    await asyncio.gather(*map(store.reserve, claims))
    await asyncio.gather(*map(store.mark_sent, claims))
    (stored,) = (await runs.read(KEY)).values
    assert len(stored) < 50_000
    balance = await store.balance(account())
    assert balance.reserved_usd == sum(each.amount_usd for each in claims)
    await asyncio.gather(*(store.settle(each, each.amount_usd) for each in claims))
    balance = await store.balance(account())
    assert (balance.spent_usd, balance.reserved_usd) == (sum(each.amount_usd for each in claims), 0)


# --- stores of users, and one store of several ---


class WithRevision(AsyncStore):
    """A store of a user that can delete at a revision."""

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        self._check(key, self._get(key)[0] if revision is None else revision)
        await super().delete(key)


async def test_spend_limits_count_in_a_store_of_runs_that_a_user_has_written(tmp_path: Path) -> None:
    for runs in (PlainStore(tmp_path / "file"), AsyncStore({}), WithRevision({})):
        store = open_spend_store(runs)
        assert (await store.reserve(claim("a", 7))).granted
        assert not (await store.reserve(claim("b", 4))).granted
        assert (await store.settle(claim("a"), Decimal(1))).spent_usd == 1
        assert (await store.accounts()).accounts == (account(),)


def test_stores_of_spending_are_equal_if_they_count_in_one_store_of_runs(tmp_path: Path) -> None:
    path = tmp_path / "spend.db"
    store = open_spend_store(SQLiteRunStore(path))
    assert store == SQLiteSpendStore(path) == open_spend_store(path)
    assert hash(store) == hash(SQLiteSpendStore(path))
    assert store != SQLiteSpendStore(tmp_path / "other.db")
    assert store != path


def test_what_is_no_store_of_runs_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="a RunStore with append"):
        open_spend_store(object())  # type: ignore[arg-type]


def test_a_store_that_keeps_large_values_elsewhere_forgets_accounts_as_the_one_within(
    tmp_path: Path,
) -> None:
    payloads = FilePayloadStore(tmp_path / "payloads")
    assert deletes_at_revision(OffloadingRunStore(MemoryRunStore(), payloads))
    assert deletes_at_revision(OffloadingRunStore(WithRevision({}), payloads))
    assert not deletes_at_revision(OffloadingRunStore(AsyncStore({}), payloads))
    assert not deletes_at_revision(OffloadingRunStore(PlainStore(tmp_path / "file"), payloads))  # type: ignore[arg-type]
