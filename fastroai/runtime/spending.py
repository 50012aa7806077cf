"""Reservations and charges under `SpendLimit`s, which runs and processes share through a store."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from concurrent.futures import Future
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal

from fastroai.errors import SpendLimitExceeded, SpendStoreUnavailable
from fastroai.records import EXACT, Unbounded, ratio, usd_to_microcents
from fastroai.runtime.events import BudgetWarning
from fastroai.runtime.owner import process_owner
from fastroai.runtime.spend_desk import SpendDesk
from fastroai.runtime.wakeup import result_of
from fastroai.usage import SpendBalance, SpendClaim
from fastroai.usage.spend_amounts import spend_units, spend_usd

if TYPE_CHECKING:
    from fastroai.records import RequestRecord
    from fastroai.runtime.in_flight import Payer
    from fastroai.runtime.ledger import Hold
    from fastroai.runtime.scope import Scope
    from fastroai.usage import SpendAccount, SpendLimit, SpendVerdict
    from fastroai.usage.limits import Ceiling

logger = logging.getLogger("fastroai.runtime")

TOLD_AFTER: Final = 1.0
"""Seconds that a request waits for a budget or a spend limit before listeners are told."""
FIRST_POLL: Final = 0.01
LONGEST_POLL: Final = 0.25
"""Seconds between two questions to a store while reservations of others stand in the way."""

_ZERO: Final = Decimal(0)


def in_force(coded_usd: Decimal, balance: SpendBalance) -> Decimal:
    """Return the limit that applies, in US dollars: the one set by hand for the window, else that in code."""
    return coded_usd if balance.limit_usd is None else balance.limit_usd


def is_over(coded_usd: Decimal, balance: SpendBalance) -> bool:
    """Return whether more is spent than the limit allows."""
    return balance.spent_usd > in_force(coded_usd, balance)


def allow(ceiling: Ceiling, error: SpendStoreUnavailable) -> None:
    """Go on without the store of a limit, if the limit allows for that; else raise `error`."""
    if any(limit.on_unavailable == "refuse" for limit in ceiling.limits):
        raise error
    logger.warning("spend limit %r is not kept: %s", ceiling.account.key, error.reason)


def limit_stop(
    account: SpendAccount, scope: Scope, coded_usd: Decimal, balance: SpendBalance, requested: int | None
) -> SpendLimitExceeded:
    """Return the error of a limit that cannot pay the requested microcents, or is crossed if it is `None`."""
    error = SpendLimitExceeded(
        usd_to_microcents(in_force(coded_usd, balance)),
        usd_to_microcents(balance.spent_usd),
        scope.step_id,
        requested,
        scope.root.path,
    )
    error.key, error.window = account.key, account.window
    error.resets_at = balance.resets_at
    error.reserved = usd_to_microcents(balance.reserved_usd)
    return error


def note_warnings(scope: Scope, claim: SpendClaim, balance: SpendBalance) -> None:
    """Warn listeners of the reached shares of a limit that the store left to this claim to tell."""
    limit_usd = in_force(claim.limit_usd, balance)
    for threshold in sorted(balance.reached):
        scope.note(
            BudgetWarning(
                part=scope.part,
                scope_path=scope.path,
                share=ratio(balance.spent_usd, limit_usd),
                threshold=threshold,
                limit_usd=limit_usd,
                coded_usd=None if balance.limit_usd in (None, claim.limit_usd) else claim.limit_usd,
                key=claim.account.key,
                window=claim.account.window,
            )
        )


def _payer(scope: Scope, ceiling: Ceiling) -> Payer | None:
    """Return the payer of a limit: the money that the innermost run around the scope has set aside of it."""
    payers = (each.payer_at(ceiling) for each in scope.reserves)
    return next((payer for payer in payers if payer is not None), None)


def _new_claim(ceiling: Ceiling, coded_usd: Decimal, payer: Payer | None) -> SpendClaim:
    limit = ceiling.limit
    return SpendClaim(
        id=uuid.uuid4().hex,
        account=ceiling.account,
        amount_usd=_ZERO,
        limit_usd=coded_usd,
        lease=limit.lease,
        holder=process_owner(),
        keep=limit.keep,
        within="" if payer is None else payer.claim.id,
    )


def _telling(scope: Scope, limit: SpendLimit, claim: SpendClaim) -> SpendClaim:
    """Return the claim, with the shares to warn of if the scope has a listener; else other claims warn."""
    return claim if scope.listener is None else replace(claim, warn_at=limit.warn_at)


class SharedCharge:
    """Spending that nobody reserved, on its way into the store of one spend limit."""

    def __init__(self, scope: Scope, ceiling: Ceiling, cost_usd: Decimal) -> None:
        """Start to charge the cost in the background."""
        self.ceiling, self.limit, self._scope, self._is_noted = ceiling, ceiling.limit, scope, False
        payer = _payer(scope, ceiling)
        claim = _new_claim(ceiling, ceiling.known_usd, payer)
        self._claim = _telling(scope, ceiling.limit, claim)
        if payer is not None:
            self._claim = replace(self._claim, amount_usd=cost_usd)
        self._desk = SpendDesk.of(ceiling.limit.store)
        self._ending = self._desk.charge(self._claim, cost_usd)

    @property
    def is_done(self) -> bool:
        """Whether the store has the charge, or the first attempt to charge has failed."""
        return self._ending.done()

    async def wait(self) -> None:
        """Wait until the store has the charge, or the first attempt to charge has failed."""
        await result_of(self._ending)

    def note_warnings(self) -> None:
        """Warn listeners, once, of the shares that this charge was the first to reach. It must be done."""
        if not self._is_noted and (balance := self._ending.result()) is not None:
            note_warnings(self._scope, self._claim, balance)
            if is_over(self._claim.limit_usd, balance):
                self._scope.unsure.add(self.ceiling.place)
        self._is_noted = True

    def stop(self) -> SpendLimitExceeded | None:
        """Return the error of the limit if its store says that it is crossed, else `None`."""
        balance = self._ending.result() if self.is_done else None
        if balance is None:
            return None
        return _recorded_stop(self._claim.account, self._scope, self._claim.limit_usd, balance)


def _recorded_stop(
    account: SpendAccount, scope: Scope, coded_usd: Decimal, balance: SpendBalance
) -> SpendLimitExceeded | None:
    if not is_over(coded_usd, balance):
        return None
    stop = limit_stop(account, scope, coded_usd, balance, requested=None)
    stop.stopped = "recorded"
    return stop


def unbooked_stop(scope: Scope) -> SpendLimitExceeded | None:
    """Return the error of a limit that is crossed by the charges of this process on their way to the store.

    So code that records in a tight loop need not wait for the store.
    """
    for ceiling in scope.ceilings:
        spent_usd = SpendDesk.of(ceiling.limit.store).unbooked(ceiling.account)
        balance = SpendBalance(spent_usd=spent_usd, reserved_usd=_ZERO, now=datetime.now(UTC), resets_at=None)
        if (stop := _recorded_stop(ceiling.account, scope, ceiling.known_usd, balance)) is not None:
            return stop
    return None


def charge_shared(scope: Scope, record: RequestRecord) -> list[SharedCharge]:
    """Charge the known cost of spending that nobody reserved to the spend limits above."""
    cost_usd = booked_usd(record, _ZERO)
    return [SharedCharge(scope, ceiling, cost_usd) for ceiling in scope.ceilings]


def booked_usd(record: RequestRecord, reserved_usd: Decimal) -> Decimal:
    """Return the US dollars that a limit counts for a record.

    Without a bound, that is the larger of the known cost and the reserved amount.
    """
    committed_usd = record.committed_usd
    if isinstance(committed_usd, Unbounded):
        return reserved_usd if record.cost_usd is None else max(reserved_usd, record.cost_usd)
    return committed_usd


class SharedReservation:
    """The reservation of one request or one run with one spend limit. It is ended once."""

    def __init__(self, ceiling: Ceiling, coded_usd: Decimal, hold: Hold, scope: Scope) -> None:
        self.ceiling, self.limit, self._hold, self._scope = ceiling, ceiling.limit, hold, scope
        self._payer = _payer(scope, ceiling)
        self.claim = _new_claim(ceiling, coded_usd, self._payer)
        self._desk = SpendDesk.of(self.limit.store)
        self._counter = self._desk.counter(self.claim.account)
        self._counter.come()
        self._state: Literal["unasked", "asked", "uncounted"] = "unasked"
        """`uncounted`: the store was unavailable, and the limit lets the request go out all the same."""
        self._turn: Future[None] | None = None
        """Its turn among the requests of this process; `None` inside of another request."""
        self._reserved_usd = _ZERO
        self._drawn_usd = _ZERO
        """US dollars that the request draws from the claim of a run around it."""

    @property
    def may_end(self) -> bool:
        """Whether the request will end by itself."""
        return self._hold.may_end and not self._hold.shared_dependents

    @property
    def is_renewed(self) -> bool:
        """Whether to renew the lease. That of a run is not renewed while its requests wait for more money."""
        return not self._hold.shared_dependents if self._hold.run is not None else self.may_end

    @asynccontextmanager
    async def turn(self, *, inside: bool) -> AsyncIterator[None]:
        """Wait for the turn among the requests of this process, and keep it until granted or refused.

        A request made `inside` of another one does not wait here, because requests before it may be waiting
        for the end of that other one.

        Raises:
            SpendStoreUnavailable: the request that had the turn found the store unavailable, and the limit
                does not allow for that.
        """
        async with AsyncExitStack() as held:
            if not inside:
                try:
                    self._turn = await held.enter_async_context(self._counter.turnstile.turn())
                except SpendStoreUnavailable as found:
                    error = _again(found)
                    error.__cause__ = found
                    self._go_uncounted(error)
            yield

    async def acquire(
        self,
        amount_usd: Decimal,
        fitting: Callable[[SpendBalance], Decimal] | None,
        on_wait: Callable[[SpendBalance, Collection[str]], Awaitable[None]],
        waiting: AbstractContextManager[None],
        *,
        waits_for_others: bool = True,
    ) -> SpendBalance | None:
        """Reserve US dollars. Wait while reservations of others stand in the way, or only for the turn.

        With `fitting`, the request may take less, so that something is left for others: the function returns
        the amount to ask for under a balance, `amount_usd` at most. Its last call is for the amount that is
        reserved in the end.

        The context manager `waiting` is entered once there is too little money. After a second, `on_wait` is
        called once with the balance and the holders of the other reservations.

        Returns:
            `None` once the amount is reserved; the balance, if there is nobody to wait for.

        Raises:
            SpendStoreUnavailable: the store is unavailable, and the limit does not allow for that.
        """
        self.claim = replace(self.claim, amount_usd=amount_usd)
        if self._state == "uncounted":
            return None
        self._state = "asked"
        self._desk.add(self)
        with ExitStack() as line:
            pause, told_at, is_waiting = FIRST_POLL, monotonic() + TOLD_AFTER, False
            while True:
                try:
                    verdict = await self._reserve()
                    asked_usd = self.claim.amount_usd
                    is_enough = verdict.granted and (asked_usd < amount_usd or bool(self._drawn_usd))
                    if fitting is not None and not is_enough:
                        self.claim = replace(self.claim, amount_usd=fitting(verdict.balance))
                    if verdict.first and self.claim.amount_usd < asked_usd:
                        continue
                    if verdict.granted:
                        return None
                    if not is_waiting:
                        line.enter_context(waiting)
                        is_waiting = True
                    if await self._desk.end_leases_of_dead(self.claim.account, verdict.holders):
                        pause = FIRST_POLL
                    elif verdict.first and not (waits_for_others and self._others_end(verdict.balance)):
                        return verdict.balance
                except SpendStoreUnavailable as error:
                    if self._turn is not None:
                        self._turn.set_exception(_again(error))
                    self._desk.remove(self)
                    self._go_uncounted(error)
                    self._desk.settle(self.claim, _ZERO)  # the store may have the claim all the same
                    return None
                if monotonic() >= told_at:
                    told_at = inf
                    await on_wait(verdict.balance, verdict.holders)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_POLL)

    def _others_end(self, balance: SpendBalance) -> bool:
        """Return whether a part of the reserved money will become free by itself."""
        return balance.reserved_usd > self._desk.held_up(self.claim.account)

    async def _reserve(self) -> SpendVerdict:
        verdict = await self._desk.store.reserve(self.claim)
        if self._payer is not None:
            drawn_usd = self.claim.amount_usd if verdict.granted and not verdict.first else _ZERO
            self._desk.move(self._payer, EXACT.subtract(self._drawn_usd, drawn_usd))
            self._drawn_usd = drawn_usd
        before, self._reserved_usd = self._reserved_usd, self.claim.amount_usd if verdict.granted else _ZERO
        self._counter.change(before, self._reserved_usd)
        return verdict

    async def mark_sent(self) -> bool:
        """Note that the request goes out now. Returns False if its lease has ended: then acquire it again."""
        if self._state == "uncounted":
            return True
        try:
            return await self._desk.store.mark_sent(self.claim)
        except SpendStoreUnavailable as error:
            allow(self.ceiling, error)
            return True  # reserved already, and counted if the store is back when the answer comes

    def end(self, record: RequestRecord | None) -> Future[SpendBalance | None] | None:
        """End the reservation, and charge the amount of `booked_usd`, or 0 without a record.

        The store is told in the background; the future is done after the first attempt.
        """
        self._desk.remove(self)
        self._counter.leave(self._reserved_usd)
        charged = _ZERO if record is None else booked_usd(record, self.claim.amount_usd)
        if self._payer is not None:
            drawn_usd = min(self._drawn_usd, self.claim.amount_usd)  # less if a run has spent a part of it
            self._desk.move(self._payer, max(_ZERO, EXACT.subtract(drawn_usd, charged)))
        if self._state != "asked":
            return None
        # Without a record, nobody waits for the end of the claim, so this claim cannot warn.
        ending = self.claim if record is None else _telling(self._scope, self.limit, self.claim)
        return self._desk.settle(ending, charged)

    @property
    def arrivals(self) -> int:
        """Number of requests of this process that have come to draw on the account so far."""
        return self._counter.arrivals

    def offer(self, balance: SpendBalance) -> Decimal:
        """Return the US dollars that a flexible request may take under this balance."""
        return self._counter.offer(self.left_of(balance), self._reserved_usd)

    def left_of(self, balance: SpendBalance) -> Decimal:
        """Return the US dollars that the limit has left, in whole units of stores, so that claims fit."""
        used = spend_units(balance.spent_usd, "cost") + spend_units(balance.reserved_usd, "cost")
        return spend_usd(spend_units(in_force(self.claim.limit_usd, balance), "limit") - used)

    def _go_uncounted(self, error: SpendStoreUnavailable) -> None:
        allow(self.ceiling, error)
        self._state = "uncounted"


def _again(error: SpendStoreUnavailable) -> SpendStoreUnavailable:
    """Return the same error, as an object of its own for another request."""
    return SpendStoreUnavailable(error.store, error.reason, error.advice)
