"""Requests before their budgets. A token is a microcent here, of which a dollar has a million."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pytest
from support.leftovers import assert_no_task_is_left
from support.patience import PATIENCE
from support.virtual_time import in_virtual_time, now

from fastroai.errors import (
    BudgetExceeded,
    CostBudgetExceeded,
    RequestBudgetExceeded,
    ScopeClosedError,
    SpendLimitExceeded,
    TokenBudgetExceeded,
    UnboundedRequestError,
    UnpricedModelError,
    usage_of,
)
from fastroai.records import RequestRecord, Tokens, Usage
from fastroai.runtime import BudgetView, Reservation, Scope, Send, admit, record_spending
from fastroai.runtime.budgets.admission import step_down_if_due
from fastroai.runtime.budgets.terms import AskedFor, RequestTerms
from fastroai.runtime.concurrency.flow import STALLED_AFTER, Flow, current_flow
from fastroai.runtime.concurrency.pump import Pump
from fastroai.runtime.events import BudgetRefused, BudgetWarning, SpendRecorded
from fastroai.runtime.fact_base import RunEvent
from fastroai.usage import Budget, ModelFallback, RequestBound, SpendLimit
from fastroai.usage.limits import Limits
from fastroai.usage.prices.flat_prices import FlatPrices
from fastroai.usage.shared.memory_spend_store import MemorySpendStore

MICROCENT = Decimal("0.000001")
TOKEN_IS_MICROCENT = FlatPrices(input_per_mtok=Decimal(1), output_per_mtok=Decimal(1))
INPUT = 10
"""Tokens of every request."""


@dataclass(frozen=True, slots=True)
class Terms(RequestTerms):
    """A request, as admission sees it."""

    bound: RequestBound
    model: str = "m"
    provider: str = "p"
    is_local: bool = False
    asks_for: AskedFor = "request"
    waits_for_others: bool = True
    streamed: bool = False
    priced: bool = True
    other_is_priced: bool = True
    enough: int | None = None
    """Tokens of an answer with which it can do; `None` if it needs all it asks for."""
    expected: int | None = None
    """Microcents, and tokens, that it is expected to use."""

    @property
    def is_flexible(self) -> bool:
        return self.enough is not None

    @property
    def expected_usd(self) -> Decimal | None:
        return None if self.expected is None else MICROCENT * self.expected

    @property
    def expected_tokens(self) -> int | None:
        return self.expected

    def shortened(self, output_tokens: int) -> Terms:
        return replace(self, bound=self.bound.shortened(output_tokens))

    def sharing(self, *, usd: Decimal | None, tokens: int | None) -> Terms:
        fair = self.bound.lowered(usd=usd, tokens=tokens)
        if fair is self.bound or self.enough is None:
            return self
        return self.shortened(max(self.enough, (fair and fair.output_tokens) or 0))

    def lowered(self, *, usd: Decimal | None, tokens: int | None) -> Terms | None:
        bound = self.bound.lowered(usd=usd, tokens=tokens)
        return None if bound is None else replace(self, bound=bound)

    def stepped_down(self, fallback: ModelFallback) -> Terms:
        """Every other model does it for half."""
        if fallback.use == self.model:
            return self
        assert isinstance(fallback.use, str)
        assert self.bound.output_tokens is not None
        bound = bound_of(self.bound.output_tokens // 2, 1)
        if not self.other_is_priced:
            bound = replace(bound, cost_usd=None, prices=None)
        return replace(self, model=fallback.use, bound=bound, priced=self.other_is_priced)


def bound_of(output_tokens: int, least_output_tokens: int | None) -> RequestBound:
    return RequestBound(
        input_tokens=INPUT,
        output_tokens=output_tokens,
        cost_usd=MICROCENT * (INPUT + output_tokens),
        prices=TOKEN_IS_MICROCENT,
        least_output_tokens=least_output_tokens,
    )


def request(microcents: int, *, least: int | None = None, **options: Any) -> Terms:
    """One that can cost so much, in as many tokens; `least` is the shortest answer that can be asked for."""
    return Terms(bound_of(microcents - INPUT, least), **options)


UNBOUNDED = RequestBound(input_tokens=None, output_tokens=None, cost_usd=None)
RELEASED = RequestRecord(model="m", provider="p", outcome="released")
LOST = RequestRecord(model="m", provider="p", outcome="unmeasured")


def settled(microcents: int | None) -> RequestRecord:
    """At that cost, in as many tokens."""
    return RequestRecord(
        model="m",
        provider="p",
        outcome="settled",
        tokens=Tokens(input_tokens=microcents or 0),
        cost_usd=None if microcents is None else MICROCENT * microcents,
    )


def run_with(budget: Budget | None = None, **options: Any) -> Scope:
    return Scope(
        "pipeline", "run", parent=None, limits=None if budget is None else Limits((budget,)), **options
    )


def step_in(parent: Scope, budget: Budget | None = None, name: str = "step", **options: Any) -> Scope:
    limits = None if budget is None else Limits((budget,))
    return Scope("step", name, parent=parent, limits=limits, **options)


def left(scope: Scope) -> int | None:
    """Microcents that neither are spent nor reserved."""
    return BudgetView(scope).remaining.microcents


async def let_all_wait() -> None:
    """Let every task go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def waiting(scope: Scope, terms: Terms) -> asyncio.Task[Reservation[Terms]]:
    """A request that others stand in the way of."""
    task = asyncio.create_task(admit(scope, terms))
    await let_all_wait()
    assert not task.done(), "it waits"
    return task


async def refusal(scope: Scope, terms: Terms) -> BudgetExceeded:
    """What a request is refused with."""
    with pytest.raises(BudgetExceeded) as caught:
        await admit(scope, terms)
    return caught.value


# --- reserving, and the three endings ---


async def test_without_a_budget_everything_is_admitted_and_settled_at_its_cost() -> None:
    run = run_with()
    (await admit(step_in(run), Terms(UNBOUNDED, priced=False))).settle(settled(20))
    assert run.spending.usage.cost_usd == MICROCENT * 20


async def test_what_a_request_can_use_is_reserved_here_and_in_every_budget_above() -> None:
    run = run_with(Budget(microcents=1_000))
    step = step_in(run, Budget(tokens=500, requests=5))
    agent = step_in(step, Budget(microcents=100))
    reservation = await admit(agent, request(60))
    remaining = BudgetView(agent).remaining
    assert (remaining.microcents, remaining.tokens, remaining.requests) == (40, 440, 4)
    assert (left(run), left(step)) == (940, 940)
    reservation.settle(settled(25))
    remaining = BudgetView(agent).remaining
    assert (remaining.microcents, remaining.tokens, remaining.requests) == (75, 475, 4)
    assert left(run) == 975


