"""Shared spending of the runs of one process, in memory."""

from __future__ import annotations

import functools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, TypeAlias

from fastroai.errors import ConfigurationError
from fastroai.forks import ForkGate
from fastroai.usage.spend_rules import RETENTION, AccountRow, ClaimRow, OpenAccount, WindowRow, open_new
from fastroai.usage.spend_store import (
    SpendAccount,
    SpendAdjustment,
    SpendBalance,
    SpendChange,
    SpendClaim,
    SpendPage,
    SpendStatus,
    SpendVerdict,
)

_SWEEP_EVERY: Final = 3600.0
_gate: Final = ForkGate()
"""Held while the store changes: no process forks meanwhile, so that a forked process has whole copies."""


def utc_now() -> datetime:
    """Return the time of this machine, in UTC."""
    return datetime.now(UTC)


@functools.cache
def default_spend_store() -> MemorySpendStore:
    """Return the store of every `SpendLimit` of this process that is given none."""
    return MemorySpendStore()


class MemorySpendStore:
    """A `SpendStore` for the runs of one process, in any of its threads and event loops.

    Its counts are gone when the process ends. A forked process goes on with a count of its own.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], datetime] = utc_now,
        steady_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` gives the time, with its zone, for windows; `steady_clock` gives seconds, for leases."""
        for option, given in (("clock", clock), ("steady_clock", steady_clock)):
            if not callable(given):
                expected = "a function without parameters that returns the time"
                raise ConfigurationError(option, given, expected)
        self._clock, self._steady_clock = clock, steady_clock
        self._lock = threading.Lock()
        self._accounts: dict[SpendAccount, _Rows] = {}
        self._swept_at: float | None = None

    def clear(self) -> None:
        """Forget everything that was spent and reserved, as between two tests."""
        with _gate, self._lock:
            self._accounts.clear()

    async def reserve(self, claim: SpendClaim) -> SpendVerdict:
        """See `SpendStore`."""
        with self._open(claim.account, create=True) as account:
            return account.reserve(claim)

    async def mark_sent(self, claim: SpendClaim) -> bool:
        """See `SpendStore`."""
        with self._open(claim.account) as account:
            return account.mark_sent(claim)

    async def settle(self, claim: SpendClaim, cost_usd: Decimal) -> SpendBalance:
        """See `SpendStore`."""
        with self._open(claim.account) as account:
            return account.settle(claim, cost_usd)

    async def renew(self, claims: Collection[SpendClaim]) -> None:
        """See `SpendStore`."""
        for claim in claims:
            with self._open(claim.account) as account:
                account.renew(claim)

    async def end_leases(self, account: SpendAccount, holders: Collection[str]) -> None:
        """See `SpendStore`."""
        with self._open(account) as opened:
            opened.end_leases(holders)

    async def balance(self, account: SpendAccount) -> SpendBalance:
        """See `SpendStore`."""
        with self._open(account) as opened:
            return opened.balance()

    async def adjust(self, account: SpendAccount, change: SpendChange) -> SpendAdjustment | None:
        """See `SpendStore`."""
        with self._open(account) as opened:
            return opened.adjust(change) if account in self._accounts else None

    async def windows(self, account: SpendAccount, *, closed: bool = True) -> tuple[SpendStatus, ...]:
        """See `SpendStore`."""
        with _gate, self._lock:
            if account not in self._accounts:
                return ()
            row, windows, claims = self._accounts[account]
            rows = copy(row), windows.copied(), claims.copied()
        return OpenAccount(*rows, account.window, *self._times()).statuses(account, closed)

    async def accounts(self, after: str | None = None) -> SpendPage:
        """See `SpendStore`. All of them are on one page."""
        with _gate, self._lock:
            return SpendPage(accounts=tuple(self._accounts), after=None)

    def _times(self) -> tuple[datetime, float]:
        return self._clock().astimezone(UTC), self._steady_clock()

    @contextmanager
    def _open(self, account: SpendAccount, *, create: bool = False) -> Iterator[OpenAccount]:
        with _gate, self._lock:
            now, steady = self._times()
            rows = self._accounts.get(account)
            if rows is None:
                windows = _MemoryWindows()
                rows = open_new(windows, account.window, now, steady), windows, _MemoryClaims()
            if create:
                self._sweep(now, steady)
                self._accounts[account] = rows
            yield OpenAccount(*rows, account.window, now, steady)

    def _sweep(self, now: datetime, steady: float) -> None:
        """Forget accounts that nobody uses, once in a while."""
        if self._swept_at is not None and self._swept_at <= steady < self._swept_at + _SWEEP_EVERY:
            return
        self._swept_at = steady
        unused_since = steady - RETENTION.total_seconds()
        for account, (row, _, claims) in list(self._accounts.items()):
            is_over = row.kept_until is not None and row.kept_until <= now
            if is_over and row.steady <= unused_since and claims.all_over(steady):
                del self._accounts[account]


