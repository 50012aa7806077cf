"""Admission of requests under budgets and spend limits, and charges of spending that was not admitted.

Every provider request passes here once: `admit` before it is sent, then exactly one of `settle`, `release`
and `charge_unmeasured` of its reservation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from itertools import chain
from typing import Final

from fastroai.errors import BudgetExceeded, ScopeClosedError, UnpricedModelError
from fastroai.records import RequestRecord, Unbounded
from fastroai.runtime.budgets.at_limits import share
from fastroai.runtime.budgets.in_flight import Charge
from fastroai.runtime.budgets.in_line import InLine, open_accounts
from fastroai.runtime.budgets.ledger import NOTHING, Account, Amounts, Claim, Hold, wake
from fastroai.runtime.budgets.reservation import Reservation, holds_around, note_spending, to_warn_of
from fastroai.runtime.budgets.shared_reservation import booked_usd
from fastroai.runtime.budgets.stops import is_strict, refused
from fastroai.runtime.budgets.terms import TermsT, amounts_of
from fastroai.runtime.concurrency.flow import Flow, current_flow, read_around
from fastroai.runtime.scope import Scope

_NO_AMOUNTS: Final = Amounts()


async def admit(scope: Scope, terms: TermsT) -> Reservation[TermsT]:
    """Admit a request: reserve the most that it can use in every budget above it.

    Waits while only reservations of others stand in the way. If there is nobody to wait for, the request is
    changed to one that the budgets can pay for: to a cheaper model, if a budget names one, or a lower
    `max_tokens`.

    Raises:
        BudgetExceeded: a budget of this scope or of one above it cannot pay for the request.
        UnpricedModelError: there is a budget of money, and no price for the model.
        UnboundedRequestError: there is a budget, and nothing bounds what the request, or an earlier
            unmeasured one, can use.
        SpendStoreUnavailable: the store of a spend limit cannot be asked.
        ScopeClosedError: the run has ended.
        ForkedScopeError: a budget of this scope is in the process that forked this one.
    """
    scope.check_process()
    if scope.root.closed:
        raise ScopeClosedError(scope.path)
    flow = current_flow.get() if terms.streamed else None
    if scope.receiving:
        scope.hand_on()
    if scope.bounds.account is None and not scope.bounds.ceilings:
        reservation = Reservation(scope, terms, Hold((), _NO_AMOUNTS), flow)
    else:
        reservation = await _reserved(scope, open_accounts(scope), terms, flow)
    if not reservation.take_off():  # the run ended while the request waited
        reservation.give_back()
        raise ScopeClosedError(scope.path)
    return reservation


def readmit(scope: Scope, terms: TermsT, charge: Charge, claims: Mapping[str, str]) -> Reservation[TermsT]:
    """Reserve the bound of a request that an earlier process has sent, in place of the charge for it.

    Spend limits have counted its bound since that process left it. They learn its cost by the `claims`.

    Raises:
        ScopeClosedError: the run has ended.
    """
    accounts = open_accounts(scope)
    hold = Hold(accounts, amounts_of(terms, accounts))
    reservation = Reservation(scope, terms, hold, None)
    with scope.tree.lock:
        for each in scope.lineage():
            each.spending.take_back(charge)
        if hold.ledger is not None:
            hold.ledger.hold(hold)
    reservation.take_up_claims(claims)
    if not reservation.take_off():
        reservation.leave_claims()
        reservation.give_back()
        raise ScopeClosedError(scope.path)
    return reservation


async def set_aside(scope: Scope, terms: TermsT) -> Reservation[TermsT]:
    """Set money aside for the run of a scope, in the budgets around it and with all spend limits above.

    Spending inside of the run draws on this money. The call does not wait for reservations of others.

    Raises:
        BudgetExceeded: a budget or a spend limit has less left.
        SpendStoreUnavailable: the store of a spend limit cannot be asked.
    """
    scope.check_process()
    accounts = () if scope.parent is None else open_accounts(scope.parent)
    reservation = await _reserved(scope, accounts, terms, None)
    reservation.counted_hold.run = " / ".join(scope.path)
    scope.bounds = scope.bounds.drawing_on(reservation)
    return reservation


async def _reserved(
    scope: Scope, accounts: tuple[Account, ...], terms: TermsT, flow: Flow | None
) -> Reservation[TermsT]:
    try:
        if accounts:
            in_line = InLine(scope, accounts, terms)
            await in_line.take()
            reservation = Reservation(scope, in_line.terms, in_line.hold, flow)
            reservation.short, reservation.short_of = in_line.short, in_line.short_of
        else:
            await terms.prepare_bound()
            reservation = Reservation(scope, terms, Hold((), _NO_AMOUNTS), flow)
        if scope.bounds.ceilings:
            try:
                await share(reservation)
            except BaseException as error:
                reservation.give_back()
                if isinstance(error, BudgetExceeded):
                    await reservation.conclude()  # listeners then find the stores without this reservation
                raise
    except BudgetExceeded as error:
        if not error.may_wait:
            await scope.emit(refused(scope, error))
        raise
    return reservation


def shares_slot(scope: Scope) -> bool:
    """Return whether a request made here would be inside of one that has a slot under a `ProviderLimit`."""
    read = (hold for flow in read_around() for hold in list(flow.holds))
    return any(hold.has_slot for hold in chain(holds_around(scope), read))


@contextmanager
def waiting_inside(scope: Scope) -> Iterator[None]:
    """Mark the requests around one that waits here for something else than budgets: they cannot end first."""
    ledger = None if scope.bounds.account is None else scope.bounds.account.ledger
    outer = [hold for hold in holds_around(scope) if hold.ledger is ledger]
    _add_dependents(scope, outer, 1)
    try:
        yield
    finally:
        _add_dependents(scope, outer, -1)


def _add_dependents(scope: Scope, holds: Iterable[Hold], number: int) -> None:
    changed: list[Claim] = []
    with scope.tree.lock:
        for hold in holds:
            hold.dependents += number
            changed += hold.review()
    wake(changed)


def record_spending(scope: Scope, record: RequestRecord) -> None:
    """Charge spending that was not admitted, and tell listeners of it with the next event."""
    scope.charge(record)
    from fastroai.tracing.metrics import record_request

    record_request(record)
    reserve = next((hold for each in scope.bounds.reserves if (hold := each.hold) is not None), None)
    changed: list[Claim] = []
    with scope.tree.lock:
        if reserve is not None:
            changed = reserve.spend(booked_usd(record, NOTHING))
        warned = to_warn_of(scope, open_accounts(scope))
    wake(changed)
    note_spending(scope, record, warned)


def unknown_cost(scope: Scope, record: RequestRecord) -> UnpricedModelError | None:
    """Return the error if the cost of a record is unknown and a budget or spend limit refuses that."""
    if not isinstance(record.committed_usd, Unbounded):
        return None
    with scope.tree.lock:
        budgets = [account.budget for account in open_accounts(scope)]
    strict = any(each.usd is not None and is_strict(each) for each in budgets)
    if strict or any(is_strict(limit) for ceiling in scope.bounds.ceilings for limit in ceiling.limits):
        return UnpricedModelError(record.model, record.provider, "record")
    return None


def step_down_if_due(scope: Scope, terms: TermsT) -> TermsT:
    """Return the request to the cheaper model of a budget whose share for that is spent; else unchanged."""
    for account in open_accounts(scope):
        fallback = account.budget.fallback
        if fallback is not None and account.share >= Decimal(str(fallback.at)):
            return terms.stepped_down(fallback)
    return terms
