"""An application counts with six digits, or with traps: the account and the budgets do not notice."""

from __future__ import annotations

import asyncio
import json
from decimal import ROUND_DOWN, Context, Decimal, FloatOperation, Inexact, Rounded, localcontext
from pathlib import Path

import httpx2
import pytest
from pydantic_ai.messages import ModelRequest
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from fastroai import (
    Budget,
    BudgetExceeded,
    CostCalculator,
    FastroAgent,
    Pipeline,
    RunHistory,
    SpendLimit,
    SQLiteRunStore,
    budget_scope,
)
from fastroai.records import EXACT, RequestRecord
from fastroai.store import MemorySpendStore
from fastroai.usage import RequestBound, UsageReport, format_cost, request_bound
from fastroai.usage.prices.flat_prices import FlatPrices

CONTEXTS = [
    Context(prec=6),
    Context(prec=1, rounding=ROUND_DOWN),
    Context(prec=6, traps=[FloatOperation]),
    Context(prec=3, traps=[Inexact, Rounded]),
]
PRICES = {"odd": {"input_per_mtok": "0.123456789", "output_per_mtok": "1.000000001", "per_request": "1e-15"}}
COST = (
    Decimal("1000003") * Decimal("0.123456789") / 10**6
    + 7 * Decimal("1.000000001") / 10**6
    + Decimal("1e-15")
)
ALMOST_THREE = COST * 3 - Decimal("1e-14")
"""What is left for the third request differs from its cost in the 14th digit."""


def answer(request: httpx2.Request) -> httpx2.Response:
    body = {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "odd",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}],
        "usage": {"prompt_tokens": 1_000_003, "completion_tokens": 7, "total_tokens": 1_000_010},
    }
    return httpx2.Response(200, content=json.dumps(body), headers={"content-type": "application/json"})


def odd_agent(budget: Budget | SpendLimit | None = None) -> FastroAgent[None, str]:
    client = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    model = OpenAIChatModel("odd", provider=OpenAIProvider(api_key="key", http_client=client))
    calculator = CostCalculator(PRICES)  # type: ignore[arg-type]
    return FastroAgent(model, cost_calculator=calculator, max_tokens=7, budget=budget)


@pytest.mark.parametrize("context", CONTEXTS, ids=str)
async def test_sums_are_exact(context: Context) -> None:
    with localcontext(context):
        async with budget_scope(Budget(usd=100, on_unbounded="allow")) as scope:
            await asyncio.gather(*(odd_agent().run("q") for _ in range(3)))
        report, text = scope.report(), format_cost(scope.usage.cost_usd)
    assert scope.usage.cost_usd == 3 * COST
    assert scope.usage.committed_usd == 3 * COST
    assert report.total.cost_usd == report.by_model["openai:odd"].cost_usd == 3 * COST
    assert text == "$0.37"


async def answers_until_a_stop(budget: Budget | SpendLimit) -> int:
    agent, count = odd_agent(budget), 0
    async with budget_scope(budget) as scope:
        for _ in range(5):
            try:
                await agent.run("q")
            except BudgetExceeded:
                break
            count += 1
    assert scope.usage.cost_usd == EXACT.multiply(COST, count)
    return count


def ceilings() -> list[Budget | SpendLimit]:
    return [
        Budget(usd=ALMOST_THREE, on_unbounded="allow"),
        SpendLimit(usd=ALMOST_THREE, window="total", key="k", store=MemorySpendStore(), on_unbounded="allow"),
    ]


@pytest.mark.parametrize("context", CONTEXTS, ids=str)
async def test_budgets_and_limits_stop_at_the_same_request(context: Context) -> None:
    expected = [await answers_until_a_stop(ceiling) for ceiling in ceilings()]
    with localcontext(context):
        assert [await answers_until_a_stop(ceiling) for ceiling in ceilings()] == expected


@pytest.mark.parametrize("context", CONTEXTS, ids=str)
async def test_quotes_are_exact(context: Context) -> None:
    prices = {"gpt-4o-mini": PRICES["odd"]}
    model = OpenAIChatModel("gpt-4o-mini", provider=OpenAIProvider(api_key="key"))
    agent = FastroAgent(model, output_type=int, retries=2, cost_calculator=CostCalculator(prices))  # type: ignore[arg-type]
    expected = await agent.estimate("How many are there?")
    assert expected.upper_usd is not None
    with localcontext(context):
        quote = await agent.estimate("How many are there?")
    assert quote == expected


def bound_with_searches() -> RequestBound:
    model = AnthropicModel("claude-sonnet-4-5", provider=AnthropicProvider(api_key="key"))
    parameters = ModelRequestParameters(native_tools=[WebSearchTool(max_uses=3)])
    messages = [ModelRequest.user_text_prompt("What is new?")]
    return request_bound(CostCalculator(), model, messages, {"max_tokens": 77}, parameters)


@pytest.mark.parametrize("context", CONTEXTS, ids=str)
def test_bounds_of_searches_are_exact(context: Context) -> None:
    expected = bound_with_searches()
    assert expected.cost_usd is not None
    with localcontext(context):
        assert bound_with_searches() == expected


@pytest.mark.parametrize("context", CONTEXTS, ids=str)
def test_reports_say_how_much_bills_differ_from_prices(context: Context) -> None:
    bill, price = Decimal("1.2345678"), Decimal(1)
    record = RequestRecord(
        model="odd", provider="openai", outcome="settled", cost_usd=bill, stated_usd=bill, priced_usd=price
    )
    report = UsageReport.of([record])
    with localcontext(context):
        assert "billed 0.235 USD more" in str(report)


@pytest.mark.parametrize("context", CONTEXTS, ids=str)
async def test_runs_are_recorded_and_listed_with_their_costs(context: Context, tmp_path: Path) -> None:
    store = SQLiteRunStore(tmp_path / "runs.db")
    pipeline = Pipeline("asks", {"ask": odd_agent().as_step("How many are there?")})
    with localcontext(context):
        await pipeline.execute(store=store)
        [run] = await RunHistory(store).list()
    assert (run.status, run.cost_usd) == ("finished", COST)


@pytest.mark.parametrize("context", CONTEXTS, ids=str)
def test_the_longest_answer_that_an_amount_pays_for_is_exact(context: Context) -> None:
    prices = FlatPrices(input_per_mtok=Decimal("0.123456789"), output_per_mtok=Decimal("1.000000001"))
    bound = RequestBound(
        input_tokens=1_000_003, output_tokens=None, cost_usd=None, prices=prices, least_output_tokens=1
    )
    usd = prices.cost(1_000_003, 123_456)
    assert usd is not None
    with localcontext(context):
        lowered = bound.lowered(usd=usd, tokens=None)
    assert lowered is not None
    assert lowered.output_tokens == 123_456