async def test_siblings_share_what_is_above_them_and_nothing_else() -> None:
    run = run_with(Budget(microcents=100))
    one, other = (step_in(run, Budget(microcents=60), name) for name in ("one", "other"))
    (await admit(one, request(60))).settle(settled(60))
    assert (left(one), left(other)) == (0, 40)
    assert (await refusal(one, request(20))).scope_path == ("run", "one")
    assert (await refusal(other, request(60))).scope_path == ("run",)
    (await admit(other, request(40))).settle(settled(40))


async def test_a_released_request_costs_nothing_and_does_not_count() -> None:
    run = run_with(Budget(microcents=50, tokens=50, requests=1))
    for _ in range(3):
        (await admit(run, request(50))).release(RELEASED)
    assert (run.spending.usage.request_count, run.spending.usage.failed_requests) == (0, 3)
    assert run.spending.usage.committed_usd == 0
    assert left(run) == 50


async def test_an_unmeasured_request_is_charged_at_its_bound() -> None:
    run = run_with(Budget(microcents=100, tokens=100))
    charge = (await admit(run, request(60))).charge_unmeasured(LOST)
    assert (charge.record.bound_usd, charge.record.bound_tokens) == (MICROCENT * 60, 60)
    assert run.spending.usage.cost_usd == 0
    assert run.spending.usage.committed_usd == MICROCENT * 60
    assert (BudgetView(run).remaining.microcents, BudgetView(run).remaining.tokens) == (40, 40)
    assert (await refusal(run, request(50))).committed == 60


async def test_a_reservation_that_is_given_back_leaves_no_trace() -> None:
    run = run_with(Budget(microcents=50))
    (await admit(run, request(50))).give_back()
    assert (run.spending.records, left(run)) == ([], 50)


async def test_a_reservation_ends_once() -> None:
    reservation = await admit(run_with(), request(20))
    reservation.settle(settled(20))
    for again in (reservation.release, reservation.charge_unmeasured):
        with pytest.raises(AssertionError, match="ends once"):
            again(RELEASED)


async def test_a_provider_that_bills_more_than_was_possible_is_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = run_with(Budget(microcents=50))
    with caplog.at_level(logging.WARNING, "fastroai.runtime"):
        (await admit(run, request(20))).settle(settled(20))
        assert caplog.messages == []
        (await admit(run, request(20))).settle(settled(21))
    assert "p:m billed $0.000021 for a request that could cost $0.000020 at most" in caplog.text
    assert left(run) == 9


# --- refusing ---


async def test_a_request_that_would_cross_a_budget_is_refused_before_it_is_sent() -> None:
    run = run_with(Budget(microcents=50))
    step = step_in(run)
    (await admit(step, request(30))).settle(settled(20))
    error = await refusal(step, request(31))
    assert isinstance(error, CostBudgetExceeded)
    assert (error.budget_microcents, error.actual_microcents, error.requested_microcents) == (50, 20, 31)
    assert (error.step_id, error.scope_path) == ("step", ("run",))
    (await admit(step, request(30))).settle(settled(30))
    assert run.spending.usage.cost_usd == MICROCENT * 50


async def test_a_budget_of_the_amount_that_a_refusal_names_is_enough() -> None:
    terms = Terms(RequestBound(input_tokens=1, output_tokens=1, cost_usd=Decimal("0.00001128")))
    refused = await refusal(run_with(Budget(usd="0.000001")), terms)
    assert isinstance(refused, CostBudgetExceeded)
    assert refused.requested_usd == Decimal("0.000012")
    (await admit(run_with(Budget(usd=refused.requested_usd)), terms)).release(RELEASED)


async def test_a_budget_of_tokens_counts_input_and_output() -> None:
    run = run_with(Budget(tokens=50))
    (await admit(run, request(50))).settle(settled(20))
    error = await refusal(run, request(31))
    assert isinstance(error, TokenBudgetExceeded)
    assert (error.limit, error.committed, error.requested) == (50, 20, 31)


async def test_a_budget_of_requests_counts_those_that_were_sent() -> None:
    run = run_with(Budget(requests=2))
    (await admit(run, Terms(UNBOUNDED))).settle(settled(1))
    (await admit(run, Terms(UNBOUNDED))).charge_unmeasured(LOST)
    error = await refusal(run, request(20, least=1))
    assert isinstance(error, RequestBudgetExceeded)
    assert (error.limit, error.committed, error.requested) == (2, 2, None)


async def test_of_several_budgets_that_are_too_small_the_innermost_is_named() -> None:
    run = run_with(Budget(microcents=20))
    step = step_in(run, Budget(microcents=20))
    assert (await refusal(step_in(step, Budget(tokens=100)), request(30))).scope_path == ("run", "step")


async def test_a_budget_with_room_is_not_named() -> None:
    run = run_with(Budget(microcents=20))
    assert (await refusal(step_in(run, Budget(microcents=100)), request(30))).scope_path == ("run",)


async def test_a_used_up_budget_lets_through_what_costs_nothing_and_an_overdrawn_one_does_not() -> None:
    run = run_with(Budget(microcents=50))
    free = Terms(RequestBound(input_tokens=None, output_tokens=None, cost_usd=Decimal(0)))
    run.charge(settled(50))
    (await admit(run, free)).settle(settled(0))
    run.charge(settled(1))
    assert (await refusal(run, free)).committed == 51
    assert left(run) == 0


async def test_a_model_without_a_price_is_refused_unless_that_is_allowed() -> None:
    unpriced = Terms(UNBOUNDED, priced=False)
    with pytest.raises(UnpricedModelError, match="'p:m'"):
        await admit(run_with(Budget(usd=1)), unpriced)
    (await admit(run_with(Budget(requests=1)), unpriced)).settle(settled(None))
    run = run_with(Budget(usd=1, on_unpriced="allow", on_unbounded="allow"))
    (await admit(run, unpriced)).settle(settled(None))
    assert run.spending.usage.unpriced_requests == 1


async def test_every_budget_above_has_its_own_say_about_models_without_a_price() -> None:
    run = run_with(Budget(usd=1))
    step = step_in(run, Budget(usd=1, on_unpriced="allow"))
    with pytest.raises(UnpricedModelError):
        await admit(step, Terms(UNBOUNDED, priced=False))


