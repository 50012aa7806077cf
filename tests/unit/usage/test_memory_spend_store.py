"""What only the store in memory can do wrong, and calendars. The rules are tested for all stores together."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from fastroai.usage import SpendAccount, SpendClaim, SpendLimit, Window
from fastroai.usage.shared.memory_spend_store import MemorySpendStore, default_spend_store
from fastroai.usage.shared.spend_rules import end_of_window


class Clock:
    """Both clocks of a machine."""

    def __init__(self, now: datetime) -> None:
        self.now, self.uptime = now, 0.0

    def __call__(self) -> datetime:
        return self.now

    def steady(self) -> float:
        return self.uptime

    def pass_time(self, **time: float) -> None:
        self.now += timedelta(**time)
        self.uptime += timedelta(**time).total_seconds()

    def store(self) -> MemorySpendStore:
        return MemorySpendStore(clock=self, steady_clock=self.steady)


def claim(key: str = "k", window: Window = "hour", lease: float = 30) -> SpendClaim:
    account = SpendAccount(key=key, window=window)
    amounts = {"amount_usd": Decimal(1), "limit_usd": Decimal(10)}
    return SpendClaim(id="a", account=account, **amounts, lease=lease, keep=timedelta(days=1))


@pytest.mark.parametrize(
    ("window", "now", "end"),
    [
        ("hour", "2026-03-10T12:00:00", "2026-03-10T13:00:00"),
        ("hour", "2026-12-31T23:59:59.999999", "2027-01-01T00:00:00"),
        ("day", "2026-02-28T00:00:00", "2026-03-01T00:00:00"),
        ("day", "2028-02-28T23:00:00", "2028-02-29T00:00:00"),
        ("month", "2026-01-31T12:00:00", "2026-02-01T00:00:00"),
        ("month", "2028-02-29T23:59:59", "2028-03-01T00:00:00"),
        ("month", "2026-12-01T00:00:00", "2027-01-01T00:00:00"),
    ],
)
def test_windows_are_those_of_the_calendar(window: Window, now: str, end: str) -> None:
    utc = datetime.fromisoformat(now).replace(tzinfo=UTC)
    assert end_of_window(window, utc) == datetime.fromisoformat(end).replace(tzinfo=UTC)


def test_a_total_never_ends() -> None:
    assert end_of_window("total", datetime(2026, 1, 1, tzinfo=UTC)) is None


async def test_windows_are_in_utc_whatever_the_zone_of_the_clock() -> None:
    tokyo = timezone(timedelta(hours=9))
    store = MemorySpendStore(clock=Clock(datetime(2026, 3, 11, 8, 30, tzinfo=tokyo)))
    balance = await store.balance(claim(window="day").account)
    assert balance.now == datetime(2026, 3, 10, 23, 30, tzinfo=UTC)
    assert balance.now.tzinfo is UTC
    assert balance.resets_at == datetime(2026, 3, 11, tzinfo=UTC)


async def test_the_last_moment_belongs_to_the_window_and_the_next_one_does_not() -> None:
    clock = Clock(datetime(2026, 3, 10, 23, 59, 59, 999_999, tzinfo=UTC))
    store = MemorySpendStore(clock=clock)
    await store.reserve(claim(window="day"))
    clock.now += timedelta(microseconds=1)
    balance = await store.settle(claim(window="day"), Decimal(1))
    assert (balance.spent_usd, balance.resets_at) == (0, datetime(2026, 3, 12, tzinfo=UTC))


async def test_a_lease_is_over_when_its_time_has_come_and_not_before() -> None:
    clock = Clock(datetime(2026, 3, 10, tzinfo=UTC))
    store = clock.store()
    await store.reserve(claim(lease=30))
    clock.pass_time(seconds=30, microseconds=-1)
    assert (await store.balance(claim().account)).reserved_usd == 1
    clock.pass_time(microseconds=1)
    assert (await store.balance(claim().account)).reserved_usd == 0


async def test_accounts_that_nobody_uses_are_forgotten() -> None:
    clock = Clock(datetime(2026, 3, 10, 12, 30, tzinfo=UTC))
    store = clock.store()
    for key in ("a", "b", "total", "long"):
        lease = 5 * 86_400 if key == "long" else 30
        await store.reserve(claim(key, "total" if key == "total" else "hour", lease))
    clock.pass_time(hours=20)
    await store.reserve(claim("c"))
    assert {account.key for account in store._accounts} == {"a", "b", "total", "long", "c"}
    clock.pass_time(hours=6)
    await store.reserve(claim("d"))
    assert {account.key for account in store._accounts} == {"total", "long", "c", "d"}


async def test_no_account_is_forgotten_because_the_clock_has_jumped_ahead() -> None:
    clock = Clock(datetime(2026, 3, 10, 12, 30, tzinfo=UTC))
    store = clock.store()
    await store.reserve(claim("a"))
    clock.now += timedelta(days=3650)
    await store.reserve(claim("b"))
    clock.now -= timedelta(days=3650)
    clock.pass_time(hours=2)
    await store.reserve(claim("c"))
    assert {account.key for account in store._accounts} == {"a", "b", "c"}
    clock.pass_time(days=3)
    await store.reserve(claim("d"))
    assert {account.key for account in store._accounts} == {"b", "d"}, "b was opened ten years ahead"


async def test_asking_for_balances_keeps_nothing() -> None:
    store = MemorySpendStore()
    for number in range(3):
        await store.balance(SpendAccount(key=str(number), window="day"))
    assert not store._accounts


def test_all_limits_of_a_process_share_one_store_unless_they_are_given_one() -> None:
    assert SpendLimit(usd=1).store is SpendLimit(usd=2).store is default_spend_store()
    own = MemorySpendStore()
    assert SpendLimit(usd=1, store=own).store is own


def test_the_default_store_serves_one_event_loop_after_the_other() -> None:
    limit = SpendLimit(usd=10, key="one loop after the other")
    of_limit = SpendClaim(
        id="a", account=limit.account_for(None), amount_usd=Decimal(1), limit_usd=limit.usd, lease=30
    )
    assert asyncio.run(limit.store.reserve(of_limit)).granted
    assert asyncio.run(limit.store.settle(of_limit, Decimal("0.5"))).spent_usd == Decimal("0.5")
