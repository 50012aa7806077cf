"""What is known of one account of spending: its windows, and the claims on it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Literal

from fastroai.usage.spend_store import KEEP, SpendAdjustment

ClaimState = Literal["waiting", "reserved", "sent", "lapsed"]
"""The state of a claim. `lapsed`: it was sent, and its lease ended. It counts as spent until `settle`."""

RETENTION: Final = timedelta(days=1)
"""The least time, by the steady clock, for which an unused account is known."""


@dataclass(slots=True)
class WindowRow:
    """One window of an account."""

    number: int
    """The number of the window. It is larger than the numbers of all windows that were opened before."""
    closes_at: datetime | None
    """The end of the window, in UTC; `None` for `total`."""
    spent: int = 0
    """The spent amount in units of 1e-18 dollars, as are all amounts here."""
    reserved: int = 0
    limit: int = 0
    """The limit of the latest claim."""
    set_limit: int | None = None
    """The limit that was set by hand."""
    told: tuple[tuple[int, int, str], ...] = ()
    """The shares that were warned of: each in millionths, with the limit and the id of the claim that did."""
    adjustments: tuple[SpendAdjustment, ...] = ()
    """The changes by hand, in order."""

    def in_force(self, limit: int) -> int:
        """Return the limit that applies to a claim with this limit."""
        return limit if self.set_limit is None else self.set_limit


@dataclass(slots=True)
class ClaimRow:
    """One claim on an account."""

    id: str
    state: ClaimState
    amount: int
    """The amount in units of 1e-18 dollars."""
    lease_until: float
    """The time, by the steady clock, when it is given up, or forgotten if it has lapsed."""
    holder: str
    window: int | None = None
    """The number of the window that it was reserved in."""
    within: str = ""
    """The id of the claim that its amount was taken from; empty if it was taken from the account."""


class WindowRows:
    """The windows of an account, in order. Changes to the rows that it returns are kept."""

    def __init__(
        self, rows: Iterable[WindowRow] = (), earlier: Callable[[], Iterable[WindowRow]] | None = None
    ) -> None:
        """`earlier` gives the windows before `rows`, once they are needed, which is seldom."""
        self._rows = {row.number: row for row in rows}
        self.unread = earlier
        """What gives the windows before those that are read, if they were not needed so far."""

    @property
    def read(self) -> list[WindowRow]:
        """The windows that were given or needed so far."""
        return list(self._rows.values())

    def copied(self) -> WindowRows:
        """Return an independent copy."""
        return WindowRows(map(copy, self._rows.values()), self.unread)

    def get(self, number: int | None) -> WindowRow | None:
        """Return the window with this number. A waiting claim has none, and windows can be forgotten."""
        if number is None:
            return None
        self._read_back_to(number)
        return self._rows.get(number)

    def since(self, number: int) -> list[WindowRow]:
        """Return the windows with this number and larger ones, in order."""
        self._read_back_to(number)
        latest = next(reversed(self._rows))
        return [row for each in range(max(number, 1), latest + 1) if (row := self._rows.get(each))]

    def closing_at(self, closes_at: datetime) -> WindowRow | None:
        """Return the window that ends at this time."""
        self._read_back_to(1)
        return next((row for row in self._rows.values() if row.closes_at == closes_at), None)

    def add(self, row: WindowRow) -> None:
        """Keep a new window, behind all others."""
        self._rows[row.number] = row

    def forget(self, now: datetime, keep: timedelta, up_to: int) -> None:
        """Forget the windows up to a number that ended longer ago than they are kept."""
        self._read_back_to(1)
        for number, row in list(self._rows.items()):
            if number <= up_to and row.closes_at is not None and now - row.closes_at >= keep:
                del self._rows[number]

    def _read_back_to(self, number: int) -> None:
        if self.unread is not None and (not self._rows or number < next(iter(self._rows))):
            self._rows = {row.number: row for row in self.unread()} | self._rows
            self.unread = None


class ClaimRows:
    """The claims on an account, in the order in which they were added."""

    def __init__(self, rows: Iterable[ClaimRow] = ()) -> None:
        self._rows: dict[str, ClaimRow] = {}
        self._line: dict[str, None] = {}
        self._none_over_before: float | None = None
        for row in rows:
            self.put(row)

    @property
    def all(self) -> Collection[ClaimRow]:
        """All of them, in order."""
        return self._rows.values()

    def copied(self) -> ClaimRows:
        """Return an independent copy."""
        return ClaimRows(map(copy, self._rows.values()))

    def get(self, claim_id: str) -> ClaimRow | None:
        """Return the claim with this id."""
        return self._rows.get(claim_id)

    def put(self, row: ClaimRow) -> None:
        """Keep a claim: a new one behind all others, a changed one in its place."""
        self._rows[row.id] = row
        if row.state == "waiting":
            self._line[row.id] = None
        else:
            self._line.pop(row.id, None)
        if self._none_over_before is None or row.lease_until < self._none_over_before:
            self._none_over_before = row.lease_until

    def remove(self, claim_id: str) -> None:
        """Forget a claim."""
        del self._rows[claim_id]
        self._line.pop(claim_id, None)

    def first_in_line(self) -> str | None:
        """Return the id of the first claim that waits."""
        return next(iter(self._line), None)

    def over(self, steady: float) -> Sequence[ClaimRow]:
        """Return the claims whose lease has ended."""
        if self._none_over_before is None or steady < self._none_over_before:
            return []  # nearly always: looking at every claim each time would make a thousand of them slow
        over = [row for row in self._rows.values() if row.lease_until <= steady]
        left = (row.lease_until for row in self._rows.values() if row.lease_until > steady)
        self._none_over_before = min(left, default=None)
        return over

    def shift_leases(self, seconds: float) -> None:
        """Move the end of all leases by some seconds; a negative number moves it back."""
        for row in self._rows.values():
            row.lease_until += seconds
        if self._none_over_before is not None:
            self._none_over_before += seconds


@dataclass(slots=True)
class AccountRow:
    """An account, as it was when it was last used."""

    steady: float
    """The steady clock at the last use of the account."""
    closes_at: datetime | None
    """The end of the calendar window at the last use; `None` for `total`."""
    charged: int
    """The number of the window that new claims belong to. Spending in this and all later windows counts."""
    windows: WindowRows
    claims: ClaimRows
    keep: timedelta = KEEP
    """Time for which windows are kept after their end."""

    def copied(self) -> AccountRow:
        """Return an independent copy."""
        return replace(self, windows=self.windows.copied(), claims=self.claims.copied())

    def is_over(self, now: datetime, steady: float) -> bool:
        """Return whether nobody can miss the account: its windows are not kept, and nobody has used it.

        The calendar clock alone may have jumped ahead, so the steady clock must agree. It agrees also if it
        went back, because that means that the machine was started again, which no process has survived.
        """
        if self.closes_at is None or now - self.closes_at < self.keep:
            return False
        unused = steady < self.steady or self.steady + RETENTION.total_seconds() <= steady
        return unused and (
            steady < self.steady or all(claim.lease_until <= steady for claim in self.claims.all)
        )