@pytest.mark.parametrize("unit", [{"usd": 1}, {"tokens": 1_000}])
async def test_a_request_that_nothing_bounds_is_refused_unless_that_is_allowed(unit: dict[str, int]) -> None:
    with pytest.raises(UnboundedRequestError, match="p:m"):
        await admit(run_with(Budget(**unit)), Terms(UNBOUNDED))  # type: ignore[arg-type]
    allowed = run_with(Budget(**unit, on_unbounded="allow"))  # type: ignore[arg-type]
    (await admit(allowed, Terms(UNBOUNDED))).settle(settled(20))
    assert allowed.spending.usage.request_count == 1


async def test_a_model_for_tests_needs_no_bound() -> None:
    run = run_with(Budget(tokens=20))
    (await admit(run, Terms(UNBOUNDED, is_local=True))).settle(settled(20))
    assert (await refusal(run, Terms(UNBOUNDED, is_local=True))).committed == 20


@pytest.mark.parametrize("unit", [{"microcents": 20}, {"tokens": 20}])
async def test_what_nothing_bounds_is_let_through_only_while_something_is_left(unit: dict[str, int]) -> None:
    run = run_with(Budget(**unit, on_unbounded="allow"))  # type: ignore[arg-type]
    (await admit(run, Terms(UNBOUNDED))).settle(settled(19))
    (await admit(run, Terms(UNBOUNDED))).settle(settled(1))
    error = await refusal(run, Terms(UNBOUNDED))
    assert (error.committed, error.requested) == (20, None)
    assert "the next request was not sent" in str(error)


async def test_after_a_lost_request_that_nothing_bounds_a_budget_of_money_holds_no_more() -> None:
    unbounded = Terms(UNBOUNDED, is_local=True)
    run = run_with(Budget(usd=1))
    (await admit(run, unbounded)).charge_unmeasured(LOST)
    with pytest.raises(UnboundedRequestError, match=r"cost of earlier spending in the same budget"):
        await admit(run, request(20))
    allowing = run_with(Budget(usd=1, on_unbounded="allow"))
    (await admit(allowing, unbounded)).charge_unmeasured(LOST)
    (await admit(allowing, request(20))).settle(settled(20))
    assert allowing.spending.usage.unbounded_requests == 1


async def test_a_lost_request_to_a_model_whose_price_may_be_unknown_stops_nothing() -> None:
    run = run_with(Budget(microcents=50, on_unpriced="allow"))
    (await admit(run, Terms(UNBOUNDED, priced=False))).charge_unmeasured(LOST)
    (await admit(run, request(50))).settle(settled(50))
    assert left(run) == 0


# --- waiting ---


async def test_a_request_waits_for_what_others_have_reserved_and_do_not_need() -> None:
    run = run_with(Budget(microcents=100))
    first = await admit(run, request(80))
    second = await waiting(run, request(60, least=1))
    first.settle(settled(40))
    reservation = await second
    assert (reservation.terms, reservation.short) == (request(60, least=1), None)
    reservation.settle(settled(60))
    assert left(run) == 0


async def test_what_is_released_is_there_for_those_who_wait() -> None:
    run = run_with(Budget(requests=1))
    first = await admit(run, request(20))
    second = await waiting(run, request(20))
    first.release(RELEASED)
    (await second).settle(settled(20))


async def test_waiting_for_nothing_ends_in_a_refusal() -> None:
    run = run_with(Budget(microcents=100))
    first = await admit(run, request(80))
    second = await waiting(run, request(60))
    first.settle(settled(80))
    with pytest.raises(CostBudgetExceeded) as caught:
        await second
    assert (caught.value.committed, caught.value.requested) == (80, 60)
    assert_no_task_is_left()


async def test_first_come_first_served() -> None:
    run = run_with(Budget(microcents=100))
    order: list[int] = []

    async def ask(microcents: int) -> None:
        reservation = await admit(run, request(microcents))
        order.append(microcents)
        reservation.release(RELEASED)

    first = await admit(run, request(80))
    tasks = [asyncio.create_task(ask(microcents)) for microcents in (90, 20, 70, 11)]
    await let_all_wait()
    assert order == [], "nobody overtakes, not even those for whom there is room"
    first.settle(settled(1))
    await asyncio.gather(*tasks)
    assert order == [90, 20, 70, 11]


async def test_nobody_waits_for_a_budget_that_is_not_their_own() -> None:
    run = run_with()
    one, other = (step_in(run, Budget(microcents=50), name) for name in ("one", "other"))
    first = await admit(one, request(50))
    second = await waiting(one, request(50))
    (await admit(other, request(50))).settle(settled(50))
    inside = step_in(run, Budget(microcents=500), "shared")
    branches = [step_in(inside, Budget(microcents=50), name) for name in ("a", "b")]
    held = await admit(branches[0], request(50))
    stuck = await waiting(branches[0], request(50))
    (await admit(branches[1], request(50))).settle(settled(50))
    first.settle(settled(0))
    held.settle(settled(0))
    for task in (second, stuck):
        (await task).settle(settled(0))


async def test_many_at_once_never_cross_a_budget_and_none_is_refused_that_could_be_paid() -> None:
    run = run_with(Budget(microcents=500))
    most = 0

    async def ask() -> None:
        nonlocal most
        reservation = await admit(step_in(run), request(100))
        assert run.bounds.account is not None
        most = max(most, run.bounds.account.reserved_requests)
        await let_all_wait()
        reservation.settle(settled(10))

    await asyncio.gather(*(ask() for _ in range(41)))
    assert run.spending.usage.cost_usd == MICROCENT * 410
    assert most == 5
    errors = await asyncio.gather(*(ask() for _ in range(5)), return_exceptions=True)
    assert run.spending.usage.cost_usd == MICROCENT * 410, "90 are left, and each of them could cost 100"
    assert [type(error) for error in errors] == [CostBudgetExceeded] * 5


async def test_whoever_is_cancelled_while_waiting_leaves_the_line() -> None:
    run = run_with(Budget(microcents=100))
    first = await admit(run, request(80))
    second = await waiting(run, request(90))
    third = await waiting(run, request(20))
    second.cancel()
    (await third).settle(settled(20))
    assert second.cancelled()
    first.settle(settled(80))
    assert left(run) == 0


async def test_whoever_is_cancelled_just_after_being_let_in_gives_it_back() -> None:
    run = run_with(Budget(microcents=100))
    first = await admit(run, request(80))
    second = await waiting(run, request(90))
    third = await waiting(run, request(80))
    first.release(RELEASED)
    assert left(run) == 10, "the second is in"
    second.cancel()
    (await third).settle(settled(80))
    assert second.cancelled()


