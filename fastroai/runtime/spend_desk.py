"""Work of a process for a store of spending, besides requests: renewing leases, and settling."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar
from weakref import WeakValueDictionary

from fastroai.errors import SpendStoreUnavailable
from fastroai.forks import in_forked_process
from fastroai.records import EXACT, exact_sum
from fastroai.runtime.ledger import equal_part
from fastroai.runtime.owner import is_dead
from fastroai.runtime.sync import in_background
from fastroai.runtime.turnstile import Turnstile

if TYPE_CHECKING:
    from fastroai.runtime.in_flight import Payer
    from fastroai.usage import SpendAccount, SpendBalance, SpendClaim, SpendStore

T = TypeVar("T")

logger = logging.getLogger("fastroai.runtime")

RENEWALS_PER_LEASE: Final = 3
_SECONDS_AT_EXIT: Final = 5.0
_FIRST_RETRY: Final = 0.1
_LONGEST_RETRY: Final = 2.0
"""Seconds between attempts to settle with a store that is unavailable."""


class LeaseHolder(Protocol):
    """Somebody with a claim in a store."""

    claim: SpendClaim

    @property
    def may_end(self) -> bool:
        """Whether its request will end by itself."""
        ...

    @property
    def is_renewed(self) -> bool:
        """Whether its lease goes on; otherwise it is left to end."""
        ...


class SpendCounter:
    """The requests of one process that draw on one account of a store."""

    def __init__(self) -> None:
        self.turnstile = Turnstile()
        """What lets them ask one after the other."""
        self.arrivals = 0
        """Those that have come so far."""
        self._contenders = 0
        """Those that are on their way to the turnstile, wait for their turn, or are in flight."""
        self._reserved_usd = Decimal(0)
        """US dollars that they have reserved."""
        self._lock = threading.Lock()

    def come(self) -> None:
        """Count a request that is about to ask, so that what others are offered leaves something for it."""
        with self._lock:
            self.arrivals += 1
            self._contenders += 1

    def leave(self, reserved_usd: Decimal) -> None:
        """Count a request no more that had reserved so much."""
        with self._lock:
            self._contenders -= 1
            self._reserved_usd = EXACT.subtract(self._reserved_usd, reserved_usd)

    def change(self, before_usd: Decimal, now_usd: Decimal) -> None:
        """Note what a request has reserved now, and had before."""
        with self._lock:
            self._reserved_usd = EXACT.add(EXACT.subtract(self._reserved_usd, before_usd), now_usd)

    def offer(self, left_usd: Decimal, own_usd: Decimal) -> Decimal:
        """US dollars that one of the requests may take, if so much is left and it has reserved `own_usd`."""
        with self._lock:
            others_usd = EXACT.subtract(self._reserved_usd, own_usd)
            return equal_part(EXACT.add(left_usd, own_usd), others_usd, max(self._contenders, 1))


class SpendDesk:
    """The work of one process for one store, on the background loop.

    Not on the loop of the request, which may be blocked, cancelled or closed.
    """

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _desks: ClassVar[WeakValueDictionary[SpendStore, SpendDesk]] = WeakValueDictionary()

    @classmethod
    def of(cls, store: SpendStore) -> SpendDesk:
        """The desk for a store, while there is anything to do."""
        with cls._lock:
            desk = cls._desks.get(store)
            if desk is None:
                desk = cls._desks[store] = SpendDesk(store)
            return desk

    @classmethod
    def forget_all(cls) -> None:
        """Start anew, in a process that was forked."""
        cls._lock = threading.Lock()
        cls._desks = WeakValueDictionary()

    def __init__(self, store: SpendStore) -> None:
        self.store = store
        self._live: dict[LeaseHolder, float] = {}
        """With the time at which the lease was last renewed, at the latest."""
        self._counters: WeakValueDictionary[SpendAccount, SpendCounter] = WeakValueDictionary()
        self._renewing: set[float] = set()
        self._unsettled: deque[_Ending] = deque()
        """What the store could not be told. While there is anything, settling waits for its turn here."""
        self._unbooked: dict[SpendAccount, Decimal] = {}
        """US dollars that were charged and are on their way to the store."""

    def counter(self, account: SpendAccount) -> SpendCounter:
        """Where the requests of this process ask for an account."""
        with self._lock:
            return self._counters.setdefault(account, SpendCounter())

    # --- leases ---

    def add(self, holder: LeaseHolder) -> None:
        """Keep its lease from ending, from now on."""
        lease = holder.claim.lease
        with self._lock:
            self._live[holder] = monotonic()
            if lease in self._renewing:
                return
            self._renewing.add(lease)
        in_background(self._renew_leases(lease), _renewals)

    def remove(self, holder: LeaseHolder) -> None:
        """Let its lease end."""
        with self._lock:
            self._live.pop(holder, None)

    def move(self, payer: Payer, usd: Decimal) -> None:
        """Give US dollars back to a claim that others draw on; a negative amount takes them."""
        with self._lock:
            left_usd = EXACT.add(payer.claim.amount_usd, usd)
            payer.claim = replace(payer.claim, amount_usd=left_usd)

    def held_up(self, account: SpendAccount) -> Decimal:
        """US dollars reserved by requests of this process of which there is no telling when they end.

        Once their leases have ended, which nobody renews, they are spent, and reserved no more.
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
        """End the leases of processes that are known to be dead. Returns whether there are any."""
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

    # --- endings ---

    def settle(self, claim: SpendClaim, cost_usd: Decimal) -> concurrent.futures.Future[SpendBalance | None]:
        """Settle in the background. The future is done when that was tried once; then it is tried again."""
        return in_background(self._settle(_Ending(claim, cost_usd)), _endings)

    def charge(self, claim: SpendClaim, cost_usd: Decimal) -> concurrent.futures.Future[SpendBalance | None]:
        """Count what was spent without being reserved, in the background. Done as `settle` is."""
        self._add_unbooked(claim.account, cost_usd)
        ending = in_background(self._settle(_Ending(claim, cost_usd, is_known=False)), _endings)
        ending.add_done_callback(lambda _: self._add_unbooked(claim.account, -cost_usd))
        return ending

    def unbooked(self, account: SpendAccount) -> Decimal:
        """US dollars that this process has charged, and that are not in the books yet."""
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
                log = logger.warning if ending.cost_usd else logger.debug  # nothing to be paid: leases end
                log("$%f of %r is not settled yet: %s", ending.cost_usd, ending.key, error.reason)
            except Exception:  # of a store of the user's own, and often nobody waits for the future
                ending.log_error()
                raise
        ending.claim = replace(ending.claim, warn_at=())  # who would tell is gone by then; others will
        self._unsettled.append(ending)
        if len(self._unsettled) == 1:
            in_background(self._settle_late(), _endings)
        return None

    async def _tell(self, ending: _Ending) -> SpendBalance:
        if not ending.is_known:
            await self.store.reserve(ending.claim)  # granted or in line, it can be settled
            ending.is_known = True
        return await self.store.settle(ending.claim, ending.cost_usd)

    async def _settle_late(self) -> None:
        """Try again, one at a time, each for as long as its lease; then the store counts the bound it has."""
        pause = _FIRST_RETRY
        while self._unsettled:
            await asyncio.sleep(pause)
            if await self._settle_first():
                pause = 0.0
            else:
                pause = min(max(pause * 2, _FIRST_RETRY), _LONGEST_RETRY)
                self._give_up_late()

    async def _settle_first(self) -> bool:
        """Try the one that was not tried for longest. False if the store is unavailable."""
        first = self._unsettled[0]
        try:
            await self._tell(first)
        except SpendStoreUnavailable:
            self._unsettled.rotate(-1)
            return False
        except Exception:  # of a store of the user's own, which must not keep the others from being settled
            first.log_error()
        self._unsettled.popleft()
        return True

    def _give_up_late(self) -> None:
        for ending in [each for each in self._unsettled if each.until <= monotonic()]:
            self._unsettled.remove(ending)
            log = logger.error if ending.cost_usd else logger.debug
            log(
                "$%f of %r could not be settled; the store counts the bound of $%f once the lease has ended",
                ending.cost_usd,
                ending.key,
                ending.claim.amount_usd,
            )


@dataclass(eq=False)
class _Ending:
    """What a store is to be told of a claim at its end."""

    claim: SpendClaim
    cost_usd: Decimal
    is_known: bool = True
    """Whether the store has the claim."""

    def __post_init__(self) -> None:
        self.until = monotonic() + self.claim.lease
        """When to give up, if the store stays unavailable."""

    @property
    def key(self) -> str:
        """Whose spending it is."""
        return self.claim.account.key

    def log_error(self) -> None:
        """Log the error that is being handled, with which the store refused to settle."""
        logger.exception("$%f of %r could not be settled", self.cost_usd, self.key)


_renewals: Final[set[concurrent.futures.Future[None]]] = set()
_endings: Final[set[concurrent.futures.Future[Any]]] = set()
"""Work of the background loop."""


@atexit.register
def _finish() -> None:
    """Let endings reach their stores before the process ends."""
    concurrent.futures.wait(list(_endings), timeout=_SECONDS_AT_EXIT)


def _after_fork() -> None:
    """What the parent has to do is not ours, and its loop is not here."""
    _renewals.clear()
    _endings.clear()
    SpendDesk.forget_all()


in_forked_process(_after_fork)
