from dataclasses import dataclass
from decimal import Decimal

import pytest

from fastroai.errors import CostBudgetExceeded, ScopeClosedError, UnboundedRequestError, UnpricedModelError
from fastroai.records import RequestRecord
from fastroai.runtime import RequestTerms, Scope, admit
from fastroai.usage import Budget


@dataclass
class Terms:
    """A request, as admission sees it."""

    model: str = "m"
    provider: str = "p"
    priced: bool = True
    bound_usd: Decimal | None = Decimal("0.05")


TERMS: RequestTerms = Terms()


def settled(cost: str | None) -> RequestRecord:
    return RequestRecord(
        model="m", provider="p", outcome="settled", cost_usd=None if cost is None else Decimal(cost)
    )


def unmeasured() -> RequestRecord:
    return RequestRecord(model="m", provider="p", outcome="unmeasured")


def run_with(budget: Budget | None) -> tuple[Scope, Scope]:
    run = Scope("pipeline", "run", parent=None, budget=budget)
    return run, Scope("step", "step", parent=run)


def test_without_a_budget_everything_is_admitted_and_settled_at_its_cost() -> None:
    run, step = run_with(None)
    admit(step, Terms(priced=False, bound_usd=None)).settle(settled("0.02"))
    assert run.usage.cost_usd == Decimal("0.02")


def test_a_released_request_costs_nothing() -> None:
    run, step = run_with(Budget(usd="0.01"))
    admit(step, TERMS).release(RequestRecord(model="m", provider="p", outcome="released"))
    assert (run.usage.request_count, run.usage.failed_requests) == (0, 1)
    assert run.usage.committed_usd == 0
    admit(step, TERMS)


def test_an_unmeasured_request_is_charged_at_its_bound() -> None:
    run, step = run_with(Budget(usd="0.05"))
    charged = admit(step, TERMS).charge_unmeasured(unmeasured())
    assert charged.bound_usd == Decimal("0.05")
    assert (run.usage.cost_usd, run.usage.committed_usd) == (Decimal(0), Decimal("0.05"))
    with pytest.raises(CostBudgetExceeded):
        admit(step, TERMS)


def test_a_used_up_budget_stops_the_next_request_and_says_whose_it_is() -> None:
    _run, step = run_with(Budget(usd="0.03"))
    admit(step, TERMS).settle(settled("0.02"))
    admit(step, TERMS).settle(settled("0.015"))
    with pytest.raises(CostBudgetExceeded) as caught:
        admit(step, TERMS)
    error = caught.value
    assert (error.budget_microcents, error.actual_microcents, error.requested_microcents) == (
        30_000,
        35_000,
        50_000,
    )
    assert (error.step_id, error.scope_path) == ("step", ("run",))


def test_a_stop_does_not_pretend_to_know_what_an_unbounded_request_would_cost() -> None:
    _run, step = run_with(Budget(usd="0.01"))
    admit(step, TERMS).settle(settled("0.01"))
    with pytest.raises(CostBudgetExceeded) as caught:
        admit(step, Terms(bound_usd=None))
    assert caught.value.requested_microcents is None


def test_the_innermost_of_several_used_up_budgets_is_named() -> None:
    run = Scope("pipeline", "run", parent=None, budget=Budget(usd="0.01"))
    step = Scope("step", "step", parent=run, budget=Budget(usd="0.01"))
    step.charge(settled("0.01"))
    with pytest.raises(CostBudgetExceeded) as caught:
        admit(step, TERMS)
    assert caught.value.scope_path == ("run", "step")


def test_siblings_share_the_budget_above_them() -> None:
    run, step = run_with(Budget(usd="0.01"))
    sibling = Scope("step", "sibling", parent=run)
    admit(step, TERMS).settle(settled("0.01"))
    with pytest.raises(CostBudgetExceeded):
        admit(sibling, TERMS)


def test_under_a_budget_a_model_without_a_price_is_refused_unless_that_is_allowed() -> None:
    _run, step = run_with(Budget(usd=1))
    with pytest.raises(UnpricedModelError, match="'p:m'"):
        admit(step, Terms(priced=False))
    run, step = run_with(Budget(usd=1, on_unpriced="allow"))
    admit(step, Terms(priced=False)).settle(settled(None))
    assert run.usage.unpriced_requests == 1


def test_after_an_unmeasured_request_that_nothing_bounds_a_budget_refuses_unless_that_is_allowed() -> None:
    terms = Terms(bound_usd=None)
    _run, step = run_with(Budget(usd=1))
    admit(step, terms).charge_unmeasured(unmeasured())
    with pytest.raises(UnboundedRequestError):
        admit(step, terms)
    run, step = run_with(Budget(usd=1, on_unbounded="allow"))
    admit(step, terms).charge_unmeasured(unmeasured())
    admit(step, terms)
    assert run.usage.unbounded_requests == 1


def test_after_the_run_has_ended_nothing_is_admitted() -> None:
    run, step = run_with(None)
    step.close()
    admit(step, TERMS)  # the run goes on: it has the charge
    run.close()
    with pytest.raises(ScopeClosedError, match="run / step"):
        admit(step, TERMS)


def test_a_reservation_ends_once() -> None:
    _run, step = run_with(None)
    reservation = admit(step, TERMS)
    reservation.settle(settled("0.01"))
    with pytest.raises(AssertionError):
        reservation.release(settled("0.01"))
