"""What only the store in a file can do wrong."""

import os
import sqlite3
import stat
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from support.spend_stores import account, claim, swept

from fastroai.errors import RevisionConflict, RunStoreUnavailable, SpendStoreUnavailable
from fastroai.store import (
    SQLiteRunStore,
    SQLiteSpendStore,
)
from fastroai.usage import SpendClaim

LOCKED = "database is locked|no answer"  # the latter on a machine that is slow to look


class Clock:
    """Both clocks of a machine, started at noon."""

    now = datetime(2026, 3, 10, 12, 30, tzinfo=UTC)
    uptime = 1_800.0

    def __call__(self) -> datetime:
        return self.now

    def steady(self) -> float:
        return self.uptime

    def pass_time(self, hours: float) -> None:
        self.now += timedelta(hours=hours)
        self.uptime += hours * 3_600

    def open(self, path: Path) -> SQLiteSpendStore:
        return SQLiteSpendStore(path, clock=self, steady_clock=self.steady)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spend.db"


def rows(path: Path, table: str) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    finally:
        connection.close()


def beside(path: Path) -> list[Path]:
    return list(path.parent.iterdir())


def files_beside(path: Path) -> dict[str, bytes]:
    return {found.name: found.read_bytes() for found in beside(path)}


@pytest.mark.parametrize(
    "statements", [["CREATE TABLE mine (x)"], ["PRAGMA application_id = 7"]], ids=["its tables", "its mark"]
)
async def test_the_database_of_another_program_is_refused_and_left_as_it_is(
    path: Path, statements: list[str]
) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.close()
    before = files_beside(path)
    for use, refused in [
        (lambda: SQLiteSpendStore(path).reserve(claim("a")), SpendStoreUnavailable),
        (lambda: SQLiteRunStore(path).list(""), RunStoreUnavailable),
    ]:
        with pytest.raises(refused, match="another program, and was not changed; give the path of another"):
            await use()
    assert files_beside(path) == before


async def test_only_its_owner_can_read_a_new_file(path: Path) -> None:
    before = os.umask(0)
    try:
        store = SQLiteRunStore(path)
        await store.append("a", [b"secret"], revision=0)
    finally:
        os.umask(before)
    modes = {found.name: stat.S_IMODE(found.stat().st_mode) for found in beside(path)}
    assert len(modes) == 3
    assert set(modes.values()) == {0o600}
    await store.aclose()


async def test_runs_and_spending_can_share_a_file_that_is_marked_as_one_of_fastroai(path: Path) -> None:
    spending, runs = SQLiteSpendStore(path), SQLiteRunStore(path)
    assert (await spending.reserve(claim("a"))).granted
    await runs.append("a", [b"1"], revision=0)
    await spending.aclose()
    await runs.aclose()
    assert rows(path, "run_key") == 2
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA application_id").fetchone() == (0x46524149,)
    connection.execute("PRAGMA application_id = 0")  # as in files of before
    connection.close()
    assert [found.key for found in await SQLiteRunStore(path).list("")] == ["a", "spend:total:acme"]