async def test_a_request_that_waits_is_not_held_up_by_the_end_of_its_own_scope() -> None:
    run = run_with(Budget(microcents=100))
    step = step_in(run, Budget(microcents=100))
    first = await admit(step, request(80))
    second = await waiting(step, request(60))
    step.close()
    first.settle(settled(30))
    (await second).settle(settled(60))
    assert (step.spending.usage.unmeasured_requests, step.spending.usage.cost_usd) == (1, 0)
    assert run.spending.usage.cost_usd == MICROCENT * 90


# --- asking for less ---


async def test_where_nobody_is_left_to_wait_for_a_shorter_answer_is_asked_for() -> None:
    run = run_with(Budget(microcents=100))
    run.charge(settled(50))
    reservation = await admit(run, request(80, least=5))
    assert reservation.terms.bound.output_tokens == 50 - INPUT
    assert left(run) == 0
    short = reservation.short
    assert isinstance(short, CostBudgetExceeded)
    assert (short.limit, short.committed, short.requested, short.scope_path) == (100, 50, 80, ("run",))
    reservation.charge_unmeasured(LOST)
    assert run.spending.usage.committed_usd == MICROCENT * 100, "it is charged as it was sent"
    assert short.committed == 100, "the stop tells what is committed when it is raised"


async def test_an_answer_is_as_short_as_the_smallest_budget_of_any_kind_demands() -> None:
    run = run_with(Budget(microcents=100))
    step = step_in(run, Budget(tokens=40, requests=3))
    reservation = await admit(step, request(80, least=1))
    assert reservation.terms.bound.output_tokens == 40 - INPUT
    assert isinstance(reservation.short, TokenBudgetExceeded)
    reservation.settle(settled(20))
    assert reservation.short.committed == 20


async def test_an_answer_is_never_shorter_than_the_provider_accepts() -> None:
    run = run_with(Budget(microcents=50))
    error = await refusal(run, request(80, least=41))
    assert (error.committed, error.requested) == (0, 80)
    (await admit(run, request(80, least=40))).settle(settled(50))


async def test_no_shorter_answer_is_asked_for_while_others_are_in_flight() -> None:
    run = run_with(Budget(microcents=100))
    first = await admit(run, request(50))
    second = await waiting(run, request(80, least=1))
    first.settle(settled(30))
    reservation = await second
    assert reservation.terms.bound.tokens == 70
    reservation.settle(settled(70))


async def test_a_shorter_answer_does_not_help_where_requests_are_counted() -> None:
    run = run_with(Budget(microcents=50, requests=1))
    (await admit(run, request(20))).settle(settled(20))
    assert isinstance(await refusal(run, request(20, least=1)), RequestBudgetExceeded)
    assert isinstance(await refusal(run, request(80, least=1)), CostBudgetExceeded)


# --- another model ---


CHEAPER = ModelFallback(at=0.8, use="cheap:er")


async def test_from_its_share_of_the_budget_on_the_other_model_is_used() -> None:
    run = run_with(Budget(microcents=100, fallback=CHEAPER))
    step, terms = step_in(run), request(12)
    run.charge(settled(79))
    assert step_down_if_due(step, terms) is terms
    run.charge(settled(1))
    assert step_down_if_due(step, terms).model == "cheap:er"


async def test_a_share_is_that_of_whatever_is_nearest_to_its_end() -> None:
    run = run_with(Budget(microcents=1_000, requests=5, fallback=CHEAPER))
    for _ in range(4):
        run.charge(settled(1))
    assert step_down_if_due(run, request(12)).model == "cheap:er"
    assert step_down_if_due(run_with(Budget(usd=1)), request(12)).model == "m"
    assert step_down_if_due(run_with(), request(12)).model == "m"


async def test_the_other_model_is_used_earlier_where_the_rest_cannot_pay_for_the_first() -> None:
    run = run_with(Budget(microcents=100, fallback=CHEAPER))
    run.charge(settled(50))
    reservation = await admit(run, request(80, least=1))
    assert reservation.terms.model == "cheap:er"
    assert reservation.terms.bound.output_tokens == 35
    assert reservation.short is None
    reservation.settle(settled(40))


async def test_where_the_rest_cannot_pay_for_the_other_model_either_it_gives_a_shorter_answer() -> None:
    run = run_with(Budget(microcents=100, fallback=CHEAPER))
    run.charge(settled(70))
    reservation = await admit(run, request(80, least=1))
    assert (reservation.terms.model, reservation.terms.bound.tokens) == ("cheap:er", 30)
    assert reservation.short is not None
    reservation.settle(settled(30))
    assert (await refusal(run, request(80, least=1))).committed == 100


async def test_while_others_are_in_flight_a_request_waits_for_its_own_model() -> None:
    run = run_with(Budget(microcents=100, fallback=CHEAPER))
    first = await admit(run, request(50))
    second = await waiting(run, request(80))
    first.settle(settled(10))
    reservation = await second
    assert reservation.terms.model == "m"
    reservation.settle(settled(20))


async def test_another_model_without_a_price_is_refused_and_leaves_the_line() -> None:
    run = run_with(Budget(microcents=100, fallback=CHEAPER))
    with pytest.raises(UnpricedModelError, match="p:cheap:er"):
        await admit(run, request(120, other_is_priced=False))
    (await admit(run, request(100))).settle(settled(100))


# --- requests inside of requests ---


async def test_a_request_inside_of_another_does_not_wait_for_its_end() -> None:
    run = run_with(Budget(microcents=100))
    outer = await admit(run, request(60))
    with outer.around():
        assert (await refusal(run, request(50))).committed == 0
        lowered = await admit(run, request(50, least=1))
        assert lowered.terms.bound.tokens == 40
        lowered.settle(settled(40))
    outer.settle(settled(60))


async def test_a_request_inside_of_another_waits_for_the_rest() -> None:
    run = run_with(Budget(microcents=100))
    beside = await admit(run, request(30))
    outer = await admit(run, request(60))
    with outer.around():
        inner = await waiting(run, request(30))
    beside.settle(settled(10))
    (await inner).settle(settled(30))
    outer.settle(settled(60))


async def test_a_request_inside_of_another_goes_before_those_who_wait_for_that_one() -> None:
    run = run_with(Budget(microcents=100))
    outer = await admit(run, request(60))
    behind = await waiting(run, request(60))
    with outer.around():
        (await admit(run, request(40))).settle(settled(30))
    outer.settle(settled(10))
    (await behind).settle(settled(60))


