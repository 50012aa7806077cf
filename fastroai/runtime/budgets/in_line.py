"""The way of a request through the line before the budgets of its run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final, Generic

from fastroai.errors import BudgetExceeded
from fastroai.runtime.budgets.causes import explain
from fastroai.runtime.budgets.ledger import Account, Amounts, Claim, Hold, Measure, Room, wake
from fastroai.runtime.budgets.reservation import Reservation, holds_around
from fastroai.runtime.budgets.stops import (
    ADVICE,
    MOST_NAMED,
    check_all,
    keep,
    place_on_record,
    refusal_of,
    tell_waited,
    worded,
)
from fastroai.runtime.budgets.terms import TermsT, amounts_of
from fastroai.runtime.concurrency.wakeup import Wakeup
from fastroai.runtime.events import BudgetWaiting
from fastroai.runtime.scope import Scope

logger = logging.getLogger("fastroai.runtime")


TOLD_AFTER: Final = 1.0
"""Seconds that a request waits for a budget or a spend limit before listeners are told."""
QUIET_TURNS: Final = 3
"""Turns of the event loop without a new request, after which requests that share a budget get their parts."""
MOST_TURNS: Final = 100
"""Turns of the event loop after which they get their parts, even if more requests come."""


class InLine(Generic[TermsT]):
    """One request in the line before the budgets of its run."""

    def __init__(self, scope: Scope, accounts: tuple[Account, ...], terms: TermsT) -> None:
        self.scope = scope
        self.terms = terms
        self.short: BudgetExceeded | None = None
        self.short_of: tuple[Account, Measure] | None = None
        self._told_of_waiting = False
        self._waits_for = ""
        self._whole = terms
        self._ledger = accounts[0].ledger
        around = tuple(hold for hold in holds_around(scope) if hold.ledger is self._ledger)
        self._claim = Claim(accounts, around, waits_for_others=terms.waits_for_others)

    @property
    def hold(self) -> Hold:
        """The hold that the budgets have granted."""
        assert self._claim.hold is not None
        return self._claim.hold

    async def take(self) -> None:
        """Wait for the request's turn and for money. Raises `BudgetExceeded` if there is never enough."""
        claim, began = self._claim, monotonic()
        with self.scope.tree.lock:
            self._ledger.expect(claim)
        try:
            await self._come()
            while claim.state != "granted":
                if claim.state == "waiting":
                    await self._news()
                elif not (self._count_again() or await self._have_counted() or self._step_down()):
                    self._lower_or_refuse()
        except BaseException as error:
            with self.scope.tree.lock:
                changed = self._ledger.leave(claim) if claim.hold is None else claim.hold.end()
            wake(changed)
            if isinstance(error, BudgetExceeded):
                explain(error, self._whole)
            raise
        finally:
            if self._waits_for:
                tell_waited(self.scope, self._waits_for, began)

    async def _come(self) -> None:
        """Ask the budgets, once the requests that come at the same time are counted, so that they share."""
        await self._whole.prepare_bound()
        if self._lacks_input:  # its provider may know more
            self.terms = self._whole = await self._whole.counted_by_provider()
        if self._whole.is_flexible:
            await let_others_come(lambda: self._ledger.arrivals)
        accounts = tuple(account for account in self._claim.accounts if not account.closed)
        for account in accounts:
            if (longest := account.budget.max_tokens_per_request) is not None:
                self.terms = self._whole = self._whole.shortened(longest)
        check_all(self._whole, accounts)
        with self.scope.tree.lock:
            changed = self._ledger.ask(self._claim, amounts_of(self._whole, accounts), self._fitting)
        wake(changed)

    @property
    def _fitting(self) -> Callable[[Room], Amounts] | None:
        changes = any(account.goes_by_expectations for account in self._claim.accounts)
        return self._fit if changes or self._whole.is_flexible else None

    def _fit(self, offer: Room) -> Amounts:
        """Return the amounts to ask for under this offer. The caller holds the lock."""
        accounts = self._claim.accounts
        self.terms = self._whole.sharing(usd=offer.usd, tokens=offer.tokens)
        self.short = self.short_of = None
        if self.terms is not self._whole:
            self.short_of = _stinting(accounts, amounts_of(self._whole, accounts))
            self.short = refusal_of(self.scope, self._whole, *self.short_of)
        return amounts_of(self.terms, accounts)

    async def _news(self) -> None:
        """Wait until others have changed the claim."""
        with self.scope.tree.lock:
            if self._claim.state != "waiting":
                return
            wakeup = Wakeup()
            self._claim.wake = wakeup.set
        with self.scope.time.in_line():
            if self._told_of_waiting or not await wakeup.wait_for(TOLD_AFTER):
                await self._tell_of_waiting()
                await wakeup.wait()

    async def _tell_of_waiting(self) -> None:
        """Say once which budget the request waits for, and which requests hold the money."""
        if self._told_of_waiting:
            return
        with self.scope.tree.lock:
            # A budget of the request alone holds nothing: the request does not wait for that.
            held = [one for one in self._claim.short() if one[0].is_reserved]
            waiting = None if not held else self._waiting_for(*held[0])
            is_news = bool(held) and not held[0][0].told_of_waiting
            if held:
                held[0][0].told_of_waiting = True
        if waiting is not None:
            self._told_of_waiting, self._waits_for = True, waiting.waits_for
            if is_news:
                logger.warning("requests wait for %s", waiting)
            keep(self.scope, waiting)
            await self.scope.emit(waiting)

    def _waiting_for(self, account: Account, measure: Measure) -> BudgetWaiting:
        held = [
            (account.reserved_for(each.hold.amounts), f"{' / '.join(each.scope.path)} ({each.terms.model})")
            for each in self.scope.root.spending.in_flight
            if isinstance(each, Reservation) and each.hold is not None and account in each.hold.accounts
        ]
        held += [
            (account.reserved_for(hold.amounts._replace(usd=hold.left_usd)), f"run {hold.run}")
            for hold in self._ledger.reserves
            if account in hold.accounts
        ]
        held.sort(key=lambda each: getattr(each[0], measure), reverse=True)
        asked = account.reserved_for(self._claim.amounts)
        needs, limit, left = (worded(measure, each) for each in (asked, account.budget, account.room))
        free = f"of which {left} is neither spent nor reserved"
        waits_for = f"{needs} of a budget of {limit}, {free}"
        if getattr(asked, measure) > getattr(account.budget, measure):  # it is lowered to what is left then
            waits_for = f"a part of a budget of {limit}, {free}, because a request can use up to {needs}"
        return BudgetWaiting(
            part=self.scope.part,
            place=place_on_record(self.scope),
            scope_path=account.path,
            waits_for=waits_for,
            held_by=tuple(f"{where}: {worded(measure, amounts)}" for amounts, where in held[:MOST_NAMED]),
            advice=ADVICE[measure],
        )

    @property
    def _lacks_input(self) -> bool:
        """Whether a budget needs a bound of the input, and only that is missing."""
        bound = self._whole.bound
        budgets = (account.budget for account in self._claim.accounts)
        return (
            bound.input_tokens is None
            and bound.output_tokens is not None
            and any(budget.usd is not None or budget.tokens is not None for budget in budgets)
        )

    def _count_again(self) -> bool:
        """Ask for less, if answers to other requests show that less is enough."""
        again = self._whole.counted_again()
        return again is not self._whole and self._ask_instead(again)

    async def _have_counted(self) -> bool:
        """Ask for less, if the provider counts the input for free, and says that less is enough."""
        counted = await self._whole.counted_by_provider()
        return counted is not self._whole and self._ask_instead(counted)

    def _step_down(self) -> bool:
        """Ask for a cheaper model, once, if a budget names one."""
        fallbacks = (account.budget.fallback for account in self._claim.accounts)
        fallback = next((fallback for fallback in fallbacks if fallback is not None), None)
        cheaper = self._whole if fallback is None else self._whole.stepped_down(fallback)
        if cheaper is self._whole:
            return False
        check_all(cheaper, self._claim.accounts)
        return self._ask_instead(cheaper)

    def _ask_instead(self, terms: TermsT) -> bool:
        with self.scope.tree.lock:
            if self._claim.state != "alone":
                return True  # there is room now, or somebody to wait for
            self.terms = self._whole = terms
            amounts = amounts_of(terms, self._claim.accounts)
            changed = self._ledger.amend(self._claim, amounts, self._fitting)
        wake(changed)
        return True

    def _lower_or_refuse(self) -> None:
        """Ask for the longest answer that the budgets can pay for. Raises `BudgetExceeded` for none."""
        with self.scope.tree.lock:
            if self._claim.state != "alone":
                return
            self.short_of = self._claim.short()[0]
            self.short = refusal_of(self.scope, self._whole, *self.short_of)
            self.terms = self._affordable(self.short)
            changed = self._ledger.amend(self._claim, amounts_of(self.terms, self._claim.accounts))
        wake(changed)

    def _affordable(self, refusal: BudgetExceeded) -> TermsT:
        room = self._claim.room
        if room.requests is not None and room.requests < self._claim.amounts.requests:
            raise refusal
        lowered = self._whole.lowered(usd=room.usd, tokens=room.tokens)
        if lowered is None:
            raise refusal
        return lowered


