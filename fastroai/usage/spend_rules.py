"""How the claims on one account are decided: the rules of `SpendStore`, without clock, I/O or locks.

The stores in memory and in SQLite run these. Redis and PostgreSQL have them in the language of the server,
where they must be atomic; the tests hold all four to one model.

    waiting ── reserve ──▶ reserved ── mark_sent ──▶ sent ── lease over ──▶ lapsed
       └──────────────────────┴──── settle ────────────┴──── settle ──────────┴──▶ gone

The first two are gone when their lease is over, a lapsed one after `CORRECTION_TIME`.

There are two clocks. That of the calendar names windows, and may be set forward and back by any amount. The
steady one, in seconds, ends leases; a store that has only one clock uses it for both. Where the steady clock
goes back (the machine was started again, or a server has no other clock), leases go back with it.

An account keeps its windows for the time that the claims on it ask for, and in any case the latest
`WINDOWS_KEPT`. A clock that comes back to one of them makes it count again, together with those that were
opened after it. A clock that goes back further leaves the window that counts as it is, until the end of the
one that it shows. What was reserved in a window that is not kept any more is held on, but counts nowhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final, Literal, Protocol

from fastroai.usage.spend_amounts import MILLION, millionths, spend_units, spend_usd
from fastroai.usage.spend_store import (
    KEEP,
    SpendAccount,
    SpendAdjustment,
    SpendBalance,
    SpendChange,
    SpendClaim,
    SpendStatus,
    SpendVerdict,
    Window,
)

ClaimState = Literal["waiting", "reserved", "sent", "lapsed"]
"""`lapsed`: it was sent and then its lease ended. It counts as spent, until `settle` says better."""

CORRECTION_TIME: Final = timedelta(days=7)
"""How long a lapsed claim is kept for `settle` to correct."""

RETENTION: Final = timedelta(days=1)
"""The least time, by the steady clock, for which an account is kept that nobody uses."""

WINDOWS_KEPT: Final = 4
"""The least number of windows of an account that are kept, the current one included."""


@dataclass(slots=True)
class WindowRow:
    """What is kept of one window of an account."""

    number: int
    """Larger than that of every window that was opened before."""
    closes_at: datetime | None
    """Its end, in UTC; `None` for `total`."""
    spent: int = 0
    """In units of 1e-18 dollars, as are all amounts here."""
    reserved: int = 0
    limit: int = 0
    """The limit of the latest claim."""
    set_limit: int | None = None
    """The limit that was set by hand."""
    told: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """The claims that have told a share, by the share, in millionths, and the limit of the claim."""

    def in_force(self, limit: int) -> int:
        """Return the limit that applies to a claim with this limit."""
        return limit if self.set_limit is None else self.set_limit


@dataclass(slots=True)
class AccountRow:
    """What is kept of an account."""

    steady: float
    """The steady clock when it was used last."""
    closes_at: datetime | None
    """The end of the calendar window that the clock showed then; `None` for `total`."""
    charged: int
    """The number of the window that new claims belong to. It counts, and so do those with larger numbers."""
    keep: timedelta = KEEP
    """Time for which windows are kept after their end."""

    @property
    def kept_until(self) -> datetime | None:
        """Time at which the account is forgotten, if nobody uses it; `None` for `total`."""
        return None if self.closes_at is None else self.closes_at + self.keep


@dataclass(slots=True)
class ClaimRow:
    """What is kept of a claim."""

    id: str
    state: ClaimState
    amount: int
    """In units of 1e-18 dollars."""
    lease_until: float
    """When it is given up, by the steady clock; for a lapsed one, when it is forgotten."""
    holder: str
    window: int | None = None
    """The number of the window that it was reserved in."""
    within: str = ""
    """The id of the claim that its amount was taken from; empty if it was taken from the account."""


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

    def over(self, steady: float) -> Sequence[ClaimRow]:
        """Those whose lease has ended."""
        ...

    def shift_leases(self, seconds: float) -> None:
        """Let all leases end so much later, or sooner."""
        ...

    def holders(self) -> Sequence[str]:
        """The processes with claims that have not lapsed, each once."""
        ...

    def held_by(self, holders: Collection[str]) -> Sequence[ClaimRow]:
        """The claims of these processes that have not lapsed."""
        ...

    def lapsed(self) -> Sequence[ClaimRow]:
        """Return the claims that have lapsed."""
        ...


class WindowRows(Protocol):
    """The windows of one account. Changes to the rows that it returns are kept."""

    def get(self, number: int) -> WindowRow | None:
        """Return the window with this number."""
        ...

    def since(self, number: int) -> Sequence[WindowRow]:
        """Return the windows with this number and larger ones, in order."""
        ...

    def closing_at(self, closes_at: datetime) -> WindowRow | None:
        """Return the window that ends then."""
        ...

    def add(self, row: WindowRow) -> None:
        """Keep a new window."""
        ...

    def forget(self, before: datetime, up_to: int) -> None:
        """Forget the windows up to a number that ended before a time, and their adjustments."""
        ...

    def adjusted(self, change_id: str) -> SpendAdjustment | None:
        """Return the adjustment that a change has made, if it is known."""
        ...

    def note(self, number: int, adjustment: SpendAdjustment) -> None:
        """Keep an adjustment of a window."""
        ...

    def adjustments(self) -> Mapping[int, Sequence[SpendAdjustment]]:
        """Return the adjustments by the number of the window, in order."""
        ...


def open_new(windows: WindowRows, window: Window, now: datetime, steady: float) -> AccountRow:
    """Return an account without spending, with its first window."""
    closes_at = end_of_window(window, now)
    windows.add(WindowRow(1, closes_at))
    return AccountRow(steady, closes_at, 1)


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

    def __init__(
        self,
        row: AccountRow,
        windows: WindowRows,
        claims: ClaimRows,
        window: Window,
        now: datetime,
        steady: float,
    ) -> None:
        """Brings it up to date: leases end, and the window is that of now."""
        self._row, self._windows, self._claims, self._now = row, windows, claims, now
        if steady < row.steady:
            claims.shift_leases(steady - row.steady)
        row.steady = steady
        for claim in claims.over(steady):
            self._lease_over(claim)
        self._turn_to(end_of_window(window, now))

    def reserve(self, claim: SpendClaim) -> SpendVerdict:
        """`SpendStore.reserve`."""
        amount = spend_units(claim.amount_usd, "reservation")
        limit = self._charged.limit = spend_units(claim.limit_usd, "limit")
        self._row.keep = claim.keep
        held = self._claims.get(claim.id)
        if held is not None and held.state == "reserved" and amount > held.amount:
            self._take_out(held)
            self._give_back(held, held.amount)
            held = None
        if held is None:
            held = ClaimRow(claim.id, "waiting", amount, self._lease_of(claim), claim.holder)
            self._claims.add(held)
        first = held.state != "waiting" or self._claims.first_in_line() == claim.id
        if held.state in ("waiting", "reserved"):
            if not self._draw(held, amount, claim.within):
                self._ask(held, amount, first, self._charged.in_force(limit))
            held.lease_until = self._lease_of(claim)
            self._claims.update(held)
            first = first and not held.within
        granted = held.state != "waiting" and amount <= held.amount
        holders = () if granted else tuple(self._claims.holders())
        return SpendVerdict(granted=granted, first=first, balance=self.balance(), holders=holders)

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
            number = self._row.charged if held.window is None else held.window
            if (window := self._windows.get(number)) is not None:
                window.spent += cost
            self._give_back(held, held.amount - cost)
        return replace(self.balance(), reached=self._reached(claim))

    def renew(self, claim: SpendClaim) -> None:
        """`SpendStore.renew`, for one."""
        held = self._claims.get(claim.id)
        if held is not None and held.state != "lapsed":
            held.lease_until = self._lease_of(claim)
            self._claims.update(held)

    def end_leases(self, holders: Collection[str]) -> None:
        """`SpendStore.end_leases`."""
        for held in self._claims.held_by(holders):
            self._lease_over(held)

    def balance(self) -> SpendBalance:
        """`SpendStore.balance`."""
        spent, reserved = self._totals()
        set_limit = self._charged.set_limit
        return SpendBalance(
            spent_usd=spend_usd(spent),
            reserved_usd=spend_usd(reserved),
            now=self._now,
            resets_at=self._row.closes_at,
            limit_usd=None if set_limit is None else spend_usd(set_limit),
        )

    def adjust(self, change: SpendChange) -> SpendAdjustment:
        """`SpendStore.adjust`."""
        if (known := self._windows.adjusted(change.id)) is not None:
            return known
        window = self._charged
        if change.changes == "limit":
            before = window.in_force(window.limit)
            window.set_limit = None if change.limit_usd is None else spend_units(change.limit_usd, "limit")
            after = window.in_force(window.limit)
        else:
            before, after = self._totals()[0], 0
            self._start_from_zero()
        spent, _ = self._totals()
        window.told = {
            (share, limit): claim_id
            for (share, limit), claim_id in window.told.items()
            if _has_reached(spent, share, window.in_force(limit))
        }
        adjustment = SpendAdjustment(
            id=change.id,
            at=self._now,
            changes=change.changes,
            from_usd=spend_usd(before),
            to_usd=spend_usd(after),
            by=change.by,
            reason=change.reason,
        )
        self._windows.note(window.number, adjustment)
        return adjustment

    def statuses(self, account: SpendAccount, closed: bool) -> tuple[SpendStatus, ...]:
        """`SpendStore.windows`."""
        adjustments = self._windows.adjustments()

        def status(window: WindowRow, spent: int, reserved: int) -> SpendStatus:
            is_open = window.number == self._row.charged
            return SpendStatus(
                key=account.key,
                window=account.window,
                limit_usd=spend_usd(window.in_force(window.limit)),
                spent_usd=spend_usd(spent),
                reserved_usd=spend_usd(reserved),
                now=self._now,
                resets_at=self._row.closes_at if is_open else window.closes_at,
                is_open=is_open,
                adjustments=tuple(adjustments.get(window.number, ())),
            )

        open_one = status(self._charged, *self._totals())
        if not closed:
            return (open_one,)
        over = [window for window in self._windows.since(1) if window.number < self._row.charged]
        return (open_one, *(status(each, each.spent, each.reserved) for each in reversed(over)))

    @property
    def _charged(self) -> WindowRow:
        """The window that new claims belong to."""
        return self._windows.since(self._row.charged)[0]

    def _turn_to(self, closes_at: datetime | None) -> None:
        """Go on with the calendar window that ends then."""
        row = self._row
        if closes_at is None or row.closes_at is None or closes_at == row.closes_at:
            return
        known = self._windows.closing_at(closes_at)
        if known is not None:
            row.charged = known.number
        elif closes_at > row.closes_at:
            latest = self._windows.since(row.charged)[-1]
            row.charged = latest.number + 1
            self._windows.add(WindowRow(row.charged, closes_at, limit=latest.limit))
            self._windows.forget(self._now - row.keep, row.charged - WINDOWS_KEPT)
        row.closes_at = closes_at

    def _draw(self, held: ClaimRow, amount: int, within: str) -> bool:
        """Take the amount of a waiting claim from another claim. False if that has too little."""
        other = self._claims.get(within) if within and held.state == "waiting" else None
        if other is None or other.state != "reserved" or other.window is None:
            return False
        if other.window < self._row.charged or other.amount < amount:
            return False
        other.amount -= amount
        self._claims.update(other)
        held.state, held.window, held.amount, held.within = "reserved", other.window, amount, within
        return True

    def _give_back(self, held: ClaimRow, amount: int) -> None:
        """Give an amount back to the claim that this one was taken from, if there is one."""
        other = self._claims.get(held.within) if held.within and amount > 0 else None
        if other is not None and other.state == "reserved":
            other.amount += amount
            self._claims.update(other)
            if (window := self._window(other.window)) is not None:
                window.reserved += amount

    def _ask(self, held: ClaimRow, amount: int, first: bool, limit: int) -> None:
        """Change the amount of a claim; reserve it, if it waits and may go."""
        if held.state == "reserved":
            if (window := self._window(held.window)) is not None:
                window.reserved -= held.amount - amount
            self._give_back(held, held.amount - amount)
        elif first and sum(self._totals()) + amount <= limit:
            held.state, held.window = "reserved", self._row.charged
            self._charged.reserved += amount
        held.amount = amount

    def _reached(self, claim: SpendClaim) -> tuple[float, ...]:
        """Return the shares that this claim is to tell."""
        window, limit = self._charged, spend_units(claim.limit_usd, "limit")
        spent, _ = self._totals()
        told = dict(window.told)
        for share in claim.warn_at:
            if _has_reached(spent, millionths(share), window.in_force(limit)):
                told.setdefault((millionths(share), limit), claim.id)
        window.told = told
        return tuple(share for share in claim.warn_at if told.get((millionths(share), limit)) == claim.id)

    def _start_from_zero(self) -> None:
        """Set the spending of the current windows to zero, and forget the claims that could correct it."""
        for held in self._claims.lapsed():
            if held.window is not None and held.window >= self._row.charged:
                self._claims.remove(held.id)
        for window in self._windows.since(self._row.charged):
            window.spent = 0

    def _totals(self) -> tuple[int, int]:
        """Return what is spent and what is reserved in the windows that count."""
        counting = self._windows.since(self._row.charged)
        return sum(window.spent for window in counting), sum(window.reserved for window in counting)

    def _lease_over(self, held: ClaimRow) -> None:
        if held.state == "lapsed":
            self._claims.remove(held.id)
            return
        self._take_out(held)
        window = self._window(held.window)
        if held.state == "reserved":
            self._give_back(held, held.amount)
        if held.state == "sent" and window is not None:
            held.within = ""
            window.spent += held.amount
            held.state, held.lease_until = "lapsed", self._row.steady + CORRECTION_TIME.total_seconds()
            self._claims.add(held)

    def _take_out(self, held: ClaimRow) -> None:
        """Forget a claim, and that its amount counts in its window."""
        self._claims.remove(held.id)
        if (window := self._window(held.window)) is None:
            return
        if held.state == "lapsed":
            window.spent -= held.amount
        else:
            window.reserved -= held.amount

    def _window(self, number: int | None) -> WindowRow | None:
        """The window with this number; `None` for a claim that waits, and where it is kept no longer."""
        return None if number is None else self._windows.get(number)

    def _lease_of(self, claim: SpendClaim) -> float:
        return self._row.steady + claim.lease


def _has_reached(spent: int, share: int, limit: int) -> bool:
    """Return whether this share, in millionths, of a limit is spent."""
    return spent * MILLION >= limit * share
