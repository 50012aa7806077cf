"""Prices, bounds and sums of money are the same in every decimal context of the application."""

from __future__ import annotations

from decimal import Clamped, Context, Decimal, FloatOperation, Inexact, Rounded, Subnormal, localcontext
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import ModelRequest
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.usage import RequestUsage, RunUsage
from support.later import Provider

from fastroai import Budget, CostCalculator
from fastroai.records import RequestRecord, Usage
from fastroai.runtime.budgets.ledger import Account, Amounts, Claim
from fastroai.usage import request_bound
from fastroai.usage.money import ExactUsd

CONTEXTS = st.builds(
    Context,
    prec=st.integers(1, 9),
    traps=st.sets(st.sampled_from([Inexact, Rounded, Subnormal, Clamped, FloatOperation])).map(list),
)
COUNTS = st.integers(0, 10**6)
AMOUNTS = st.integers(1, 10**15).map(lambda number: Decimal(number).scaleb(-15, Context(prec=30)))


def priced(input_tokens: int, output_tokens: int) -> Any:
    usage = RequestUsage(input_tokens=input_tokens, output_tokens=output_tokens)
    return CostCalculator().cost_of_usage(usage, model="gpt-4.1-mini", provider="openai")


def bounded(max_tokens: int, usd: Decimal) -> Any:
    settings: Any = {"max_tokens": max_tokens}
    messages: Any = [ModelRequest.user_text_prompt("x" * 1_237)]
    found = request_bound(CostCalculator(), MODEL, messages, settings, ModelRequestParameters())
    return found, found.lowered(usd=usd, tokens=None)


MODEL = Provider().model()


@given(context=CONTEXTS, tokens=st.tuples(COUNTS, COUNTS), usd=AMOUNTS)
def test_prices_and_bounds_are_exact(context: Context, tokens: tuple[int, int], usd: Decimal) -> None:
    expected = priced(*tokens), bounded(tokens[1] + 1, usd)
    with localcontext(context):
        assert (priced(*tokens), bounded(tokens[1] + 1, usd)) == expected


@given(context=CONTEXTS, spent=st.lists(AMOUNTS, max_size=6), asked=AMOUNTS)
def test_sums_and_accounts_are_exact(context: Context, spent: list[Decimal], asked: Decimal) -> None:
    def account() -> Any:
        usage = Usage()
        of_budget = Account(Budget(usd="2.000000000000001"), usage)
        for usd in spent:
            usage.add(RequestRecord(model="m", provider="p", outcome="settled", cost_usd=usd))
        claim = Claim((of_budget,))
        of_budget.ledger.expect(claim)
        of_budget.ledger.ask(claim, Amounts(usd=asked))
        return usage.copy(), usage.committed_usd, of_budget.room, of_budget.share, claim.state

    expected = account()
    with localcontext(context):
        assert account() == expected


@given(context=CONTEXTS, spent=st.lists(AMOUNTS, min_size=1, max_size=6))
def test_what_pydantic_ai_adds_up_is_exact(context: Context, spent: list[Decimal]) -> None:
    with localcontext(Context(prec=60)):
        expected = sum(spent, Decimal(0))
    total = RunUsage()
    with localcontext(context):
        for usd in spent:
            total.incr(RequestUsage(cost=ExactUsd(usd)))
    assert total.cost == expected
