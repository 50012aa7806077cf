"""What only the store in a file can do wrong."""

import os
import sqlite3
import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from support.spend_stores import account, claim

from fastroai.errors import ConfigurationError, SpendStoreUnavailable
from fastroai.store import SQLiteSpendStore

LOCKED = "database is locked|no answer"  # the latter on a machine that is slow to look


class Clock:
    now = datetime(2026, 3, 10, 12, 30, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spend.db"


def rows(path: Path, table: str) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    finally:
        connection.close()


async def test_what_is_counted_survives_its_process(path: Path) -> None:
    store = SQLiteSpendStore(path)
    await store.reserve(claim("a", 3))
    await store.settle(claim("a", 3), Decimal("0.123456789012345678"))
    await store.aclose()
    again = SQLiteSpendStore(str(path))
    assert (await again.balance(account())).spent_usd == Decimal("0.123456789012345678")
    await again.aclose()


async def test_amounts_and_times_can_be_read_by_people(path: Path) -> None:
    store = SQLiteSpendStore(path, clock=Clock())
    await store.reserve(claim("a", "0.000000000000000001", of=account("day")))
    await store.aclose()
    connection = sqlite3.connect(path)
    found = connection.execute(
        "SELECT seen, closes_at, spent_usd, reserved_usd FROM spend_account"
    ).fetchall()
    connection.close()
    times = ("2026-03-10T12:30:00.000000+00:00", "2026-03-11T00:00:00.000000+00:00")
    assert found == [(*times, "0", "0.000000000000000001")]


async def test_asking_for_the_balance_of_an_unknown_account_keeps_nothing(path: Path) -> None:
    store = SQLiteSpendStore(path)
    await store.balance(account("day"))
    await store.settle(claim("a"), Decimal(1))
    assert rows(path, "spend_account") == 0
    await store.aclose()


async def test_the_file_can_have_other_tables(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    store = SQLiteSpendStore(path)
    assert (await store.reserve(claim("a"))).granted
    await store.aclose()
    assert rows(path, "mine") == 0


async def test_a_locked_file_is_an_unavailable_store(path: Path) -> None:
    store = SQLiteSpendStore(path, timeout=0.2)
    await store.reserve(claim("a"))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(SpendStoreUnavailable, match=LOCKED) as caught:
        await store.settle(claim("a"), Decimal(1))
    assert str(path) in caught.value.store
    other.close()
    assert (await store.settle(claim("a"), Decimal(1))).spent_usd == 1
    await store.aclose()


async def test_a_file_that_stays_locked_while_it_is_opened_is_an_unavailable_store(path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    store = SQLiteSpendStore(path, timeout=0.2)
    with pytest.raises(SpendStoreUnavailable, match=LOCKED):
        await store.reserve(claim("a"))
    other.close()
    assert (await store.reserve(claim("a"))).granted
    await store.aclose()


async def test_a_file_that_is_gone_while_it_is_open_is_an_unavailable_store(path: Path) -> None:
    store = SQLiteSpendStore(path)
    await store.reserve(claim("a", 3))
    os.unlink(path)
    with pytest.raises(SpendStoreUnavailable, match="its file is gone since it was opened"):
        await store.reserve(claim("b", 3))
    await store.aclose()
    await store.reserve(claim("b", 3))
    assert rows(path, "spend_claim") == 1, "once it was closed, it opens what is there"
    await store.aclose()


async def test_who_finds_the_file_locked_waits(path: Path) -> None:
    store = SQLiteSpendStore(path, timeout=20)
    await store.reserve(claim("a"))
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    threading.Timer(0.05, other.close).start()
    assert (await store.settle(claim("a"), Decimal(1))).spent_usd == 1
    await store.aclose()


@pytest.fixture
def corrupt_path(path: Path) -> Path:
    path.write_bytes(b"this is no database" * 100)
    return path


async def test_a_corrupt_file_is_an_unavailable_store(corrupt_path: Path) -> None:
    store = SQLiteSpendStore(corrupt_path)
    with pytest.raises(SpendStoreUnavailable, match="file is not a database") as caught:
        await store.reserve(claim("a"))
    assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)
    with pytest.raises(SpendStoreUnavailable):
        await store.balance(account())


async def test_a_folder_that_is_not_there_is_an_unavailable_store(tmp_path: Path) -> None:
    store = SQLiteSpendStore(tmp_path / "missing" / "spend.db")
    with pytest.raises(SpendStoreUnavailable, match="unable to open database file"):
        await store.reserve(claim("a"))


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_what_is_no_file_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationError, match=r"MemorySpendStore\(\)"):
        SQLiteSpendStore(path)


async def test_the_file_stays_the_same_when_the_folder_of_the_process_changes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    store = SQLiteSpendStore(path.name)
    (path.parent / "elsewhere").mkdir()
    monkeypatch.chdir(path.parent / "elsewhere")
    await store.reserve(claim("a"))
    assert repr(store) == f"SQLiteSpendStore({str(path)!r})"
    assert rows(path, "spend_claim") == 1
    await store.aclose()


async def test_accounts_that_nobody_uses_are_forgotten_a_day_after_their_window(path: Path) -> None:
    clock = Clock()
    store = SQLiteSpendStore(path, clock=clock)
    for number in range(5):
        of = account("hour", f"customer {number}")
        await store.reserve(claim("a", of=of, lease=30))
    long = claim("a", of=account("hour", "long"), lease=5 * 86_400)
    await store.reserve(long)
    await store.reserve(claim("a", of=account("total", "for ever")))
    assert (rows(path, "spend_account"), rows(path, "spend_claim")) == (7, 7)

    clock.now += timedelta(hours=20)
    await store.reserve(claim("a", of=account("hour", "new")))
    assert rows(path, "spend_account") == 8

    clock.now += timedelta(hours=6)
    await store.reserve(claim("b", of=account("hour", "new")))
    assert (rows(path, "spend_account"), rows(path, "spend_claim")) == (3, 3)
    assert await store.mark_sent(long)
    await store.aclose()