async def test_a_file_that_stays_locked_while_it_is_opened_is_an_unavailable_store(path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    hasty = SQLiteSpendStore(path, timeout=0.2)
    with pytest.raises(SpendStoreUnavailable, match=LOCKED):
        await hasty.reserve(claim("a"))
    other.close()
    await hasty.aclose()
    store = SQLiteSpendStore(path)
    assert (await store.reserve(claim("a"))).granted
    await store.aclose()


async def test_the_file_stays_the_same_when_the_folder_of_the_process_changes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    store = SQLiteSpendStore(path.name)
    (path.parent / "elsewhere").mkdir()
    monkeypatch.chdir(path.parent / "elsewhere")
    await store.reserve(claim("a"))
    assert repr(store) == f"SQLiteSpendStore(SQLiteRunStore({str(path)!r}))"
    assert rows(path, "run_value") == 1
    await store.aclose()


async def open_many(store: SQLiteSpendStore) -> SpendClaim:
    """Five accounts of an hour, one with a long lease, and one of a total."""
    for number in range(5):
        await store.reserve(claim("a", of=account("hour", f"customer {number}"), lease=30))
    long = claim("a", of=account("hour", "long"), lease=5 * 86_400)
    await store.reserve(long)
    await store.reserve(claim("a", of=account("total", "for ever")))
    return long


async def test_accounts_that_nobody_uses_are_forgotten_a_day_after_their_window(path: Path) -> None:
    clock = Clock()
    store = clock.open(path)
    long = await open_many(store)
    clock.pass_time(hours=20)
    await store.reserve(claim("a", of=account("hour", "new")))
    await swept(store)
    assert rows(path, "run_key") == 8

    clock.pass_time(hours=6)
    await store.reserve(claim("b", of=account("hour", "new")))
    await swept(store)
    assert {each.key for each in (await store.accounts()).accounts} == {"long", "for ever", "new"}
    assert rows(path, "run_key") == rows(path, "run_value") == 3
    assert await store.mark_sent(long)
    await store.aclose()


async def test_an_account_that_was_forgotten_begins_anew_and_no_write_of_before_reaches_it(
    path: Path,
) -> None:
    clock, hour = Clock(), account("hour", "again")
    store, other = clock.open(path), clock.open(path)
    await store.reserve(claim("a", of=hour))
    stale = await store.runs.read("spend:hour:again")
    clock.pass_time(hours=50)
    await other.reserve(claim("a", of=account("hour", "new")))
    await swept(other)
    assert (await store.runs.read("spend:hour:again")).revision == 0
    assert (await store.reserve(claim("b", 5, of=hour))).granted
    await store.settle(claim("b", 5, of=hour), Decimal(5))
    with pytest.raises(RevisionConflict):
        await store.runs.compare_and_set("spend:hour:again", stale.values[-1], revision=stale.revision)
    assert (await store.balance(hour)).spent_usd == 5
    await store.aclose()
    await other.aclose()


async def test_no_account_is_forgotten_because_the_clock_has_jumped_ahead(path: Path) -> None:
    clock = Clock()
    store = clock.open(path)
    await open_many(store)
    clock.now += timedelta(days=3_650)
    await store.reserve(claim("b", of=account("hour", "new")))
    await swept(store)
    assert rows(path, "run_key") == 8
    clock.now -= timedelta(days=3_650)
    assert (await store.balance(account("hour", "customer 0"))).reserved_usd == 1
    await store.aclose()


async def test_after_a_restart_of_the_machine_leases_end_and_accounts_are_forgotten(path: Path) -> None:
    clock = Clock()
    clock.uptime = 9_000_000.0
    store = clock.open(path)
    await store.reserve(claim("a", 10, of=account("total")))
    await open_many(store)
    clock.now += timedelta(days=3)
    clock.uptime = 5.0
    assert (await store.balance(account("total"))).reserved_usd == 10
    clock.uptime = 36.0
    assert (await store.balance(account("total"))).reserved_usd == 0
    await store.reserve(claim("b", of=account("hour", "new")))
    await swept(store)
    assert rows(path, "run_key") == 3, "two of a total, and the new one"
    await store.aclose()


async def test_windows_that_are_over_are_kept_as_long_as_the_claims_say(path: Path) -> None:
    clock, hour = Clock(), account("hour")
    store = clock.open(path)
    for number in range(40):
        await store.reserve(claim(str(number), 1, of=hour, lease=3_600 * 24))
        await store.settle(claim(str(number), of=hour), Decimal(number))
        clock.pass_time(hours=1)
    windows = await store.windows(hour)
    assert len(windows) == 24 + 1, "those of a day, and that of now"
    assert [each.spent_usd for each in windows] == [0, *range(39, 15, -1)]
    clock.pass_time(hours=24 * 30)
    await store.reserve(claim("b", of=hour))
    assert len(await store.windows(hour)) == 4, "the latest, in case the clock was wrong"
    await store.aclose()