class _MemoryWindows:
    """`WindowRows` in a dict, in the order of their numbers."""

    def __init__(self) -> None:
        self._rows: dict[int, WindowRow] = {}
        self._adjustments: defaultdict[int, list[SpendAdjustment]] = defaultdict(list)

    def copied(self) -> _MemoryWindows:
        """Return an independent copy."""
        windows = _MemoryWindows()
        windows._rows = {number: copy(row) for number, row in self._rows.items()}
        windows._adjustments = self._adjustments.copy()
        return windows

    def get(self, number: int) -> WindowRow | None:
        return self._rows.get(number)

    def since(self, number: int) -> list[WindowRow]:
        latest = next(reversed(self._rows))
        return [row for each in range(max(number, 1), latest + 1) if (row := self._rows.get(each))]

    def closing_at(self, closes_at: datetime) -> WindowRow | None:
        return next((row for row in self._rows.values() if row.closes_at == closes_at), None)

    def add(self, row: WindowRow) -> None:
        self._rows[row.number] = row

    def forget(self, before: datetime, up_to: int) -> None:
        for number, row in list(self._rows.items()):
            if number <= up_to and row.closes_at is not None and row.closes_at <= before:
                del self._rows[number]
                self._adjustments.pop(number, None)

    def adjusted(self, change_id: str) -> SpendAdjustment | None:
        known = (one for each in self._adjustments.values() for one in each if one.id == change_id)
        return next(known, None)

    def note(self, number: int, adjustment: SpendAdjustment) -> None:
        self._adjustments[number].append(adjustment)

    def adjustments(self) -> Mapping[int, Sequence[SpendAdjustment]]:
        return self._adjustments


class _MemoryClaims:
    """`ClaimRows` in dicts, which keep the order of insertion."""

    def __init__(self) -> None:
        self._rows: dict[str, ClaimRow] = {}
        self._line: dict[str, None] = {}
        self._none_over_before: float | None = None

    def copied(self) -> _MemoryClaims:
        """Return an independent copy."""
        claims = _MemoryClaims()
        for row in self._rows.values():
            claims.add(copy(row))
        return claims

    def get(self, claim_id: str) -> ClaimRow | None:
        return self._rows.get(claim_id)

    def add(self, row: ClaimRow) -> None:
        self._rows[row.id] = row
        self.update(row)

    def update(self, row: ClaimRow) -> None:
        if row.state == "waiting":
            self._line[row.id] = None
        else:
            self._line.pop(row.id, None)
        if self._none_over_before is None or row.lease_until < self._none_over_before:
            self._none_over_before = row.lease_until

    def remove(self, claim_id: str) -> None:
        del self._rows[claim_id]
        self._line.pop(claim_id, None)

    def first_in_line(self) -> str | None:
        return next(iter(self._line), None)

    def over(self, steady: float) -> list[ClaimRow]:
        if self._none_over_before is None or steady < self._none_over_before:
            return []  # nearly always: looking at every claim each time would make a thousand of them slow
        over = [row for row in self._rows.values() if row.lease_until <= steady]
        left = (row.lease_until for row in self._rows.values() if row.lease_until > steady)
        self._none_over_before = min(left, default=None)
        return over

    def shift_leases(self, seconds: float) -> None:
        for row in self._rows.values():
            row.lease_until += seconds
        if self._none_over_before is not None:
            self._none_over_before += seconds

    def holders(self) -> list[str]:
        return list({row.holder for row in self._rows.values() if row.state != "lapsed"})

    def held_by(self, holders: Collection[str]) -> list[ClaimRow]:
        return [row for row in self._rows.values() if row.holder in holders and row.state != "lapsed"]

    def lapsed(self) -> list[ClaimRow]:
        return [row for row in self._rows.values() if row.state == "lapsed"]

    def all_over(self, steady: float) -> bool:
        return all(row.lease_until <= steady for row in self._rows.values())


_Rows: TypeAlias = tuple[AccountRow, _MemoryWindows, _MemoryClaims]
"""The rows of an account."""
