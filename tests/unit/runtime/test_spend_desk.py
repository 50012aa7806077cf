"""What a process does for its reservations with spend limits: it renews leases, and knows what is held up."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from decimal import Decimal

import pytest
from support.spend_stores import account, claim

from fastroai.errors import SpendStoreUnavailable
from fastroai.runtime.spend_desk import SpendDesk
from fastroai.usage import SpendClaim
from fastroai.usage.memory_spend_store import MemorySpendStore

PATIENCE = 10.0


@dataclass(eq=False)
class Holder:
    claim: SpendClaim
    may_end: bool = True


@dataclass(eq=False)
class Store(MemorySpendStore):
    """Notes whose leases are renewed."""

    renewed: set[str] = field(default_factory=set)
    down: int = 0
    """How often it cannot be reached."""
    changed: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        super().__init__()

    async def renew(self, claims: Collection[SpendClaim]) -> None:
        with self.changed:
            self.changed.notify_all()
            if self.down:
                self.down -= 1
                raise SpendStoreUnavailable("test", "is down")
            self.renewed.update(each.id for each in claims)

    def wait_for_renewal_of(self, claim_id: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: claim_id in self.renewed, PATIENCE)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def desk(store: Store) -> Iterator[SpendDesk]:
    desk = SpendDesk(store)
    yield desk
    for holder in list(desk._live):
        desk.remove(holder)


def test_a_short_lease_is_renewed_in_time_beside_a_long_one(store: Store, desk: SpendDesk) -> None:
    desk.add(Holder(claim("long", lease=3_600)))
    desk.add(Holder(claim("short", lease=0.03)))
    store.wait_for_renewal_of("short")
    assert "long" not in store.renewed


def test_the_lease_of_what_may_never_end_is_left_to_end(store: Store, desk: SpendDesk) -> None:
    desk.add(Holder(claim("stalled", lease=0.03), may_end=False))
    desk.add(Holder(claim("other", lease=0.03)))
    store.wait_for_renewal_of("other")
    assert store.renewed == {"other"}


def test_a_store_that_is_down_is_asked_again(store: Store, desk: SpendDesk) -> None:
    store.down = 2
    desk.add(Holder(claim("a", lease=0.03)))
    store.wait_for_renewal_of("a")


def test_what_is_held_up_counts_until_its_lease_has_ended(
    desk: SpendDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After that the store has it as spent; whoever asks must not take the reservations of others for it."""
    now = 1_000.0
    monkeypatch.setattr("fastroai.runtime.spend_desk.monotonic", lambda: now)
    desk.add(Holder(claim("stalled", 3, lease=3_600), may_end=False))
    desk.add(Holder(claim("running", 4, lease=3_600)))
    desk.add(Holder(claim("elsewhere", 5, of=account(key="another"), lease=3_600), may_end=False))
    assert desk.held_up(account()) == Decimal(3)
    now += 3_599
    assert desk.held_up(account()) == Decimal(3)
    now += 1
    assert desk.held_up(account()) == 0
