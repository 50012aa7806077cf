"""Admission of requests against budgets, and how each one ends in the account.

Every provider request passes here once: `admit` before it is sent, then exactly one of `settle`, `release`
and `charge_unmeasured`. Reserving upper bounds, waiting and lowering find their place in `admit` and
`Reservation`; today a request is admitted while no budget above it is used up.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Protocol

from fastroai.errors import CostBudgetExceeded, ScopeClosedError, UnboundedRequestError, UnpricedModelError
from fastroai.records import RequestRecord, usd_to_microcents
from fastroai.runtime.scope import Scope


class RequestTerms(Protocol):
    """What admission wants to know of a request; properties, so that nothing is computed in vain."""

    @property
    def model(self) -> str:
        """The model that is asked."""
        ...

    @property
    def provider(self) -> str:
        """Its provider."""
        ...

    @property
    def priced(self) -> bool:
        """Whether a price is known."""
        ...

    @property
    def bound_usd(self) -> Decimal | None:
        """What it can cost at most, in US dollars; `None` if nothing bounds it."""
        ...


class Reservation:
    """The place of one admitted request in the account, until it is ended, once."""

    __slots__ = ("_open", "_scope", "_terms")

    def __init__(self, scope: Scope, terms: RequestTerms) -> None:
        self._scope, self._terms, self._open = scope, terms, True

    def settle(self, record: RequestRecord) -> None:
        """Its usage arrived: charge what it cost."""
        self._end(record)

    def release(self, record: RequestRecord) -> None:
        """It was not sent, or was refused unbilled: charge nothing."""
        self._end(record)

    def charge_unmeasured(self, record: RequestRecord) -> RequestRecord:
        """It was sent and its usage never came: charge its bound."""
        bounded = replace(record, bound_usd=self._terms.bound_usd)
        self._end(bounded)
        return bounded

    def _end(self, record: RequestRecord) -> None:
        assert self._open, "a reservation ends once"
        self._open = False
        self._scope.charge(record)


def admit(scope: Scope, terms: RequestTerms) -> Reservation:
    """Let a request go out, or raise.

    Raises:
        CostBudgetExceeded: a budget of this scope or of one above it is used up.
        UnpricedModelError: there is a budget, and no price for the model.
        UnboundedRequestError: there is a budget, and an earlier unmeasured request that nothing bounds.
        ScopeClosedError: the run has ended.
    """
    if scope.root.closed:
        raise ScopeClosedError(scope.path)
    for holder in scope.lineage():
        if holder.budget is not None:
            _check(holder, scope, terms)
    return Reservation(scope, terms)


def _check(holder: Scope, scope: Scope, terms: RequestTerms) -> None:
    budget = holder.budget
    assert budget is not None
    if budget.on_unpriced == "refuse" and not terms.priced:
        raise UnpricedModelError(terms.model, terms.provider)
    spent = holder.spent()
    if budget.on_unbounded == "refuse" and spent.unbounded_requests:
        raise UnboundedRequestError(terms.model, terms.provider)
    if spent.committed_usd >= budget.usd:
        bound = terms.bound_usd
        raise CostBudgetExceeded(
            budget.microcents,
            usd_to_microcents(spent.committed_usd),
            scope.step_id,
            None if bound is None else usd_to_microcents(bound),
            holder.path,
        )
