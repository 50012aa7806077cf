"""Reservations and charges under `SpendLimit`s, which runs and processes share through a store."""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from fastroai import usage
from fastroai.errors import SpendLimitExceeded, SpendStoreUnavailable
from fastroai.records import EXACT, Unbounded, ratio, usd_to_microcents
from fastroai.runtime.budgets.spend_upkeep import SpendUpkeep
from fastroai.runtime.concurrency.turnstile import Turn
from fastroai.runtime.concurrency.wakeup import result_of
from fastroai.runtime.events import BudgetWarning
from fastroai.runtime.owner import process_owner
from fastroai.usage.shared.spend_amounts import spend_units, spend_usd

if TYPE_CHECKING:
    from fastroai.records import RequestRecord
    from fastroai.runtime.budgets.in_flight import Payer
    from fastroai.runtime.budgets.ledger import Hold
    from fastroai.runtime.scope import Scope
    from fastroai.usage import SpendAccount, SpendBalance, SpendClaim, SpendLimit, SpendVerdict
    from fastroai.usage.limits import Ceiling

logger = logging.getLogger("fastroai.runtime")

Stopped: TypeAlias = Literal["request", "spend", "run", "step", "recorded"]
"""The thing that a limit has stopped: see `BudgetExceeded.stopped`."""

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
    account: SpendAccount,
    scope: Scope,
    coded_usd: Decimal,
    balance: SpendBalance,
    stopped: Stopped,
    requested: int | None = None,
) -> SpendLimitExceeded:
    """Return the error of a limit that cannot pay the requested microcents, or is crossed if it is `None`."""
    error = SpendLimitExceeded(
        usd_to_microcents(in_force(coded_usd, balance)),
        usd_to_microcents(balance.spent_usd),
        scope.step_id,
        requested,
        scope.root.path,
    )
    error.key, error.window, error.stopped = account.key, account.window, stopped
    error.resets_at = balance.resets_at
    error.resets_in = None if balance.resets_at is None else balance.resets_at - balance.now
    error.reserved = usd_to_microcents(balance.reserved_usd)
    return error


def note_settled(scope: Scope, ceiling: Ceiling, claim: SpendClaim, balance: SpendBalance) -> None:
    """Note whether a limit is crossed, and warn of the shares that the store left to this claim to tell."""
    limit_usd = in_force(claim.limit_usd, balance)
    if is_over(claim.limit_usd, balance):
        scope.tree.unsure.add(ceiling.place)
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
    payers = (each.payer_at(ceiling) for each in scope.bounds.reserves)
    return next((payer for payer in payers if payer is not None), None)


