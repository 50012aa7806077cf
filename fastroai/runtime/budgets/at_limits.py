"""The way of a request through the spend limits above it, one after the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from decimal import ROUND_CEILING, Decimal
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final, Generic

from fastroai.errors import BudgetExceeded, SpendLimitExceeded, SpendStoreUnavailable
from fastroai.records import usd_to_microcents
from fastroai.runtime.budgets.causes import explain
from fastroai.runtime.budgets.in_line import TOLD_AFTER, let_others_come
from fastroai.runtime.budgets.ledger import Hold
from fastroai.runtime.budgets.reservation import Reservation, holds_around
from fastroai.runtime.budgets.shared_reservation import SharedReservation, in_force, limit_stop
from fastroai.runtime.budgets.stops import MOST_NAMED, check, keep, place_on_record, tell_waited
from fastroai.runtime.budgets.terms import TermsT, usd_to_reserve
from fastroai.runtime.concurrency.wakeup import result_of
from fastroai.runtime.events import BudgetWaiting
from fastroai.runtime.scope import Scope
from fastroai.usage.money import format_cost

if TYPE_CHECKING:
    from fastroai.usage import SpendBalance, SpendVerdict
    from fastroai.usage.limits import Ceiling

logger = logging.getLogger("fastroai.runtime")

FIRST_POLL: Final = 0.01
LONGEST_POLL: Final = 0.25
"""Seconds between two questions to a store while reservations of others stand in the way."""


async def share(reservation: Reservation[TermsT]) -> None:
    """Reserve with the spend limits above, one after the other, and mark the request as sent in each store.

    Raises:
        SpendLimitExceeded: a limit cannot pay, not even for a shorter answer.
        SpendStoreUnavailable: a store cannot be reached.
    """
    outer = holds_around(reservation.scope)
    while not await _reserve(reservation, outer):
        # A lease has ended. Asking for it again while holding the others would break the order of the limits.
        endings = [shared.end(None) for shared in reservation.shared]
        reservation.shared = []
        for ending in endings:
            if ending is not None:
                await result_of(ending)


async def _reserve(reservation: Reservation[TermsT], outer: tuple[Hold, ...]) -> bool:
    """Reserve from inside of requests with the holds `outer`. Return False if a lease ended meanwhile."""
    scope, terms = reservation.scope, reservation.terms
    for ceiling in scope.bounds.ceilings:
        for limit in ceiling.limits:
            check(terms, limit, counts_money=True, counts_tokens=False)
    amounts = [await ceiling.usd() for ceiling in scope.bounds.ceilings]
    asking = [AtLimit(reservation, *each) for each in zip(scope.bounds.ceilings, amounts, strict=True)]
    reservation.shared = [each.shared for each in asking]
    if terms.is_flexible:
        await let_others_come(lambda: sum(each.shared.arrivals for each in asking))
    for each in asking:
        await each.take(outer)
    if terms.asks_for == "run":
        return True  # a run is not sent: if its process dies, money on which no request drew becomes free
    for each in asking:
        if not await each.shared.mark_sent():
            return False
    return True


class AtLimit(Generic[TermsT]):
    """The question of one request or one run to one spend limit."""

    def __init__(self, reservation: Reservation[TermsT], ceiling: Ceiling, coded_usd: Decimal) -> None:
        self.shared = SharedReservation(ceiling, coded_usd, reservation.counted_hold, reservation.scope)
        self._reservation, self._scope, self._ceiling = reservation, reservation.scope, ceiling
        self._whole = self._terms = reservation.terms
        self._short: BudgetExceeded | None = None

    async def take(self, outer: tuple[Hold, ...]) -> None:
        """Wait until the limit can pay. Raises `SpendLimitExceeded` if it never will."""
        self._whole = self._terms = self._reservation.terms
        with self._scope.time.in_line():
            async with self.shared.turn(inside=bool(outer)):
                await self._take(outer)
        if self._short is not None:
            self._reservation.short_of = self.shared
            self._reservation.lower(self._terms, self._short)

    async def _take(self, outer: tuple[Hold, ...]) -> None:
        may_share = self._whole.is_flexible and self._least is None
        while (balance := await self._acquire(outer, may_share)) is not None:
            counted = await self._whole.counted_by_provider()
            if counted is not self._whole:
                self._whole = self._terms = counted
                self._reservation.take_instead(counted)
                may_share = counted.is_flexible and self._least is None
                continue
            self._short, may_share = self._refusal(balance), False
            lowered = self._lowered(self.shared.left_of(balance))
            if lowered is None:
                explain(self._short, self._whole)
                raise self._short
            self._terms = lowered

    async def _acquire(self, outer: tuple[Hold, ...], may_share: bool) -> SpendBalance | None:
        """Reserve the money. Return the balance if there is too little, and nobody to wait for.

        A request that `may_share` takes less if its part is smaller, so that something is left for others.
        """
        shared, whole_usd = self.shared, usd_to_reserve(self._terms)
        asks_usd, pause, tell_at, began = whole_usd, FIRST_POLL, 0.0, monotonic()
        with ExitStack() as line:
            while shared.is_counted:
                try:
                    asked_usd, verdict = asks_usd, await shared.ask(asks_usd)
                    is_enough = verdict.granted and (asked_usd < whole_usd or bool(shared.drawn_usd))
                    if may_share and not is_enough:
                        asks_usd = self._fit(verdict.balance)
                    if verdict.first and asks_usd < asked_usd:
                        continue
                    if verdict.granted:
                        return None
                    if not tell_at:
                        line.enter_context(sharing_inside(self._scope, outer))
                        tell_at = monotonic() + TOLD_AFTER
                    if await shared.upkeep.end_leases_of_dead(shared.claim.account, verdict.holders):
                        pause = FIRST_POLL
                    elif verdict.first and not (
                        self._whole.waits_for_others and shared.others_end(verdict.balance)
                    ):
                        return verdict.balance
                except SpendStoreUnavailable as error:
                    shared.give_up(error)
                    return None
                if monotonic() >= tell_at:
                    tell_at = inf
                    waits_for = await self._tell_of_waiting(verdict)
                    line.callback(tell_waited, self._scope, waits_for, began)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_POLL)
        return None

    def _fit(self, balance: SpendBalance) -> Decimal:
        """Return the US dollars to ask for if the limit has this balance."""
        self._terms = self._whole.sharing(usd=self.shared.offer(balance), tokens=None)
        self._short = None if self._terms is self._whole else self._refusal(balance)
        return usd_to_reserve(self._terms)

    def _refusal(self, balance: SpendBalance) -> SpendLimitExceeded:
        claim = self.shared.claim
        requested = usd_to_microcents(usd_to_reserve(self._whole), ROUND_CEILING)
        asks_for = self._whole.asks_for
        refusal = limit_stop(claim.account, self._scope, claim.limit_usd, balance, asks_for, requested)
        refusal.why = self._whole.bound.why
        refusal.may_wait = self._ceiling.waits and self._fits_into(claim.limit_usd)
        refusal.deadline = self._ceiling.deadline
        return refusal

    @property
    def _least(self) -> TermsT | None:
        """The shortest request that is sent rather than waits for the next window; `None` for any.

        A run fails if an answer is cut that is not asked for again, so such an answer must be long enough.
        """
        whole, limit_usd = self._whole, self.shared.claim.limit_usd
        if not self._ceiling.waits or whole.is_asked_again:
            return None
        least = whole if whole.enough is None else whole.shortened(whole.enough)
        return least if usd_to_reserve(least) <= limit_usd else None

    def _fits_into(self, limit_usd: Decimal) -> bool:
        """Return whether a window from which nothing is spent can pay for the request."""
        return usd_to_reserve(self._whole) <= limit_usd or self._lowered(limit_usd) is not None

    def _lowered(self, usd: Decimal) -> TermsT | None:
        """Return the request as US dollars pay for it; `None` if they do not pay for the least of it."""
        least = self._least
        too_little = least is not None and usd_to_reserve(least) > usd
        return None if too_little else self._whole.lowered(usd=usd, tokens=None)

    async def _tell_of_waiting(self, verdict: SpendVerdict) -> str:
        """Say for what the request waits, and return that."""
        claim, balance = self.shared.claim, verdict.balance
        left_usd = max(self.shared.left_of(balance), Decimal(0))  # negative if the limit was lowered by hand
        amounts = usd_to_reserve(self._terms), in_force(claim.limit_usd, balance), left_usd
        needs, limit, left = map(format_cost, amounts)
        waiting = BudgetWaiting(
            part=self._scope.part,
            place=place_on_record(self._scope),
            scope_path=self._scope.root.path,
            waits_for=f"{needs} of spend limit {claim.account.key!r} of {limit}, of which {left} is "
            "neither spent nor reserved",
            held_by=tuple(f"process {holder}" for holder in sorted(verdict.holders)[:MOST_NAMED]),
            advice="set max_tokens for the agent, or raise the spend limit",
        )
        logger.warning("a request waits for %s", waiting)
        keep(self._scope, waiting)
        await self._scope.emit(waiting)
        return waiting.waits_for


@contextmanager
def sharing_inside(scope: Scope, outer: Iterable[Hold]) -> Iterator[None]:
    """Mark the requests around a request that waits for a spend limit: they cannot end before it."""
    with scope.tree.lock:
        for hold in outer:
            hold.shared_dependents += 1
    try:
        yield
    finally:
        with scope.tree.lock:
            for hold in outer:
                hold.shared_dependents -= 1
