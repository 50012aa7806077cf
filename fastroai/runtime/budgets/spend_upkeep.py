"""Background work of a process for a spend store: renewing leases, and settling."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, TypeVar
from weakref import WeakValueDictionary

from fastroai.errors import SpendStoreUnavailable
from fastroai.forks import in_forked_process
from fastroai.records import EXACT, exact_sum
from fastroai.runtime.budgets.ledger import equal_part
from fastroai.runtime.concurrency.sync import in_background
from fastroai.runtime.concurrency.turnstile import Turnstile
from fastroai.runtime.owner import is_dead

if TYPE_CHECKING:
    from fastroai.runtime.budgets.in_flight import Payer
    from fastroai.usage import SpendAccount, SpendBalance, SpendClaim, SpendStore

T = TypeVar("T")

logger = logging.getLogger("fastroai.runtime")

RENEWALS_PER_LEASE: Final = 3
_FIRST_RETRY: Final = 0.1
_LONGEST_RETRY: Final = 2.0
"""Seconds between attempts to settle with a store that is unavailable."""
_BOUND_COUNTS: Final = (
    "could not be recorded; the store counts its upper bound of $%f when the lease has ended"
)


class LeaseHolder(Protocol):
    """A reservation with a claim in a spend store."""

    claim: SpendClaim

    @property
    def may_end(self) -> bool:
        """Whether the request will end by itself."""
        ...

    @property
    def is_renewed(self) -> bool:
        """Whether the lease is renewed; otherwise it runs out."""
        ...


class SpendCounter:
    """The requests of one process that draw on one account of a store."""

    def __init__(self) -> None:
        self.turnstile = Turnstile()
        """Lets the requests ask the store one after the other."""
        self.arrivals = 0
        """Number of requests that have come so far."""
        self._contenders = 0
        """Number of requests on their way to the turnstile, waiting for their turn, or in flight."""
        self._reserved_usd = Decimal(0)
        """US dollars that the requests have reserved."""
        self._lock = threading.Lock()

    def come(self) -> None:
        """Count a request before it asks the store, so that `offer` leaves a part for it."""
        with self._lock:
            self.arrivals += 1
            self._contenders += 1

    def leave(self, reserved_usd: Decimal) -> None:
        """Stop counting a request that had reserved this much."""
        with self._lock:
            self._contenders -= 1
            self._reserved_usd = EXACT.subtract(self._reserved_usd, reserved_usd)

    def change(self, before_usd: Decimal, now_usd: Decimal) -> None:
        """Note that a request has reserved `now_usd` instead of `before_usd`."""
        with self._lock:
            self._reserved_usd = EXACT.add(EXACT.subtract(self._reserved_usd, before_usd), now_usd)

    def offer(self, left_usd: Decimal, own_usd: Decimal) -> Decimal:
        """Return the US dollars that a request with `own_usd` reserved may take if `left_usd` are left."""
        with self._lock:
            others_usd = EXACT.subtract(self._reserved_usd, own_usd)
            return equal_part(EXACT.add(left_usd, own_usd), others_usd, max(self._contenders, 1))


class SpendUpkeep:
    """The work of one process for one spend store, on the background loop.

    The loop of a request would not do, because it may be blocked, cancelled or closed.
    """

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _upkeep: ClassVar[WeakValueDictionary[SpendStore, SpendUpkeep]] = WeakValueDictionary()

    @classmethod
    def of(cls, store: SpendStore) -> SpendUpkeep:
        """Return the upkeep for a store. It exists while somebody uses it."""
        with cls._lock:
            upkeep = cls._upkeep.get(store)
            if upkeep is None:
                upkeep = cls._upkeep[store] = SpendUpkeep(store)
            return upkeep

    @classmethod
    def forget_all(cls) -> None:
        """Forget all upkeeps, in a process that was forked."""
        cls._lock = threading.Lock()
        cls._upkeep = WeakValueDictionary()

    def __init__(self, store: SpendStore) -> None:
        self.store = store
        self._live: dict[LeaseHolder, float] = {}
        """Holders whose leases this upkeep renews, each with the monotonic time of its last renewal."""
        self._counters: WeakValueDictionary[SpendAccount, SpendCounter] = WeakValueDictionary()
        self._renewing: set[float] = set()
        self._unsettled: deque[_Ending] = deque()
        """Endings that the store could not be told of. While there are any, new ones queue up behind them."""
        self._unbooked: dict[SpendAccount, Decimal] = {}
        """US dollars by account that were charged and are on their way to the store."""

    def counter(self, account: SpendAccount) -> SpendCounter:
        """Return the counter through which the requests of this process ask for an account."""
        with self._lock:
            return self._counters.setdefault(account, SpendCounter())

    # --- leases ---

    def add(self, holder: LeaseHolder) -> None:
        """Renew the lease of a holder from now on."""
        lease = holder.claim.lease
        with self._lock:
            self._live[holder] = monotonic()
            if lease in self._renewing:
                return
            self._renewing.add(lease)
        in_background(self._renew_leases(lease))

    def remove(self, holder: LeaseHolder) -> None:
        """Stop renewing the lease of a holder."""
        with self._lock:
            self._live.pop(holder, None)

    def move(self, payer: Payer, usd: Decimal) -> None:
        """Give US dollars back to the claim of a run on which requests draw. A negative amount takes them."""
        with self._lock:
            left_usd = EXACT.add(payer.claim.amount_usd, usd)
            payer.claim = replace(payer.claim, amount_usd=left_usd)

    def held_up(self, account: SpendAccount) -> Decimal:
        """Return the US dollars reserved by requests of this process that may never end by themselves.

        Nobody renews their leases. Once a lease has run out, its amount counts as spent, not as reserved.
        """
        now = monotonic()
        with self._lock:
            held_up = [
                holder.claim.amount_usd
                for holder, renewed in self._live.items()
                if holder.claim.account == account
                and not holder.may_end
                and now < renewed + holder.claim.lease
            ]
        return exact_sum(held_up)

    async def end_leases_of_dead(self, account: SpendAccount, holders: Iterable[str]) -> bool:
        """End the leases of those holders whose processes are known to be dead. Returns whether any are."""
        dead = [holder for holder in holders if is_dead(holder)]
        if dead:
            await self.store.end_leases(account, dead)
        return bool(dead)

    async def _renew_leases(self, lease: float) -> None:
        while True:
            with self._lock:
                if not any(holder.claim.lease == lease for holder in self._live):
                    self._renewing.discard(lease)
                    return
            await asyncio.sleep(lease / RENEWALS_PER_LEASE)
            now = monotonic()
            with self._lock:
                ending = [
                    holder for holder in self._live if holder.claim.lease == lease and holder.is_renewed
                ]
                self._live.update(dict.fromkeys(ending, now))
            try:
                if ending:
                    await self.store.renew([holder.claim for holder in ending])
            except SpendStoreUnavailable as error:
                logger.warning("leases at %s could not be renewed: %s", error.store, error.reason)
            except Exception:  # the user's own store raised it; the next renewal can succeed
                logger.exception("leases could not be renewed")

    # --- endings ---

    def settle(self, claim: SpendClaim, cost_usd: Decimal) -> concurrent.futures.Future[SpendBalance | None]:
        """Settle in the background. The future is done after the first attempt; a failed one is repeated."""
        return in_background(self._settle(_Ending(claim, cost_usd)), finishes=True)

    def charge(self, claim: SpendClaim, cost_usd: Decimal) -> concurrent.futures.Future[SpendBalance | None]:
        """Charge spending that was not reserved, in the background. The future is that of `settle`."""
        self._add_unbooked(claim.account, cost_usd)
        ending = in_background(self._settle(_Ending(claim, cost_usd, is_known=False)), finishes=True)
        ending.add_done_callback(lambda _: self._add_unbooked(claim.account, cost_usd.copy_negate()))
        return ending

    def unbooked(self, account: SpendAccount) -> Decimal:
        """Return the US dollars that this process has charged and that are not in the store yet."""
        with self._lock:
            return self._unbooked.get(account, Decimal(0))

    def _add_unbooked(self, account: SpendAccount, cost_usd: Decimal) -> None:
        with self._lock:
            left = exact_sum([self._unbooked.pop(account, Decimal(0)), cost_usd])
            if left:
                self._unbooked[account] = left

    async def _settle(self, ending: _Ending) -> SpendBalance | None:
        if not self._unsettled:
            try:
                return await self._tell(ending)
            except SpendStoreUnavailable as error:
                ending.log(logging.WARNING, "is not settled yet: %s", error.reason)
            except Exception:  # the user's own store raised it, and often nobody waits for the future
                ending.log_error()
                raise
        ending.claim = replace(ending.claim, warn_at=())  # its run is gone by then; other claims will warn
        self._unsettled.append(ending)
        if len(self._unsettled) == 1:
            in_background(self._settle_late(), finishes=True)
        return None

    async def _tell(self, ending: _Ending) -> SpendBalance:
        if not ending.is_known:
            await self.store.reserve(ending.claim)  # the store can settle a claim, granted or in line
            ending.is_known = True
        return await self.store.settle(ending.claim, ending.cost_usd)

    async def _settle_late(self) -> None:
        """Retry endings one at a time, each for as long as its lease; then the store counts the bound."""
        pause = _FIRST_RETRY
        while self._unsettled:
            await asyncio.sleep(pause)
            first, pause = self._unsettled[0], min(max(pause * 2, _FIRST_RETRY), _LONGEST_RETRY)
            try:
                await self._tell(first)
            except SpendStoreUnavailable:
                self._unsettled.rotate(-1)
                for late in [each for each in self._unsettled if each.until <= monotonic()]:
                    self._unsettled.remove(late)
                    late.log(logging.ERROR, _BOUND_COUNTS, late.claim.amount_usd)
                continue
            except Exception:  # the user's own store raised it; the others must be settled all the same
                first.log_error()
            self._unsettled.popleft()
            pause = 0.0


@dataclass(eq=False)
class _Ending:
    """The end of a claim, as a store is to be told of it."""

    claim: SpendClaim
    cost_usd: Decimal
    is_known: bool = True
    """Whether the store has the claim."""

    def __post_init__(self) -> None:
        self.until = monotonic() + self.claim.lease
        """Monotonic time at which to give up, if the store stays unavailable."""

    def log(self, level: int, what: str, detail: object) -> None:
        """Log what becomes of it. Without a cost, a debug message will do: its reservation ends anyway."""
        level, key = level if self.cost_usd else logging.DEBUG, self.claim.account.key
        logger.log(level, f"$%f of %r {what}", self.cost_usd, key, detail)

    def log_error(self) -> None:
        """Log the error that is being handled, with which the store refused to settle."""
        logger.exception(
            "the cost of $%f could not be recorded for %r", self.cost_usd, self.claim.account.key
        )


in_forked_process(SpendUpkeep.forget_all)  # their loop is that of the parent