async def test_while_a_request_waits_inside_of_another_nobody_else_is_left_alone() -> None:
    """The outer one will not end, but the inner one is before those who wait, and then the outer one ends."""
    run = run_with(Budget(microcents=100))
    beside = await admit(run, request(30))
    outer = await admit(run, request(60))
    with outer.around():
        inner = await waiting(run, request(40))
    behind = await waiting(run, request(90))
    beside.settle(settled(0))
    (await inner).release(RELEASED)
    await let_all_wait()
    assert not behind.done()
    outer.settle(settled(10))
    (await behind).settle(settled(90))


async def test_a_request_three_deep_waits_for_none_of_those_around_it() -> None:
    run = run_with(Budget(microcents=100))
    outer = await admit(run, request(40))
    with outer.around():
        middle = await admit(run, request(40))
        with middle.around():
            await refusal(run, request(30))
        middle.settle(settled(20))
        (await admit(run, request(30))).settle(settled(30))
    outer.settle(settled(40))


async def test_what_comes_after_a_request_is_not_inside_of_it() -> None:
    run = run_with(Budget(microcents=100))
    outer = await admit(run, request(60))
    with outer.around():
        pass
    after = await waiting(run, request(60))
    outer.settle(settled(40))
    (await after).settle(settled(60))


async def test_a_request_that_has_ended_is_around_nothing() -> None:
    run = run_with(Budget(microcents=100))
    outer = await admit(run, request(60))
    with outer.around():
        outer.settle(settled(10))
        beside = await admit(run, request(60))
        inner = await waiting(run, request(60))
        beside.settle(settled(20))
        (await inner).settle(settled(60))


async def test_a_request_left_in_another_context_changes_nothing_there() -> None:
    run = run_with(Budget(microcents=100))

    @asynccontextmanager
    async def inside(reservation: Reservation[Terms]) -> AsyncGenerator[None]:
        with reservation.around():
            yield

    one, other = await admit(run, request(10)), await admit(run, request(60))
    opened = inside(one)
    await asyncio.create_task(opened.__aenter__())
    with other.around():
        await opened.__aexit__(None, None, None)
        one.settle(settled(10))
        await refusal(run, request(50))  # it is inside of the other one still
    other.settle(settled(60))


# --- streams that nobody reads ---


async def sent_through(flow: Flow, scope: Scope, terms: Terms) -> Reservation[Terms]:
    """A request in flight whose answer goes to whoever reads what comes through."""
    token = current_flow.set(flow)
    reservation = await admit(scope, terms)
    current_flow.reset(token)
    return reservation


async def test_nobody_waits_for_a_stream_that_is_not_read() -> None:
    run, flow = run_with(Budget(microcents=100)), Flow()
    stream = await sent_through(flow, run, request(60, streamed=True))
    flow.stall()
    assert (await refusal(run, request(60))).committed == 0
    (await admit(run, request(60, least=1))).settle(settled(40))
    stream.settle(settled(60))


async def test_whoever_waits_for_a_stream_is_told_when_nobody_reads_it_any_more() -> None:
    run, flow = run_with(Budget(microcents=100)), Flow()
    stream = await sent_through(flow, run, request(60, streamed=True))
    task = await waiting(run, request(60))
    flow.stall()
    with pytest.raises(CostBudgetExceeded):
        await task
    stream.settle(settled(60))


@pytest.mark.parametrize("fallback", [None, CHEAPER])
async def test_a_stream_that_is_read_again_is_waited_for_again(fallback: ModelFallback | None) -> None:
    run, flow = run_with(Budget(microcents=100, fallback=fallback)), Flow()
    stream = await sent_through(flow, run, request(60, streamed=True))
    flow.stall()
    flow.resume()
    task = await waiting(run, request(60, least=1))
    flow.stall()
    flow.resume()  # before the other one has noticed
    await let_all_wait()
    assert not task.done()
    stream.settle(settled(40))
    reservation = await task
    assert reservation.terms == request(60, least=1)
    reservation.settle(settled(60))


async def test_a_stream_that_has_ended_does_not_listen_any_more() -> None:
    run, flow = run_with(), Flow()
    stream = await sent_through(flow, run, request(60, streamed=True))
    assert flow._watchers
    stream.settle(settled(60))
    assert not flow._watchers


async def test_a_request_that_is_not_streamed_does_not_depend_on_who_reads() -> None:
    run, flow = run_with(Budget(microcents=100)), Flow()
    first = await sent_through(flow, run, request(60))
    task = await waiting(run, request(60))
    flow.stall()
    await let_all_wait()
    assert not task.done()
    first.settle(settled(10))
    (await task).settle(settled(60))


@in_virtual_time
async def test_a_consumer_that_asks_for_more_before_it_reads_on_is_not_stuck() -> None:
    """It holds up the stream that it would wait for."""
    run = run_with(Budget(microcents=100))

    async def produce(send: Send[int]) -> None:
        reservation = await admit(run, request(60, streamed=True))
        for number in range(4):
            await send(number)
        reservation.settle(settled(60))

    refused_at: list[float] = []
    pump = Pump(produce)
    async for number in pump:
        if number == 1:
            await refusal(run, request(60))
            refused_at.append(now())
    assert refused_at == [STALLED_AFTER]
    assert run.spending.usage.cost_usd == MICROCENT * 60
    assert_no_task_is_left()


@in_virtual_time
async def test_of_several_who_send_those_who_cannot_go_on_are_not_waited_for() -> None:
    run = run_with(Budget(microcents=100))
    ready = asyncio.Event()

    async def produce(send: Send[str]) -> None:
        async def stream() -> None:
            reservation = await admit(run, request(60, streamed=True))
            await ready.wait()
            for _ in range(3):
                await send("streamed")
            reservation.settle(settled(60))

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(stream())
            await send("first")
            await send("second")
            ready.set()
            await send("last of this one")

    pump = Pump(produce)
    assert await anext(pump) == "first"
    await asyncio.sleep(STALLED_AFTER * 2)
    assert await anext(pump) == "second"
    await let_all_wait()  # one of the two can go on now, and not the stream
    assert (await refusal(run, request(60))).committed == 0
    assert [item async for item in pump] == ["last of this one", *["streamed"] * 3]


# --- threads and event loops ---