async def let_others_come(arrivals: Callable[[], int]) -> None:
    """Wait until no request has come for a few turns of the event loop, since tasks begin one by one.

    A callback counts the turns: to resume the task in each of them would run through all that awaits it.
    """
    loop = asyncio.get_running_loop()
    all_are_here = loop.create_future()
    turns, before = 0, arrivals()
    quiet = -1  # all requests count from the turn after the last one came, and so ask in order

    def turn() -> None:
        nonlocal turns, before, quiet
        now = arrivals()
        turns, quiet, before = turns + 1, quiet + 1 if now == before else 0, now
        if all_are_here.done():  # the request has been cancelled
            return
        if quiet == QUIET_TURNS or turns == MOST_TURNS:
            all_are_here.set_result(None)
        else:
            loop.call_soon(turn)

    loop.call_soon(turn)
    await all_are_here


def open_accounts(scope: Scope) -> tuple[Account, ...]:
    """Return the open accounts that limit a scope, innermost first."""
    return tuple(account for account in scope.bounds.accounts if not account.closed)


def _stinting(accounts: Iterable[Account], amounts: Amounts) -> tuple[Account, Measure]:
    """Return the innermost account that offers less than these amounts, and the measure that is short."""
    for account in accounts:
        offer = account.offer
        if offer.usd is not None and offer.usd < amounts.usd:
            return account, "usd"
        if offer.tokens is not None and offer.tokens < amounts.tokens:
            return account, "tokens"
    raise AssertionError(
        "a bug of FastroAI: a request was lowered, and no budget offers less than it wants; please report it"
    )
