"""How the claims on one account are decided: the rules of `SpendStore`, without clock, I/O or locks.

The stores in memory and in SQLite run these. Redis and PostgreSQL have them in the language of the server,
where they must be atomic; the tests hold all four to one model.

    waiting ── reserve ──▶ reserved ── mark_sent ──▶ sent ── lease over ──▶ lapsed
       └──────────────────────┴──── settle ────────────┴──── settle ──────────┴──▶ gone

The first two are gone when their lease is over, a lapsed one after `CORRECTION_TIME`.

An account keeps only its window of now. What was reserved in an earlier one is held on, but counts nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final, Literal, Protocol

from fastroai.usage.spend_amounts import spend_units, spend_usd
from fastroai.usage.spend_store import SpendBalance, SpendClaim, SpendVerdict, Window

ClaimState = Literal["waiting", "reserved", "sent", "lapsed"]
"""`lapsed`: it was sent and then its lease ended. It counts as spent, until `settle` says better."""

CORRECTION_TIME: Final = timedelta(days=7)
"""How long a lapsed claim is kept for `settle` to correct."""

RETENTION: Final = timedelta(days=1)
"""How long after its window an account without claims is kept: a clock that is set back by less than this
opens no window again."""


@dataclass(slots=True)
class AccountRow:
    """What is kept of an account."""

    seen: datetime
    """The latest time that it was told, in UTC."""
    closes_at: datetime | None
    """The end of its window of now, which also tells windows apart; `None` for `total`."""
    spent: int = 0
    """In this window, in units of 1e-18 dollars."""
    reserved: int = 0


@dataclass(slots=True)
class ClaimRow:
    """What is kept of a claim."""

    id: str
    state: ClaimState
    amount: int
    """In units of 1e-18 dollars."""
    lease_until: datetime
    """When it is given up; for a lapsed one, when it is forgotten."""
    closes_at: datetime | None = None
    """The end of the window that it was reserved in."""


class ClaimRows(Protocol):
    """The claims on one account, in the order in which they were added."""

    def get(self, claim_id: str) -> ClaimRow | None:
        """The one with this id."""
        ...

    def add(self, row: ClaimRow) -> None:
        """Keep a new one, behind all others."""
        ...

    def update(self, row: ClaimRow) -> None:
        """Keep what was changed. Its place stays."""
        ...

    def remove(self, claim_id: str) -> None:
        """Forget one."""
        ...

    def first_in_line(self) -> str | None:
        """The id of the first one that waits."""
        ...

    def over(self, now: datetime) -> Sequence[ClaimRow]:
        """Those whose lease has ended."""
        ...


def new_account(window: Window, now: datetime) -> AccountRow:
    """An account of which nothing is spent."""
    return AccountRow(seen=now, closes_at=end_of_window(window, now))


def end_of_window(window: Window, now: datetime) -> datetime | None:
    """When the calendar window that `now`, in UTC, falls into ends."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if window == "hour":
        return midnight + timedelta(hours=now.hour + 1)
    if window == "day":
        return midnight + timedelta(days=1)
    if window == "month":
        return (midnight.replace(day=1) + timedelta(days=31)).replace(day=1)
    return None


class OpenAccount:
    """One account at one moment, for one operation."""

    def __init__(self, row: AccountRow, claims: ClaimRows, window: Window, now: datetime) -> None:
        """Brings it up to date: time goes on, leases end, and a new window opens."""
        self._row, self._claims = row, claims
        row.seen = max(row.seen, now)
        for claim in claims.over(row.seen):
            self._lease_over(claim)
        if row.closes_at is not None and row.closes_at <= row.seen:
            row.closes_at, row.spent, row.reserved = end_of_window(window, row.seen), 0, 0

    def reserve(self, claim: SpendClaim) -> SpendVerdict:
        """`SpendStore.reserve`."""
        amount = spend_units(claim.amount_usd, "reservation")
        held = self._claims.get(claim.id)
        if held is not None and held.state == "reserved" and amount > held.amount:
            self._take_out(held)
            held = None
        if held is None:
            held = ClaimRow(claim.id, "waiting", amount, self._lease_of(claim))
            self._claims.add(held)
        first = held.state != "waiting" or self._claims.first_in_line() == claim.id
        if held.state in ("waiting", "reserved"):
            self._ask(held, amount, first, spend_units(claim.limit_usd, "limit"))
            held.lease_until = self._lease_of(claim)
            self._claims.update(held)
        granted = held.state != "waiting" and amount <= held.amount
        return SpendVerdict(granted=granted, first=first, balance=self.balance())

    def mark_sent(self, claim: SpendClaim) -> bool:
        """`SpendStore.mark_sent`."""
        held = self._claims.get(claim.id)
        if held is None or held.state not in ("reserved", "sent"):
            return False
        held.state, held.lease_until = "sent", self._lease_of(claim)
        self._claims.update(held)
        return True

    def settle(self, claim: SpendClaim, cost_usd: Decimal) -> SpendBalance:
        """`SpendStore.settle`."""
        cost = spend_units(cost_usd, "cost")
        held = self._claims.get(claim.id)
        if held is not None:
            self._take_out(held)
            if held.state == "waiting" or self._counts(held):
                self._row.spent += cost
        return self.balance()

    def renew(self, claim: SpendClaim) -> None:
        """`SpendStore.renew`, for one."""
        held = self._claims.get(claim.id)
        if held is not None and held.state != "lapsed":
            held.lease_until = self._lease_of(claim)
            self._claims.update(held)

    def balance(self) -> SpendBalance:
        """`SpendStore.balance`."""
        return SpendBalance(
            spent_usd=spend_usd(self._row.spent),
            reserved_usd=spend_usd(self._row.reserved),
            now=self._row.seen,
            resets_at=self._row.closes_at,
        )

    def _ask(self, held: ClaimRow, amount: int, first: bool, limit: int) -> None:
        """Change the amount of a claim, and reserve it if it waits and may go."""
        if held.state == "reserved":
            if self._counts(held):
                self._row.reserved -= held.amount - amount
        elif first and self._row.spent + self._row.reserved + amount <= limit:
            held.state, held.closes_at = "reserved", self._row.closes_at
            self._row.reserved += amount
        held.amount = amount

    def _lease_over(self, held: ClaimRow) -> None:
        if held.state == "lapsed":
            self._claims.remove(held.id)
            return
        self._take_out(held)
        if held.state == "sent" and self._counts(held):
            self._row.spent += held.amount
            held.state, held.lease_until = "lapsed", self._row.seen + CORRECTION_TIME
            self._claims.add(held)

    def _take_out(self, held: ClaimRow) -> None:
        """Forget a claim, and that its amount counts in this window."""
        self._claims.remove(held.id)
        if self._counts(held):
            if held.state == "lapsed":
                self._row.spent -= held.amount
            else:
                self._row.reserved -= held.amount

    def _counts(self, held: ClaimRow) -> bool:
        return held.state != "waiting" and held.closes_at == self._row.closes_at

    def _lease_of(self, claim: SpendClaim) -> datetime:
        return self._row.seen + timedelta(seconds=claim.lease)
