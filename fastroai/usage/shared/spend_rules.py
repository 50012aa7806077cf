"""The rules of `SpendStore` for the claims on one account, as pure code without clock, I/O or locks.

All stores run this code, and the tests hold them to a model of it.

    waiting ── reserve ──▶ reserved ── mark_sent ──▶ sent ── lease over ──▶ lapsed
       └──────────────────────┴──── settle ────────────┴──── settle ──────────┴──▶ gone

A waiting or reserved claim is gone when its lease is over, a lapsed one after `CORRECTION_TIME`.

There are two clocks. The calendar clock names windows, and may be set forward and back by any amount. The
steady clock, in seconds, ends leases; a store that has only one clock uses it for both. If the steady clock
goes back (the machine was started again, or a server has no other clock), leases go back with it.

An account keeps its windows for the time that the claims on it ask for, and in any case the latest
`WINDOWS_KEPT`. If the clock goes back to one of these windows, that window counts again, together with the
windows that were opened after it. If the clock goes back further, the current window stays, until the end
of the window that the clock shows. An amount reserved in a window that is no longer kept stays held, but
counts nowhere.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import takewhile
from math import isfinite
from typing import Final

from fastroai.errors import ConfigurationError
from fastroai.usage.shared.spend_amounts import MILLION, Window, millionths, spend_units, spend_usd
from fastroai.usage.shared.spend_rows import WINDOWS_KEPT, AccountRow, ClaimRow, WindowRow
from fastroai.usage.shared.spend_store import (
    SpendAccount,
    SpendAdjustment,
    SpendBalance,
    SpendChange,
    SpendClaim,
    SpendStatus,
    SpendVerdict,
)

CORRECTION_TIME: Final = timedelta(days=7)
"""The time for which a lapsed claim is kept, so that `settle` can correct it."""


def end_of_window(window: Window, now: datetime) -> datetime | None:
    """Return the end of the calendar window that `now`, in UTC, falls into; `None` for `total`."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if window == "hour":
        return midnight + timedelta(hours=now.hour + 1)
    if window == "day":
        return midnight + timedelta(days=1)
    if window == "month":
        return (midnight.replace(day=1) + timedelta(days=31)).replace(day=1)
    return None