def test_requests_of_several_event_loops_wait_for_one_budget() -> None:
    run = run_with(Budget(microcents=100))
    together = threading.Barrier(8)
    in_flight, most = 0, 0
    lock = threading.Lock()

    async def ask() -> None:
        nonlocal in_flight, most
        reservation = await admit(step_in(run), request(30))
        with lock:
            in_flight += 1
            most = max(most, in_flight)
        await let_all_wait()
        with lock:
            in_flight -= 1
        reservation.settle(settled(1))

    async def ask_often() -> None:
        await asyncio.gather(*(ask() for _ in range(5)))
        await ask()

    def work() -> None:
        together.wait()
        asyncio.run(ask_often())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert run.spending.usage.cost_usd == MICROCENT * 48
    assert 1 <= most <= 3


async def test_what_ends_on_one_event_loop_wakes_who_waits_on_another() -> None:
    run = run_with(Budget(microcents=100))
    first = await admit(run, request(60))
    waits = threading.Event()

    async def ask() -> None:
        task = await waiting(run, request(60))
        waits.set()
        (await task).settle(settled(60))

    elsewhere = asyncio.create_task(asyncio.to_thread(asyncio.run, ask()))
    await asyncio.to_thread(waits.wait)
    first.settle(settled(40))
    await elsewhere
    assert left(run) == 0


async def test_an_event_loop_that_ends_takes_those_who_wait_on_it_out_of_the_line() -> None:
    run = run_with(Budget(microcents=100))
    first = await admit(run, request(60))

    async def give_up() -> None:
        await waiting(run, request(60))  # `asyncio.run` cancels what is left

    await asyncio.to_thread(asyncio.run, give_up())
    second = await waiting(run, request(100))
    first.release(RELEASED)
    (await second).settle(settled(100))


# --- events ---


class Heard:
    """Everything that a listener is told."""

    def __init__(self) -> None:
        self.events: list[RunEvent] = []

    async def __call__(self, event: RunEvent) -> None:
        self.events.append(event)


async def test_each_ending_is_told_with_its_record_once_somebody_can_wait() -> None:
    heard = Heard()
    run = run_with(Budget(microcents=1_000), listener=heard)
    step = step_in(run)
    charges = [
        (await admit(step, request(20))).settle(settled(15)),
        (await admit(step, request(20))).release(RELEASED),
        (await admit(step, request(20))).charge_unmeasured(LOST),
    ]
    (await admit(step, request(20))).give_back()
    assert heard.events == []
    reservation = await admit(step, request(20))
    charges.append(reservation.settle(settled(16)))
    await reservation.conclude()
    assert [event.record for event in heard.events if isinstance(event, SpendRecorded)] == [
        charge.record for charge in charges
    ]
    told = heard.events[0]
    assert isinstance(told, SpendRecorded)
    assert (told.run_id, told.pipeline, told.path) == (run.run_id, "run", ("run",))
    assert told.scope_path == ("run", "step")


async def test_a_budget_that_is_mostly_spent_is_told_of_once() -> None:
    heard = Heard()
    run = run_with(Budget(microcents=100), listener=heard)
    step = step_in(run, Budget(requests=2))
    for microcents in (70, 10, 10):
        reservation = await admit(run, request(microcents))
        reservation.settle(settled(microcents))
        await reservation.conclude()
    [warning] = [event for event in heard.events if isinstance(event, BudgetWarning)]
    assert (warning.scope_path, warning.share, warning.limit_usd) == (
        ("run",),
        Decimal("0.8"),
        MICROCENT * 100,
    )
    for _ in range(2):
        await (reservation := await admit(step, Terms(UNBOUNDED, is_local=True))).conclude()
        reservation.settle(settled(0))
    await run.tree.tell()
    last = heard.events[-1]
    assert isinstance(last, BudgetWarning)
    assert (last.scope_path, last.share, last.limit_usd) == (("run", "step"), Decimal(1), None)


async def test_what_was_spent_without_being_admitted_is_told_of_too() -> None:
    heard = Heard()
    step = step_in(run_with(Budget(microcents=100), listener=heard))
    record_spending(step, settled(80))
    record_spending(step_in(run_with()), settled(80))
    assert heard.events == [], "whoever spends it need not be able to wait"
    await step.tree.tell()
    spent, warning = heard.events
    assert isinstance(spent, SpendRecorded)
    assert (spent.record, spent.scope_path) == (settled(80), ("run", "step"))
    assert isinstance(warning, BudgetWarning)
    assert (warning.scope_path, warning.share) == (("run",), Decimal("0.8"))


async def test_a_refusal_is_told_before_it_is_raised() -> None:
    heard = Heard()
    run = run_with(Budget(microcents=10), listener=heard)
    error = await refusal(step_in(run), request(20))
    [event] = heard.events
    assert isinstance(event, BudgetRefused)
    assert event.error is error
    assert event.path == ("run",)


async def test_an_event_is_told_to_those_who_listen_where_it_happened() -> None:
    outside, inside = Heard(), Heard()
    run = run_with(listener=outside)
    step = step_in(run, listener=inside)
    (await admit(step, request(20))).settle(settled(20))
    (await admit(run, request(20))).settle(settled(15))
    await run.tree.tell()
    assert [event.record.cost_usd for event in outside.events if isinstance(event, SpendRecorded)] == [
        MICROCENT * 20,
        MICROCENT * 15,
    ]
    assert inside.events == outside.events[:1]


async def test_where_nobody_listens_nothing_is_kept_to_tell() -> None:
    run = run_with(Budget(microcents=20))
    (await admit(run, request(20))).settle(settled(20))
    await refusal(run, request(20))
    assert not run.tree.events


# --- scopes that have ended ---


async def test_after_the_run_has_ended_nothing_is_admitted() -> None:
    run = run_with()
    step = step_in(run)
    step.close()
    (await admit(step, request(20))).settle(settled(20))
    assert (run.spending.usage.request_count, step.spending.usage.request_count) == (1, 0)
    run.close()
    with pytest.raises(ScopeClosedError, match="run / step"):
        await admit(step, request(20))


async def test_what_was_waiting_when_the_run_ended_is_not_admitted_any_more() -> None:
    run = run_with(Budget(microcents=100))
    first = await admit(run, request(90))
    second = await waiting(run, request(90))
    run.close()
    with pytest.raises(ScopeClosedError):
        await second
    first.release(RELEASED)
    assert left(run) == 10, "what was in flight stays charged at its bound"


async def test_what_comes_after_the_end_of_a_scope_draws_on_the_budgets_that_are_left() -> None:
    run = run_with(Budget(microcents=100))
    step = step_in(run, Budget(microcents=10, fallback=CHEAPER))
    step.charge(settled(10))
    step.close()
    assert step_down_if_due(step, request(20)).model == "m"
    (await admit(step, request(20))).settle(settled(20))
    assert left(run) == 70
    assert (await refusal(step, request(80))).scope_path == ("run",)


