"""Errors of budgets and spend limits, for requests that they cannot count or cannot pay for."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_CEILING, Decimal
from time import monotonic
from typing import TYPE_CHECKING, Final

from fastroai.errors import (
    BudgetExceeded,
    CostBudgetExceeded,
    RequestBudgetExceeded,
    TokenBudgetExceeded,
    UnboundedRequestError,
    UnpricedModelError,
)
from fastroai.records import usd_to_microcents
from fastroai.runtime.budgets.ledger import Account, Amounts, Measure, Room
from fastroai.runtime.budgets.terms import RequestTerms
from fastroai.runtime.events import BudgetRefused, BudgetWaiting, RequestWaited
from fastroai.runtime.fact_base import FailureFacts
from fastroai.runtime.scope import Scope
from fastroai.tracing.attributes import error_type
from fastroai.usage.money import format_cost
from fastroai.usage.prices.references import near_reference

if TYPE_CHECKING:
    from fastroai.usage import Budget, SpendLimit


MOST_NAMED: Final = 3
"""The largest number of requests in flight that an error names."""


_SPENT_UNKNOWN: Final = (
    "nobody knows the cost of earlier spending in the same budget, and what is left of it: give it a price"
)


def check_all(terms: RequestTerms, accounts: Iterable[Account]) -> None:
    """Refuse a request that one of these budgets cannot count. Raises the errors of `check`."""
    for account in accounts:
        budget = account.budget
        counts_money = budget.usd is not None
        counts_tokens = budget.tokens is not None
        if budget.admission == "expected":  # what is expected will do where nothing bounds the use
            counts_money = counts_money and terms.expected_usd is None
            counts_tokens = counts_tokens and terms.expected_tokens is None
        check(terms, budget, counts_money=counts_money, counts_tokens=counts_tokens)
        # A budget that allows models without a price does not count them, whether they answer or not.
        if budget.usd is not None and is_strict(budget) and account.usage.unbounded_requests:
            raise UnboundedRequestError(terms.model, terms.provider, _SPENT_UNKNOWN)


def check(
    terms: RequestTerms, limit: Budget | SpendLimit, *, counts_money: bool, counts_tokens: bool
) -> None:
    """Refuse a request that a limit cannot count.

    Raises:
        UnpricedModelError: the limit counts money, and no price is known.
        UnboundedRequestError: the request has no bound on an amount that the limit counts.
    """
    unbounded_cost = counts_money and terms.bound.cost_usd is None  # with a bound there is a price
    if unbounded_cost and not terms.priced:
        if limit.on_unpriced == "refuse":
            near = near_reference(terms.provider, terms.model)
            raise UnpricedModelError(
                terms.model, terms.provider, "request" if terms.asks_for == "request" else "spend", near
            )
        unbounded_cost = False
    if limit.on_unbounded == "allow" or terms.is_local:
        return
    if unbounded_cost or (counts_tokens and terms.bound.tokens is None):
        raise UnboundedRequestError(terms.model, terms.provider, terms.bound.why)


def is_strict(limit: Budget | SpendLimit) -> bool:
    """Return whether a limit refuses every request that it cannot count."""
    return "allow" not in (limit.on_unbounded, limit.on_unpriced)


_LESS_RESERVED: Final = (
    "set max_tokens for the agent, or max_tokens_per_request= of the budget; raise the budget; or reserve "
    'what requests are expected to use, with admission="expected"'
)
ADVICE: Final[dict[Measure, str]] = {
    "usd": _LESS_RESERVED,
    "tokens": _LESS_RESERVED,
    "requests": "raise the budget",
}


def worded(measure: Measure, amounts: Amounts | Budget | Room) -> str:
    """Return the amount of one measure, written for people."""
    if measure == "usd":
        return format_cost(max(amounts.usd or Decimal(0), Decimal(0)))
    number = amounts.tokens if measure == "tokens" else amounts.requests
    return f"{number:,} {measure.removesuffix('s') if number == 1 else measure}"


def committed_of(account: Account, measure: Measure) -> int:
    """Return how much is spent of a budget: microcents, tokens or requests."""
    usage = account.usage
    if measure == "usd":
        return usd_to_microcents(usage.committed_usd)
    return usage.committed_tokens if measure == "tokens" else usage.request_count


def _reserved_of(account: Account, measure: Measure) -> int:
    if measure == "usd":
        return usd_to_microcents(account.reserved_usd)
    return account.reserved_tokens if measure == "tokens" else account.reserved_requests


def refusal_of(scope: Scope, terms: RequestTerms, account: Account, measure: Measure) -> BudgetExceeded:
    """Return the error for a request, a purchase or a run that a budget cannot pay for."""
    bound = terms.bound
    usd = None if bound.cost_usd is None else usd_to_microcents(bound.cost_usd, ROUND_CEILING)
    requested = {"usd": usd, "tokens": bound.tokens, "requests": None}
    stop = stop_of(scope, account, measure, requested[measure])
    stop.reserved = _reserved_of(account, measure)
    stop.stopped = terms.asks_for
    stop.why = None if measure == "requests" else terms.bound.why
    return stop


def stop_of(scope: Scope, account: Account, measure: Measure, requested: int | None) -> BudgetExceeded:
    """Return the error of a budget, which cannot pay the `requested` amount or is crossed."""
    budget = account.budget
    limits = {"usd": budget.microcents, "tokens": budget.tokens, "requests": budget.requests}
    limit = limits[measure]
    assert limit is not None
    stop = _STOPS[measure](limit, committed_of(account, measure), scope.step_id, requested, account.path)
    stop.uncertain = usd_to_microcents(account.usage.uncertain_usd) if measure == "usd" else 0
    return stop


_STOPS: Final[dict[Measure, type[BudgetExceeded]]] = {
    "usd": CostBudgetExceeded,
    "tokens": TokenBudgetExceeded,
    "requests": RequestBudgetExceeded,
}


def place_on_record(scope: Scope) -> str:
    """Return the place of a scope in the log of its run; empty outside of runs."""
    return "" if scope.log is None else scope.place_within(scope.log.scope)


def keep(scope: Scope, fact: BudgetRefused | BudgetWaiting | RequestWaited) -> None:
    """Put a note on record, if a store keeps the run."""
    if scope.log is not None and scope.log.run is not None:
        scope.log.note(fact)


def refused(scope: Scope, stop: BudgetExceeded) -> BudgetRefused:
    """Count a refusal, and put it on record if a store keeps the run. Return it for listeners."""
    from fastroai.tracing.metrics import record_refusal

    record_refusal(stop)
    failure = FailureFacts(error_type=error_type(stop), message=str(stop), failure_class="terminal")
    event = BudgetRefused(part=scope.part, place=place_on_record(scope), failure=failure, raised=stop)
    keep(scope, event)
    return event


def tell_waited(scope: Scope, waits_for: str, began: float) -> None:
    """Say that a request waits no longer, which it did from a monotonic time on."""
    waited = RequestWaited(
        part=scope.part, place=place_on_record(scope), waits_for=waits_for, seconds=monotonic() - began
    )
    keep(scope, waited)
    scope.note(waited)
