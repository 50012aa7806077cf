"""What a process does for its reservations with spend limits: it renews leases, and knows what is held up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from time import monotonic

import pytest
from support.patience import PATIENCE
from support.spend_stores import account, claim

from fastroai.errors import SpendStoreUnavailable
from fastroai.runtime.budgets.spend_upkeep import SpendUpkeep
from fastroai.runtime.owner import new_owner, process_owner, release_owner
from fastroai.usage import SpendBalance, SpendClaim
from fastroai.usage.shared.memory_spend_store import MemorySpendStore


@dataclass(eq=False)
class Holder:
    claim: SpendClaim
    may_end: bool = True

    @property
    def is_renewed(self) -> bool:
        return self.may_end


@dataclass(eq=False)
class Store(MemorySpendStore):
    """Notes whose leases are renewed."""

    renewed: set[str] = field(default_factory=set)
    down: int = 0
    """How often it cannot be reached."""
    settlements: int = 0
    """How often it was asked to settle."""
    failing: str = ""
    """The claim that it raises an error of its own for."""
    failure: Exception = field(default_factory=lambda: SpendStoreUnavailable("test", "is down"))
    """What it raises in place of renewing leases while it is down."""
    changed: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        super().__init__()

    async def renew(self, claims: Collection[SpendClaim]) -> None:
        with self.changed:
            self.changed.notify_all()
            if self.down:
                self.down -= 1
                raise self.failure
            self.renewed.update(each.id for each in claims)

    async def settle(self, claim: SpendClaim, cost_usd: Decimal) -> SpendBalance:
        self.settlements += 1
        if self.down:
            self.down -= 1
            raise SpendStoreUnavailable("test", "is down")
        if claim.id == self.failing:
            raise ZeroDivisionError
        return await super().settle(claim, cost_usd)

    async def wait_until_spent(self, usd: int) -> None:
        end = monotonic() + PATIENCE
        while (await self.balance(account())).spent_usd != usd:
            assert monotonic() < end
            await asyncio.sleep(0.001)

    def wait_for_renewal_of(self, claim_id: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: claim_id in self.renewed, PATIENCE)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def desk(store: Store) -> Iterator[SpendUpkeep]:
    desk = SpendUpkeep(store)
    yield desk
    for holder in list(desk._live):
        desk.remove(holder)


def test_a_short_lease_is_renewed_in_time_beside_a_long_one(store: Store, desk: SpendUpkeep) -> None:
    desk.add(Holder(claim("long", lease=3_600)))
    desk.add(Holder(claim("short", lease=0.03)))
    store.wait_for_renewal_of("short")
    assert "long" not in store.renewed


def test_the_lease_of_what_may_never_end_is_left_to_end(store: Store, desk: SpendUpkeep) -> None:
    desk.add(Holder(claim("stalled", lease=0.03), may_end=False))
    desk.add(Holder(claim("other", lease=0.03)))
    store.wait_for_renewal_of("other")
    assert store.renewed == {"other"}


@pytest.mark.parametrize("failure", [SpendStoreUnavailable("test", "is down"), ZeroDivisionError()], ids=repr)
def test_a_store_that_is_down_or_fails_is_asked_again(
    store: Store, desk: SpendUpkeep, failure: Exception
) -> None:
    store.down, store.failure = 2, failure
    desk.add(Holder(claim("a", lease=0.03)))
    store.wait_for_renewal_of("a")


def test_what_is_held_up_counts_until_its_lease_has_ended(
    desk: SpendUpkeep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After that the store has it as spent; whoever asks must not take the reservations of others for it."""
    now = 1_000.0
    monkeypatch.setattr("fastroai.runtime.budgets.spend_upkeep.monotonic", lambda: now)
    desk.add(Holder(claim("stalled", 3, lease=3_600), may_end=False))
    desk.add(Holder(claim("running", 4, lease=3_600)))
    desk.add(Holder(claim("elsewhere", 5, of=account(key="another"), lease=3_600), may_end=False))
    assert desk.held_up(account()) == Decimal(3)
    now += 3_599
    assert desk.held_up(account()) == Decimal(3)
    now += 1
    assert desk.held_up(account()) == 0