def _new_claim(ceiling: Ceiling, coded_usd: Decimal, payer: Payer | None) -> SpendClaim:
    limit = ceiling.limit
    return usage.SpendClaim(
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
        self._ceiling, self._scope, self._is_noted = ceiling, scope, False
        payer = _payer(scope, ceiling)
        claim = _new_claim(ceiling, ceiling.known_usd, payer)
        self._claim = _telling(scope, ceiling.limit, claim)
        if payer is not None:
            self._claim = replace(self._claim, amount_usd=cost_usd)
        self._upkeep = SpendUpkeep.of(ceiling.limit.store)
        self._ending = self._upkeep.charge(self._claim, cost_usd)

    @property
    def is_done(self) -> bool:
        """Whether the store has the charge, or the first attempt to charge has failed."""
        return self._ending.done()

    async def wait(self) -> None:
        """Wait until the store has the charge, or the first attempt to charge has failed."""
        await result_of(self._ending)

    def note_settled(self) -> SpendLimitExceeded | None:
        """Warn listeners, once, of the shares that this charge was the first to reach. It must be done.

        Return the error of the limit if its store says that it is crossed, else `None`.
        """
        if (balance := self._ending.result()) is None:
            return None
        if not self._is_noted:
            note_settled(self._scope, self._ceiling, self._claim, balance)
        self._is_noted = True
        return crossed_stop(self._ceiling, self._scope, self._claim.limit_usd, balance, "recorded")


def crossed_stop(
    ceiling: Ceiling, scope: Scope, coded_usd: Decimal, balance: SpendBalance, stopped: Stopped
) -> SpendLimitExceeded | None:
    """Return the error of a limit if it is crossed, else `None`."""
    if not is_over(coded_usd, balance):
        return None
    return limit_stop(ceiling.account, scope, coded_usd, balance, stopped)


def unbooked_stop(scope: Scope) -> SpendLimitExceeded | None:
    """Return the error of a limit that is crossed by the charges of this process on their way to the store.

    So code that records in a tight loop need not wait for the store.
    """
    for ceiling in scope.bounds.ceilings:
        spent_usd = SpendUpkeep.of(ceiling.limit.store).unbooked(ceiling.account)
        balance = usage.SpendBalance(
            spent_usd=spent_usd, reserved_usd=_ZERO, now=datetime.now(UTC), resets_at=None
        )
        if (stop := crossed_stop(ceiling, scope, ceiling.known_usd, balance, "recorded")) is not None:
            return stop
    return None


def charge_shared(scope: Scope, record: RequestRecord) -> list[SharedCharge]:
    """Charge the known cost of spending that nobody reserved to the spend limits above."""
    cost_usd = booked_usd(record, _ZERO)
    return [SharedCharge(scope, ceiling, cost_usd) for ceiling in scope.bounds.ceilings]


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
        self.upkeep = SpendUpkeep.of(self.limit.store)
        self._counter = self.upkeep.counter(self.claim.account)
        self._counter.come()
        self._state: Literal["unasked", "asked", "uncounted"] = "unasked"
        """`uncounted`: the store was unavailable, and the limit lets the request go out all the same."""
        self._turn: Turn | None = None
        """Its turn among the requests of this process; `None` inside of another request."""
        self._reserved_usd = _ZERO
        self.drawn_usd = _ZERO
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

    @property
    def is_counted(self) -> bool:
        """Whether the store counts the request: it is available, as far as is known."""
        return self._state != "uncounted"

    async def ask(self, amount_usd: Decimal) -> SpendVerdict:
        """Ask the store to reserve US dollars.

        Raises:
            SpendStoreUnavailable: the store is unavailable: see `give_up`.
        """
        self._state, self.claim = "asked", replace(self.claim, amount_usd=amount_usd)
        self.upkeep.add(self)
        verdict = await self.upkeep.store.reserve(self.claim)
        if self._payer is not None:
            drawn_usd = amount_usd if verdict.granted and not verdict.first else _ZERO
            self.upkeep.move(self._payer, EXACT.subtract(self.drawn_usd, drawn_usd))
            self.drawn_usd = drawn_usd
        before, self._reserved_usd = self._reserved_usd, amount_usd if verdict.granted else _ZERO
        self._counter.change(before, self._reserved_usd)
        return verdict

    def others_end(self, balance: SpendBalance) -> bool:
        """Return whether a part of the reserved money will become free by itself."""
        return balance.reserved_usd > self.upkeep.held_up(self.claim.account)

    def give_up(self, error: SpendStoreUnavailable) -> None:
        """Go on without the store, as do those who wait for a turn, if the limit allows for that.

        Raises:
            SpendStoreUnavailable: it does not.
        """
        if self._turn is not None:
            self._turn.set_exception(_again(error))
        self.upkeep.remove(self)
        self._go_uncounted(error)
        self.upkeep.settle(self.claim, _ZERO)  # the store may have the claim all the same

    async def mark_sent(self) -> bool:
        """Note that the request goes out now. Returns False if its lease has ended: then acquire it again."""
        if self._state == "uncounted":
            return True
        try:
            return await self.upkeep.store.mark_sent(self.claim)
        except SpendStoreUnavailable as error:
            allow(self.ceiling, error)
            return True  # reserved already, and counted if the store is back when the answer comes

    def end(self, record: RequestRecord | None) -> Future[SpendBalance | None] | None:
        """End the reservation, and charge the amount of `booked_usd`, or 0 without a record.

        The store is told in the background; the future is done after the first attempt.
        """
        self.upkeep.remove(self)
        self._counter.leave(self._reserved_usd)
        charged = _ZERO if record is None else booked_usd(record, self.claim.amount_usd)
        if self._payer is not None:
            drawn_usd = min(self.drawn_usd, self.claim.amount_usd)  # less if a run has spent a part of it
            self.upkeep.move(self._payer, max(_ZERO, EXACT.subtract(drawn_usd, charged)))
        if self._state != "asked":
            return None
        # Without a record, nobody waits for the end of the claim, so this claim cannot warn.
        ending = self.claim if record is None else _telling(self._scope, self.limit, self.claim)
        return self.upkeep.settle(ending, charged)

    def leave(self) -> None:
        """Leave the claim in the store. When its lease is over, it counts as spent until it is settled."""
        self.upkeep.remove(self)
        self._counter.leave(self._reserved_usd)

    def take_up(self, claim_id: str, amount_usd: Decimal) -> None:
        """Take up a claim that an earlier process has left, to settle it."""
        self.claim = replace(self.claim, id=claim_id, amount_usd=amount_usd)
        self._state = "asked"
        self.upkeep.add(self)

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
