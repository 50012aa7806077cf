"""Shared spending of the runs of one process, in memory."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime
from typing import Final, TypeVar

from fastroai.errors import ConfigurationError
from fastroai.forks import ForkGate
from fastroai.usage.shared.ruled_spend_store import RuledSpendStore
from fastroai.usage.shared.spend_rows import AccountRow
from fastroai.usage.shared.spend_rules import OpenAccount
from fastroai.usage.shared.spend_store import SpendAccount, SpendPage

T = TypeVar("T")

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


class MemorySpendStore(RuledSpendStore):
    """A store that keeps the counts of spend limits in memory, for the runs of one process.

    It is a `SpendStore`, and the default of `SpendLimit`. It may be used from any thread and event loop. Its
    counts are lost when the process ends. A forked process counts separately, from the counts so far.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], datetime] = utc_now,
        steady_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` gives the time, with its zone, for windows; `steady_clock` gives seconds, for leases.

        Raises:
            ConfigurationError: a clock cannot be called.
        """
        if not callable(clock):
            raise ConfigurationError("clock", clock, "a function that returns a datetime with a time zone")
        if not callable(steady_clock):
            expected = "a function that returns seconds, such as time.monotonic"
            raise ConfigurationError("steady_clock", steady_clock, expected)
        self._clock, self._steady_clock = clock, steady_clock
        self._lock = threading.Lock()
        self._accounts: dict[SpendAccount, AccountRow] = {}
        self._swept_at: float | None = None

    def clear(self) -> None:
        """Forget all accounts: spending, reservations and limits set by hand, for example between two tests.

        When a request that is in flight ends, its cost is then not counted.
        """
        with _gate, self._lock:
            self._accounts.clear()

    async def accounts(self, after: str | None = None) -> SpendPage:
        """Return the accounts that the store knows, each with its key and kind of window. Change nothing.

        All of them are on one page, whose `after` is `None`; the argument `after` is ignored. An account is
        known from its first reservation until its windows are no longer kept.
        """
        with _gate, self._lock:
            now, steady = self._times()
            known = [account for account, row in self._accounts.items() if not row.is_over(now, steady)]
        return SpendPage(accounts=tuple(known), after=None)

    async def _act(self, account: SpendAccount, act: Callable[[OpenAccount], T], *, keeps: bool = True) -> T:
        with _gate, self._lock:
            row = self._accounts.get(account)
            now, steady = self._times()
            opened = OpenAccount(row if keeps else deepcopy(row), account.window, now, steady)
            result = act(opened)
            if keeps and opened.is_known:
                self._accounts[account] = opened.row
                self._sweep(now, steady)
            return result

    def _times(self) -> tuple[datetime, float]:
        return self._clock().astimezone(UTC), self._steady_clock()

    def _sweep(self, now: datetime, steady: float) -> None:
        """Forget accounts that nobody uses, once in a while."""
        if self._swept_at is not None and self._swept_at <= steady < self._swept_at + _SWEEP_EVERY:
            return
        self._swept_at = steady
        for account, row in list(self._accounts.items()):
            if row.is_over(now, steady):
                del self._accounts[account]