class OpenAccount:
    """An account at one moment, for one operation."""

    def __init__(self, row: AccountRow | None, window: Window, now: datetime, steady: float) -> None:
        """Bring the account up to date: end leases that are over, and turn to the window of `now`.

        `row` is changed; `None` opens an account that is not known. The time `now` is in UTC.
        """
        self.is_known = row is not None
        """Whether the account is to be kept: something was reserved in it, now or before."""
        self.is_over = row is not None and row.is_over(now, steady)
        """Whether the account is not known any more to those who look, because nobody has used it."""
        self.opens_window = row is None
        """Whether the account has a window that it did not have before."""
        if row is None:
            closes_at = end_of_window(window, now)
            row = AccountRow(steady, closes_at, 1, windows={1: WindowRow(closes_at)}, claims={})
        self.row, self._claims, self._now = row, row.claims, now
        if steady < row.steady:
            for held in self._claims.values():
                held.lease_until -= row.steady - steady
            row.none_over_before = steady
        row.steady = steady
        if steady >= row.none_over_before:
            for claim_id in [key for key, held in self._claims.items() if held.lease_until <= steady]:
                self._lease_over(claim_id)
            ends = (held.lease_until for held in self._claims.values())
            row.none_over_before = min(ends, default=steady)
        self._turn_to(end_of_window(window, now))

    def reserve(self, claim: SpendClaim) -> SpendVerdict:
        """See `SpendStore.reserve`."""
        amount, lease_until = spend_units(claim.amount_usd, "reservation"), self._ends_in(claim.lease)
        limit = self._charged.limit = spend_units(claim.limit_usd, "limit")
        self.is_known, self.is_over = True, False
        self.row.keep = claim.keep
        held = self._claims.get(claim.id)
        if held is not None and held.state == "reserved" and amount > held.amount:
            self._take_out(claim.id)
            self._give_back(held, held.amount)
            held = None
        if held is None:
            held = self._claims[claim.id] = ClaimRow("waiting", amount, lease_until, claim.holder)
        line = (key for key, each in self._claims.items() if each.state == "waiting")
        first = held.state != "waiting" or next(line) == claim.id
        if held.state in ("waiting", "reserved"):
            if not self._draw(held, amount, claim.within):
                self._ask(held, amount, first, self._charged.in_force(limit))
            held.lease_until = lease_until
            first = first and not held.within
        granted = held.state != "waiting" and amount <= held.amount
        holders = () if granted else {each.holder for each in self._claims.values() if each.state != "lapsed"}
        return SpendVerdict(granted=granted, first=first, balance=self.balance(), holders=tuple(holders))

    def mark_sent(self, claim: SpendClaim) -> bool:
        """See `SpendStore.mark_sent`."""
        held = self._claims.get(claim.id)
        if held is None or held.state not in ("reserved", "sent"):
            return False
        held.state, held.lease_until = "sent", self._ends_in(claim.lease)
        return True

    def settle(self, claim: SpendClaim, cost_usd: Decimal) -> SpendBalance:
        """See `SpendStore.settle`."""
        cost, limit = spend_units(cost_usd, "cost"), spend_units(claim.limit_usd, "limit")
        held = self._claims.get(claim.id)
        if held is not None:
            window = self._take_out(claim.id)
            if held.window is None:
                window = self._charged
            if window is not None:
                window.spent += cost
            self._give_back(held, held.amount - cost)
        return replace(self.balance(), reached=self._reached(claim, limit))

    def renew(self, claim: SpendClaim) -> None:
        """See `SpendStore.renew`."""
        held = self._claims.get(claim.id)
        if held is not None and held.state != "lapsed":
            held.lease_until = self._ends_in(claim.lease)

    def end_leases(self, holders: Collection[str]) -> None:
        """See `SpendStore.end_leases`."""
        for claim_id, held in list(self._claims.items()):
            if held.holder in holders and held.state != "lapsed":
                self._lease_over(claim_id)

    def balance(self) -> SpendBalance:
        """See `SpendStore.balance`."""
        spent, reserved = self._totals()
        set_limit = self._charged.set_limit
        return SpendBalance(
            spent_usd=spend_usd(spent),
            reserved_usd=spend_usd(reserved),
            now=self._now,
            resets_at=self.row.closes_at,
            limit_usd=None if set_limit is None else spend_usd(set_limit),
        )

    def adjust(self, change: SpendChange) -> SpendAdjustment | None:
        """See `SpendStore.adjust`."""
        if not self.is_known:
            return None
        for made in (one for each in self.row.all_windows().values() for one in each.adjustments):
            if made.id == change.id:
                return made
        window = self._charged
        if change.changes == "limit":
            before = window.in_force(window.limit)
            window.set_limit = None if change.limit_usd is None else spend_units(change.limit_usd, "limit")
            after = window.in_force(window.limit)
        else:
            before, after = self._totals()[0], 0
            self._start_from_zero()
        spent, _ = self._totals()
        window.told = tuple(
            (share, limit, claim_id)
            for share, limit, claim_id in window.told
            if _has_reached(spent, share, window.in_force(limit))
        )
        adjustment = SpendAdjustment(
            id=change.id,
            at=self._now,
            changes=change.changes,
            from_usd=spend_usd(before),
            to_usd=spend_usd(after),
            by=change.by,
            reason=change.reason,
        )
        window.adjustments = (*window.adjustments, adjustment)
        return adjustment

    def statuses(self, account: SpendAccount, closed: bool) -> tuple[SpendStatus, ...]:
        """See `SpendStore.windows`."""
        if not self.is_known or self.is_over:
            return ()

        def status(window: WindowRow, spent: int, reserved: int) -> SpendStatus:
            is_open = window is self._charged
            return SpendStatus(
                key=account.key,
                window=account.window,
                limit_usd=spend_usd(window.in_force(window.limit)),
                spent_usd=spend_usd(spent),
                reserved_usd=spend_usd(reserved),
                now=self._now,
                resets_at=self.row.closes_at if is_open else window.closes_at,
                is_open=is_open,
                adjustments=window.adjustments,
            )

        open_one = status(self._charged, *self._totals())
        if not closed:
            return (open_one,)
        over = [row for number, row in self.row.all_windows().items() if number < self.row.charged]
        return (open_one, *(status(each, each.spent, each.reserved) for each in reversed(over)))

    @property
    def _charged(self) -> WindowRow:
        """The window that new claims belong to."""
        return self.row.windows[self.row.charged]

    @property
    def _counting(self) -> list[WindowRow]:
        """The windows whose spending counts."""
        last_first = reversed(self.row.windows.items())
        return [row for _, row in takewhile(lambda each: each[0] >= self.row.charged, last_first)]

    def _window(self, number: int | None) -> WindowRow | None:
        """Return the window with this number. A waiting claim has none, and windows can be forgotten."""
        if number is None:
            return None
        return self.row.windows.get(number) or self.row.all_windows().get(number)

    def _turn_to(self, closes_at: datetime | None) -> None:
        """Go on with the calendar window that ends at `closes_at`."""
        row = self.row
        if closes_at is None or row.closes_at is None or closes_at == row.closes_at:
            return
        windows = row.all_windows()
        known = next((number for number, each in windows.items() if each.closes_at == closes_at), None)
        if known is not None:
            row.charged = known
        elif closes_at > row.closes_at:
            self.opens_window = True
            number, latest = next(reversed(windows.items()))
            row.charged = number + 1
            windows[row.charged] = WindowRow(closes_at, limit=latest.limit)
            row.windows = {
                number: each
                for number, each in windows.items()
                if number > row.charged - WINDOWS_KEPT
                or each.closes_at is None
                or self._now - each.closes_at < row.keep
            }
        row.closes_at = closes_at

    def _draw(self, held: ClaimRow, amount: int, within: str) -> bool:
        """Take the amount of a waiting claim from another claim. Return `False` if that has too little."""
        other = self._claims.get(within) if within and held.state == "waiting" else None
        if other is None or other.state != "reserved" or other.window is None:
            return False
        if other.window < self.row.charged or other.amount < amount:
            return False
        other.amount -= amount
        held.state, held.window, held.amount, held.within = "reserved", other.window, amount, within
        return True

    def _give_back(self, held: ClaimRow, amount: int) -> None:
        """Give an amount back to the claim that this one was taken from, if there is one."""
        other = self._claims.get(held.within) if held.within and amount > 0 else None
        if other is not None and other.state == "reserved":
            other.amount += amount
            if (window := self._window(other.window)) is not None:
                window.reserved += amount

    def _ask(self, held: ClaimRow, amount: int, first: bool, limit: int) -> None:
        """Change the amount of a claim. If it waits and may go, reserve it."""
        if held.state == "reserved":
            if (window := self._window(held.window)) is not None:
                window.reserved -= held.amount - amount
            self._give_back(held, held.amount - amount)
        elif first and sum(self._totals()) + amount <= limit:
            held.state, held.window = "reserved", self.row.charged
            self._charged.reserved += amount
        held.amount = amount

    def _reached(self, claim: SpendClaim, limit: int) -> tuple[float, ...]:
        """Return the shares that this claim is to warn of."""
        window = self._charged
        spent, _ = self._totals()
        told = {(share, of): claim_id for share, of, claim_id in window.told}
        for share in claim.warn_at:
            if _has_reached(spent, millionths(share), window.in_force(limit)):
                told.setdefault((millionths(share), limit), claim.id)
        window.told = tuple((*key, claim_id) for key, claim_id in told.items())
        return tuple(share for share in claim.warn_at if told.get((millionths(share), limit)) == claim.id)

    def _start_from_zero(self) -> None:
        """Set the spending of the current windows to zero, and forget the claims that could correct it."""
        for claim_id, held in list(self._claims.items()):
            if held.state == "lapsed" and held.window is not None and held.window >= self.row.charged:
                del self._claims[claim_id]
        for window in self._counting:
            window.spent = 0

    def _totals(self) -> tuple[int, int]:
        """Return the spent and the reserved amount of the windows that count."""
        counting = self._counting
        return sum(window.spent for window in counting), sum(window.reserved for window in counting)

    def _lease_over(self, claim_id: str) -> None:
        held = self._claims[claim_id]
        if held.state == "lapsed":
            del self._claims[claim_id]  # its amount stays spent
            return
        window = self._take_out(claim_id)
        if held.state == "reserved":
            self._give_back(held, held.amount)
        elif held.state == "sent" and window is not None:
            window.spent += held.amount
            forgotten_at = self._ends_in(CORRECTION_TIME.total_seconds())
            self._claims[claim_id] = replace(held, state="lapsed", lease_until=forgotten_at, within="")

    def _take_out(self, claim_id: str) -> WindowRow | None:
        """Forget a claim, and remove its amount from its window. Return the window, if it has one."""
        held = self._claims.pop(claim_id)
        window = self._window(held.window)
        if window is None:
            return None
        if held.state == "lapsed":
            window.spent -= held.amount
        else:
            window.reserved -= held.amount
        return window

    def _ends_in(self, lease: float) -> float:
        """Return when a lease of some seconds ends."""
        if not isfinite(lease):
            raise ConfigurationError("lease", lease, "a finite number of seconds")
        lease_until = self.row.steady + lease
        self.row.none_over_before = min(self.row.none_over_before, lease_until)
        return lease_until


def _has_reached(spent: int, share: int, limit: int) -> bool:
    """Return whether this share, in millionths, of a limit is spent."""
    return spent * MILLION >= limit * share