async def test_a_request_that_outlives_its_scope_is_charged_above_and_frees_what_it_held() -> None:
    run = run_with(Budget(microcents=100))
    step = step_in(run, Budget(microcents=100))
    reservation = await admit(step, request(60))
    step.close()
    assert (left(step), left(run)) == (40, 40)
    reservation.settle(settled(30))
    assert run.spending.usage == Usage.of([settled(30)])
    assert left(run) == 70


# --- in flight when a scope closes ---


def unheard(microcents: int) -> RequestRecord:
    """What a scope has of a request that had not ended when it closed."""
    return replace(LOST, use="failed", bound_usd=MICROCENT * microcents, bound_tokens=microcents)


async def test_a_scope_that_closes_charges_what_is_in_flight_at_its_bound() -> None:
    run = run_with(Budget(microcents=200))
    step = step_in(run, Budget(microcents=100))
    reservation = await admit(step_in(step, name="inner"), request(60))
    error = ValueError("a sibling failed")
    step.close(error)
    assert step.spending.records == [unheard(60)]
    assert usage_of(error) == Usage.of([unheard(60)])
    assert not step.spending.usage.cost_complete
    assert (step.bounds.account.room.usd, run.bounds.account.room.usd) == (MICROCENT * 40, MICROCENT * 140)  # type: ignore[union-attr]
    assert run.spending.records == [], "it goes on"
    reservation.settle(settled(10))
    assert run.spending.records == [settled(10)]
    assert step.spending.records == [unheard(60)], "once and for all"
    assert left(run) == 190


@pytest.mark.parametrize("end", ["settle", "release", "charge_unmeasured"])
async def test_each_scope_counts_a_request_once_whichever_closes_first(end: str) -> None:
    run, ends = run_with(), {"settle": settled(10), "release": RELEASED, "charge_unmeasured": LOST}
    outer = step_in(run)
    inner = step_in(outer)
    reservation = await admit(inner, request(60))
    outer.close()
    getattr(reservation, end)(ends[end])
    record = unheard(60) if end == "charge_unmeasured" else ends[end]
    told = replace(record, use="kept")
    assert [replace(one, use="kept") for one in inner.spending.records] == [told]
    assert outer.spending.records == [unheard(60)]
    assert [replace(one, use="kept") for one in run.spending.records] == [told]
    inner.close()
    run.close()
    assert (len(inner.spending.records), len(outer.spending.records), len(run.spending.records)) == (1, 1, 1)


async def test_a_request_of_which_nothing_is_known_is_described_by_whoever_makes_it() -> None:
    run = run_with()
    reservation = await admit(run, request(60))
    reservation.describe = lambda: replace(LOST, agent="writer", error="nothing more was heard of it")
    run.write_off_in_flight()
    assert [(record.agent, record.bound_usd) for record in run.spending.records] == [
        ("writer", MICROCENT * 60)
    ]
    reservation.settle(settled(20))
    run.close()
    assert len(run.spending.records) == 1


async def test_what_waits_for_the_budget_of_a_scope_that_closes_waits_no_longer_for_that_one() -> None:
    run = run_with()
    step = step_in(run, Budget(microcents=100))
    first = await admit(step, request(80))
    second = await waiting(step, request(60))
    step.close()
    (await second).settle(settled(60))
    first.settle(settled(70))
    assert run.spending.usage.cost_usd == MICROCENT * 130
    assert step.spending.usage.committed_usd == MICROCENT * 80
    assert step.bounds.account is not None
    assert step.bounds.account.ledger.is_idle


@asynccontextmanager
async def sent(scope: Scope, until: asyncio.Event) -> AsyncGenerator[asyncio.Task[str]]:
    """A task of somebody who awaits a provider, and tells what became of that."""

    async def ask() -> str:
        reservation = await admit(scope, request(60))
        try:
            with reservation.around():
                await until.wait()
        except ScopeClosedError as error:
            reservation.charge_unmeasured(LOST)
            await asyncio.sleep(0)  # an ordinary exception: the task goes on
            return str(error)
        except asyncio.CancelledError:
            reservation.charge_unmeasured(LOST)
            raise
        reservation.settle(settled(10))
        return "answered"

    task = asyncio.create_task(ask())
    await let_all_wait()
    yield task
    if not task.done():
        task.cancel()
        await asyncio.wait([task])


async def test_at_the_end_of_the_run_a_request_in_flight_is_ended_and_its_task_is_not_cancelled() -> None:
    run = run_with(Budget(microcents=100))
    async with sent(step_in(run), asyncio.Event()) as task:
        run.close()
        assert run.spending.records == [unheard(60)]
        message = await task
        assert message == (
            "a request of run / step was cancelled, because its run ended first; "
            "await everything that a step starts before it returns"
        )
        assert (task.cancelling(), task.cancelled()) == (0, False)
    assert len(run.spending.records) == 1


async def test_the_end_of_a_step_ends_no_request() -> None:
    run, answered = run_with(), asyncio.Event()
    step = step_in(run)
    async with sent(step, answered) as task:
        step.close()
        await let_all_wait()
        answered.set()
        assert await task == "answered"
    assert (step.spending.records, run.spending.records) == ([unheard(60)], [settled(10)])


async def test_a_task_that_is_cancelled_as_the_run_ends_stays_cancelled() -> None:
    run = run_with()
    async with sent(run, asyncio.Event()) as task:
        task.cancel()
        run.close()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_an_answer_that_came_as_the_run_ended_leaves_no_cancellation_behind() -> None:
    """The provider's SDK may catch the cancellation, and answer all the same."""
    run = run_with()

    async def ask() -> int:
        reservation = await admit(run, request(60))
        with reservation.around(), suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        reservation.settle(settled(10))
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    task = asyncio.create_task(ask())
    await let_all_wait()
    run.close()
    assert await task == 0


def test_a_request_on_the_loop_of_another_thread_is_ended_too() -> None:
    run, sent_one, heard = run_with(), threading.Event(), list[str]()

    async def ask() -> None:
        reservation = await admit(run, request(60))
        try:
            with reservation.around():
                asyncio.get_running_loop().call_soon(sent_one.set)
                await asyncio.Event().wait()
        except ScopeClosedError as error:
            reservation.charge_unmeasured(LOST)
            heard.append(str(error))

    thread = threading.Thread(target=asyncio.run, args=(ask(),), daemon=True)
    thread.start()
    assert sent_one.wait(PATIENCE)
    run.close()
    thread.join(PATIENCE)
    assert len(heard) == len(run.spending.records) == 1


