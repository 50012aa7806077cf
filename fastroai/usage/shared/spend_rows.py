"""What is known of one account of spending: its windows, and the claims on it. It is plain data."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Final, Literal

from pydantic import TypeAdapter

from fastroai.usage.shared.spend_amounts import KEEP
from fastroai.usage.shared.spend_store import SpendAdjustment

ClaimState = Literal["waiting", "reserved", "sent", "lapsed"]
"""The state of a claim. `lapsed`: it was sent, and its lease ended. It counts as spent until `settle`."""

RETENTION: Final = timedelta(days=1)
"""The least time, by the steady clock, for which an unused account is known."""

WINDOWS_KEPT: Final = 4
"""The least number of windows of an account that are kept, the current one included."""


@dataclass(slots=True)
class WindowRow:
    """One window of an account."""

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


@dataclass(slots=True)
class AccountRow:
    """An account, as it was when it was last used."""

    steady: float
    """The steady clock at the last use of the account."""
    closes_at: datetime | None
    """The end of the calendar window at the last use; `None` for `total`."""
    charged: int
    """The number of the window that new claims belong to. Spending in this and all later windows counts."""
    windows: dict[int, WindowRow]
    """The windows that are not packed, by number, in the order in which they were opened."""
    claims: dict[str, ClaimRow]
    """The claims by id. Those that wait are in the order in which they came."""
    keep: timedelta = KEEP
    """Time for which windows are kept after their end."""
    earlier: str = ""
    """The windows before those in `windows`, packed: there can be thousands, which hardly ever change."""
    none_over_before: float = 0.0
    """A time, by the steady clock, before which no lease ends: looking at every claim each time would make
    a thousand of them slow."""

    def all_windows(self) -> dict[int, WindowRow]:
        """Return all windows, the packed ones included, which are unpacked first."""
        if self.earlier:
            text = zlib.decompress(base64.b85decode(self.earlier))
            self.windows, self.earlier = _windows().validate_json(text) | self.windows, ""
        return self.windows

    def pack(self) -> None:
        """Pack the windows that are seldom needed."""
        first = min(self.charged, next(reversed(self.windows)) - WINDOWS_KEPT + 1)
        if next(iter(self.windows)) < first:
            seldom = {number: row for number, row in self.all_windows().items() if number < first}
            text = _windows().dump_json(seldom, exclude_defaults=True)
            self.earlier = base64.b85encode(zlib.compress(text, zlib.Z_BEST_SPEED)).decode()
            self.windows = {number: row for number, row in self.windows.items() if number >= first}

    def is_over(self, now: datetime, steady: float) -> bool:
        """Return whether nobody can miss the account: its windows are not kept, and nobody has used it.

        The calendar clock alone may have jumped ahead, so the steady clock must agree. It agrees also if it
        went back, because that means that the machine was started again, which no process has survived.
        """
        if self.closes_at is None or now - self.closes_at < self.keep:
            return False
        unused = steady < self.steady or self.steady + RETENTION.total_seconds() <= steady
        return unused and (
            steady < self.steady or all(claim.lease_until <= steady for claim in self.claims.values())
        )


@cache
def _windows() -> TypeAdapter[dict[int, WindowRow]]:
    return TypeAdapter(dict[int, WindowRow])