async def test_what_is_booked_is_no_longer_on_its_way_to_the_last_digit(desk: SpendUpkeep) -> None:
    cost_usd = Decimal("0.1234567890123456789012345678901234")
    await asyncio.wrap_future(desk.charge(claim("a", 0), cost_usd))
    assert desk.unbooked(account()) == 0


def test_what_is_held_up_is_exact_in_any_decimal_context(desk: SpendUpkeep) -> None:
    amounts = [Decimal("1.23456"), Decimal("0.000001")]
    for number, amount in enumerate(amounts):
        desk.add(Holder(claim(f"stalled {number}", amount, lease=3_600), may_end=False))
    with localcontext(prec=3):
        assert desk.held_up(account()) == Decimal("1.234561")


# --- settling late ---


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastroai.runtime.budgets.spend_upkeep._FIRST_RETRY", 0.001)
    monkeypatch.setattr("fastroai.runtime.budgets.spend_upkeep._LONGEST_RETRY", 0.01)


async def settle_all(store: Store, desk: SpendUpkeep, names: Sequence[str], lease: float = 30) -> None:
    """Each with a cost of a dollar, once all are reserved and sent."""
    claims = [claim(name, limit=100, lease=lease) for name in names]
    for each in claims:
        await store.reserve(each)
        await store.mark_sent(each)
    endings = [desk.settle(each, Decimal(1)) for each in claims]
    await asyncio.gather(*map(asyncio.wrap_future, endings))


@pytest.mark.usefixtures("quick_retries")
async def test_that_the_store_cannot_settle_is_found_out_once_and_all_is_settled_when_it_can(
    store: Store, desk: SpendUpkeep
) -> None:
    store.down = 4
    names = [f"claim {number}" for number in range(20)]
    await settle_all(store, desk, names)
    await store.wait_until_spent(20)
    assert store.settlements == 4 + 20
    await settle_all(store, desk, ["afterwards"])
    assert store.settlements == 4 + 20 + 1
    await store.wait_until_spent(21)


async def until_settled(desk: SpendUpkeep) -> None:
    end = monotonic() + PATIENCE
    while desk._unsettled:
        assert monotonic() < end
        await asyncio.sleep(0.001)


@pytest.mark.usefixtures("quick_retries")
async def test_an_error_of_the_stores_own_keeps_no_other_claim_from_being_settled(
    store: Store, desk: SpendUpkeep, caplog: pytest.LogCaptureFixture
) -> None:
    store.down, store.failing = 1_000_000, "b"
    await settle_all(store, desk, "abc")
    store.down = 0  # now that all three wait, however slow this was
    await store.wait_until_spent(2)
    await until_settled(desk)  # the failing one can be the last
    assert "the cost of $1.000000 could not be recorded for 'acme'" in caplog.text
    assert "ZeroDivisionError" in caplog.text


async def test_an_error_of_the_stores_own_is_logged_also_where_nobody_waits(
    store: Store, desk: SpendUpkeep, caplog: pytest.LogCaptureFixture
) -> None:
    store.failing = "b"
    await store.reserve(claim("b"))
    with pytest.raises(ZeroDivisionError):
        desk.settle(claim("b"), Decimal(1)).result(PATIENCE)
    assert "the cost of $1.000000 could not be recorded for 'acme'" in caplog.text
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.usefixtures("quick_retries")
async def test_what_cannot_be_settled_for_a_whole_lease_is_given_up_with_an_error(
    store: Store, desk: SpendUpkeep, caplog: pytest.LogCaptureFixture
) -> None:
    store.down = 1_000_000
    await settle_all(store, desk, "ab", lease=0.01)
    await until_settled(desk)
    assert caplog.text.count("the store counts its upper bound of $1.000000 when the lease has ended") == 2


# --- processes that are dead ---


async def test_only_the_leases_of_the_dead_are_ended(store: Store, desk: SpendUpkeep) -> None:
    dead = new_owner()
    release_owner(dead)
    elsewhere = dead.replace(" (", " (elsewhere:")
    for name, holder in (("a", dead), ("b", process_owner()), ("c", elsewhere), ("d", "")):
        await store.reserve(claim(name, holder=holder))
    verdict = await store.reserve(claim("e", 10))
    assert await desk.end_leases_of_dead(account(), verdict.holders)
    assert (await store.balance(account())).reserved_usd == 3
    assert not await desk.end_leases_of_dead(account(), verdict.holders[:0])