# --- spend limits, which are kept in a store ---


def shared_run(*limits: SpendLimit, budget: Budget | None = None, **options: Any) -> Scope:
    return Scope(
        "pipeline", "run", parent=None, limits=Limits(() if budget is None else (budget,), limits), **options
    )


async def spent_and_reserved(limit: SpendLimit) -> tuple[int, int]:
    status = await limit.status()
    return int(status.spent_usd / MICROCENT), int(status.reserved_usd / MICROCENT)


async def test_a_request_is_reserved_with_each_spend_limit_and_settled_there() -> None:
    store = MemorySpendStore()
    day, total = (SpendLimit(microcents=100, window=window, store=store) for window in ("day", "total"))
    run = shared_run(day, total, budget=Budget(microcents=50))
    reservation = await admit(run, request(40))
    assert await spent_and_reserved(day) == await spent_and_reserved(total) == (0, 40)
    reservation.settle(settled(15))
    await reservation.conclude()
    assert await spent_and_reserved(day) == await spent_and_reserved(total) == (15, 0)
    assert left(run) == 35


@pytest.mark.parametrize(("end", "spent"), [("release", 0), ("charge_unmeasured", 40), ("give_back", 0)])
async def test_every_ending_reaches_the_spend_limits(end: str, spent: int) -> None:
    limit = SpendLimit(microcents=100, store=MemorySpendStore())
    reservation = await admit(shared_run(limit), request(40))
    outcome = "released" if end == "release" else "unmeasured"
    getattr(reservation, end)(*(() if end == "give_back" else (replace(LOST, outcome=outcome),)))
    await reservation.conclude()
    assert await spent_and_reserved(limit) == (spent, 0)


async def test_a_spend_limit_that_cannot_pay_refuses_and_the_budgets_get_back_what_was_reserved() -> None:
    heard = Heard()
    store = MemorySpendStore()
    wide = SpendLimit(microcents=1_000, key="all", store=store)
    limit = SpendLimit(microcents=50, key="team", store=store)
    run = shared_run(wide, limit, budget=Budget(microcents=100), listener=heard)
    step = step_in(run)
    error = await refusal(step, request(60))
    assert isinstance(error, SpendLimitExceeded)
    assert (error.limit, error.committed, error.requested) == (50, 0, 60)
    assert (error.key, error.window, error.step_id, error.scope_path) == ("team", "day", "step", ("run",))
    assert error.resets_at is not None
    assert left(run) == 100
    assert [type(event) for event in heard.events] == [BudgetRefused]
    reservation = await admit(step, request(50))  # and what was reserved with the other limit is free again
    assert await spent_and_reserved(wide) == (0, 50)
    reservation.give_back()
    await reservation.conclude()


async def test_a_spend_limit_that_can_pay_for_less_gets_a_shorter_answer() -> None:
    limit = SpendLimit(microcents=50, store=MemorySpendStore())
    run = shared_run(limit, budget=Budget(microcents=100))
    reservation = await admit(run, request(60, least=1))
    assert reservation.terms.bound.tokens == 50
    assert isinstance(reservation.short, SpendLimitExceeded)
    assert left(run) == 50, "no more is reserved in the run than it can cost now"
    reservation.settle(settled(45))
    await reservation.conclude()
    assert await spent_and_reserved(limit) == (45, 0)
    assert reservation.short.committed == 45


@in_virtual_time
async def test_a_request_waits_for_what_other_runs_have_reserved_with_a_spend_limit() -> None:
    limit = SpendLimit(microcents=100, store=MemorySpendStore())
    first = await admit(shared_run(limit), request(80))
    second = await waiting(shared_run(limit), request(60))
    first.settle(settled(20))
    await first.conclude()
    reservation = await second
    assert reservation.terms == request(60)
    reservation.settle(settled(60))
    await reservation.conclude()
    assert await spent_and_reserved(limit) == (80, 0)


@in_virtual_time
async def test_whoever_is_cancelled_while_waiting_for_a_spend_limit_leaves_the_line_of_the_store() -> None:
    limit = SpendLimit(microcents=100, store=MemorySpendStore())
    first = await admit(shared_run(limit), request(80))
    run = shared_run(limit, budget=Budget(microcents=100))
    second = await waiting(run, request(100))
    second.cancel()
    await asyncio.wait([second])
    assert left(run) == 100
    third = await admit(shared_run(limit), request(20))
    for reservation, microcents in ((first, 80), (third, 20)):
        reservation.settle(settled(microcents))
        await reservation.conclude()
    assert await spent_and_reserved(limit) == (100, 0)


async def test_a_request_inside_of_another_does_not_wait_for_it_with_a_spend_limit() -> None:
    limit = SpendLimit(microcents=100, store=MemorySpendStore())
    run = shared_run(limit)
    outer = await admit(run, request(80))
    with outer.around():
        assert isinstance(await refusal(run, request(60)), SpendLimitExceeded)
    outer.settle(settled(80))
    await outer.conclude()


async def test_a_spend_limit_refuses_what_it_cannot_reckon_with_unless_that_is_allowed() -> None:
    store = MemorySpendStore()
    strict = SpendLimit(microcents=100, key="strict", store=store)
    lenient = SpendLimit(
        microcents=100, key="lenient", store=store, on_unpriced="allow", on_unbounded="allow"
    )
    with pytest.raises(UnpricedModelError):
        await admit(shared_run(strict), Terms(UNBOUNDED, priced=False))
    with pytest.raises(UnboundedRequestError):
        await admit(shared_run(strict), Terms(UNBOUNDED))
    reservation = await admit(shared_run(lenient), Terms(UNBOUNDED, priced=False))
    reservation.settle(settled(None))
    await reservation.conclude()
    assert await spent_and_reserved(strict) == await spent_and_reserved(lenient) == (0, 0)


async def test_a_spend_limit_that_is_mostly_spent_is_told_of_by_whoever_brought_it_there() -> None:
    heard = Heard()
    limit = SpendLimit(microcents=100, key="team", store=MemorySpendStore(), warn_at=0.5)
    for microcents in (40, 10, 10):
        reservation = await admit(shared_run(limit, listener=heard), request(microcents))
        reservation.settle(settled(microcents))
        await reservation.conclude()
    [warning] = [event for event in heard.events if isinstance(event, BudgetWarning)]
    assert (warning.key, warning.share, warning.limit_usd) == ("team", Decimal("0.5"), MICROCENT * 100)
