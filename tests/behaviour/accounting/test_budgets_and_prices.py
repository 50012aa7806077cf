"""Budgets of agent calls, and prices: of the list, of the user, and none."""

from __future__ import annotations

import asyncio
import warnings
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.models import Model
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel
from support.accounting import Account, listed_cost, open_account

from fastroai import Budget, CostBudgetExceeded, CostCalculator, FastroAgent
from fastroai.errors import ConfigurationError, UnboundedRequestError, UnpricedModelError, usage_of
from fastroai.testing import Fault, ModelServer, Reply, ToolCall, Usage
from fastroai.usage import UnpricedModelWarning

CALLS_WEATHER = Reply(tool_calls=[ToolCall("weather", {"city": "Paris"})], usage=Usage(200, 16))
OK = Reply("ok", usage=Usage(200, 16))

UNKNOWN = ["openai:my-own-model", "openai-chat:my-own-model", "anthropic:my-own-model"]


def weather(city: str) -> str:
    """The weather."""
    return f"rain in {city}"


async def most_of_one_request(model: Model, *, max_tokens: int = 16, **options: Any) -> int:
    """Microcents that an agent's first request can cost at most: a budget that cannot pay for it says so."""
    agent = FastroAgent(model, max_tokens=max_tokens, **options)
    with pytest.raises(CostBudgetExceeded) as caught:
        await agent.run("?", cost_budget=1)
    assert caught.value.requested_microcents is not None
    return caught.value.requested_microcents


# --- budgets ---


@pytest.mark.parametrize("budget_of", ["agent", "call"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_budget_used_up_in_a_tool_loop_stops_before_the_next_request(
    server: ModelServer, model: Model, account: Account, budget_of: str, streamed: bool
) -> None:
    server.rule(None, CALLS_WEATHER)
    microcents = await most_of_one_request(model, tools=[weather])
    assert account.records == []
    of_agent, for_call = (microcents, None) if budget_of == "agent" else (None, microcents)
    agent = FastroAgent(model, name="looper", tools=[weather], max_tokens=16, cost_budget=of_agent)
    with pytest.raises(CostBudgetExceeded) as caught:
        if streamed:
            async for _ in agent.run_stream("?", cost_budget=for_call):
                pass
        else:
            await agent.run("?", cost_budget=for_call)
    error = caught.value
    [entry] = server.ledger.entries
    assert error.budget_microcents == microcents
    assert error.actual_microcents == round(listed_cost(entry) * 1_000_000)
    assert error.requested_microcents is not None
    assert error.actual_microcents + error.requested_microcents > microcents
    assert error.step_id is None
    assert error.scope_path == ("test", "looper")
    account.assert_matches(error.usage)
    assert account.outcomes == ["settled"]


async def test_a_budget_that_cannot_pay_for_one_request_sends_none(
    server: ModelServer, model: Model, account: Account
) -> None:
    agent = FastroAgent(model, max_tokens=16)
    microcents = await most_of_one_request(model)
    with pytest.raises(CostBudgetExceeded) as caught:
        await agent.run("?", cost_budget=1)
    assert (caught.value.actual_microcents, caught.value.requested_microcents) == (0, microcents)
    assert server.ledger.entries == ()
    assert account.records == []


async def test_the_budget_of_a_call_holds_beside_that_of_the_agent(
    server: ModelServer, model: Model, account: Account
) -> None:
    agent = FastroAgent(model, tools=[weather], max_tokens=16, cost_budget=1)
    with pytest.raises(CostBudgetExceeded):
        await agent.run("?", cost_budget=1_000_000)
    assert not account.records
    assert not server.ledger.entries


async def test_each_call_has_the_whole_budget_of_its_agent(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.rule(None, OK)
    agent = FastroAgent(model, max_tokens=16, cost_budget=await most_of_one_request(model))
    await asyncio.gather(*(agent.run("?") for _ in range(3)))
    account.assert_matches()
    assert len(account.records) == 3


async def test_a_budget_around_agents_bounds_all_of_them_together(server: ModelServer, model: Model) -> None:
    server.rule(None, OK)
    microcents = await most_of_one_request(model)
    async with open_account(server, Budget(microcents=microcents)) as account:
        await FastroAgent(model, max_tokens=16).run("?")
        with pytest.raises(CostBudgetExceeded) as caught:
            await FastroAgent(model, max_tokens=16, cost_budget=1_000_000).run("?")
        account.assert_matches()
    assert caught.value.scope_path == ("test",)
    assert len(server.ledger.entries) == 1


async def test_agents_side_by_side_do_not_pass_the_budget_around_them(
    server: ModelServer, model: Model
) -> None:
    server.rule(None, OK)
    microcents = await most_of_one_request(model)
    async with open_account(server, Budget(microcents=microcents)) as account:
        runs = (FastroAgent(model, max_tokens=16).run("?") for _ in range(8))
        answers = await asyncio.gather(*runs, return_exceptions=True)
        stops = [answer for answer in answers if isinstance(answer, CostBudgetExceeded)]
        assert len(stops) == 7
        account.assert_matches()
    assert len(server.ledger.entries) == 1


async def test_the_bound_of_an_unmeasured_request_counts_against_the_budget(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(Reply("lost", usage=Usage(20, 5), fault=Fault.disconnect()))
    microcents = await most_of_one_request(model, max_tokens=1_000)
    agent = FastroAgent(model, max_tokens=1_000, request_retries=1)
    with pytest.raises(CostBudgetExceeded) as caught:
        await agent.run("?", cost_budget=microcents)
    account.assert_matches(caught.value.usage)
    assert account.outcomes == ["unmeasured"]
    assert account.usage.cost_usd == 0
    assert caught.value.requested_microcents == microcents
    assert microcents - 1 <= caught.value.actual_microcents <= microcents, "that is rounded half to even"


async def test_a_refused_request_leaves_the_budget_as_it_was(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.rule(None, OK)
    microcents = await most_of_one_request(model)
    server.fail_next(1, Fault.status(503))
    response = await FastroAgent(model, max_tokens=16, cost_budget=microcents).run("?")
    account.assert_matches(response.usage)
    assert account.outcomes == ["released", "settled"]


def agent_without_a_bound(server: ModelServer) -> FastroAgent[None, str]:
    """At a dollar per million tokens."""
    prices = CostCalculator(pricing_overrides={"my-own-model": {"input_per_mtok": 1, "output_per_mtok": 1}})
    return FastroAgent(server.model("openai:my-own-model"), cost_calculator=prices, request_retries=1)


async def test_a_budget_refuses_a_request_without_a_bound_before_it_is_sent(
    server: ModelServer, account: Account
) -> None:
    agent = agent_without_a_bound(server)
    with pytest.raises(UnboundedRequestError, match="set max_tokens.*on_unbounded='allow'"):
        await agent.run("?", cost_budget=1_000_000)
    assert account.records == []
    assert server.ledger.entries == ()
    await agent.run("?", cost_budget=1_000_000, model_settings={"max_tokens": 100})
    assert account.outcomes == ["settled"]


async def test_a_budget_that_allows_requests_without_a_bound_stops_when_it_is_used_up(
    server: ModelServer,
) -> None:
    server.script(Reply("ok", usage=Usage(60, 10)))
    async with open_account(server, Budget(microcents=70, on_unbounded="allow")) as account:
        await agent_without_a_bound(server).run("?")
        with pytest.raises(CostBudgetExceeded) as caught:
            await agent_without_a_bound(server).run("?")
    assert (caught.value.actual_microcents, caught.value.requested_microcents) == (70, None)
    assert account.outcomes == ["settled"]


async def test_a_budget_that_allows_requests_without_a_bound_goes_on_after_a_lost_one(
    server: ModelServer,
) -> None:
    server.script(Reply("lost", fault=Fault.disconnect()), Reply("ok", usage=Usage(60, 10)))
    async with open_account(server, Budget(microcents=100, on_unbounded="allow")) as account:
        await agent_without_a_bound(server).run("?")
    assert account.outcomes == ["unmeasured", "settled"]
    assert account.records[0].bound_usd is None
    assert account.usage.unbounded_requests == 1


@pytest.mark.parametrize("microcents", [0, -5, 1.5, True])
def test_a_budget_that_cannot_be_meant_is_refused(server: ModelServer, microcents: int) -> None:
    agent = FastroAgent(TestModel())
    with pytest.raises(ConfigurationError, match="cost_budget"):
        FastroAgent(TestModel(), cost_budget=microcents)
    with pytest.raises(ConfigurationError, match="cost_budget"):
        agent.run_stream("?", cost_budget=microcents)


# --- models without a price ---


@pytest.mark.parametrize("unknown", UNKNOWN)
async def test_a_budget_refuses_a_model_without_a_price_before_any_request(
    server: ModelServer, account: Account, unknown: str
) -> None:
    with pytest.raises(UnpricedModelError, match=r"add one: CostCalculator\(pricing_overrides=") as caught:
        await FastroAgent(server.model(unknown), cost_budget=1_000).run("?")
    assert (caught.value.provider, caught.value.model) == (
        "anthropic" if "anthropic" in unknown else "openai",
        "my-own-model",
    )
    assert server.ledger.entries == ()
    assert account.records == []


async def test_a_budget_can_allow_models_without_a_price(server: ModelServer) -> None:
    async with open_account(server, Budget(microcents=1, on_unpriced="allow")) as account:
        with pytest.warns(UnpricedModelWarning):
            await FastroAgent(server.model(UNKNOWN[0])).run("?")
    assert account.usage.unpriced_requests == 1


@pytest.mark.parametrize("unknown", UNKNOWN)
async def test_a_model_without_a_price_is_warned_of_once_and_its_requests_are_counted(
    server: ModelServer, account: Account, unknown: str
) -> None:
    server.rule(None, Reply("ok", usage=Usage(100, 10)))
    agent = FastroAgent(server.model(unknown))
    with pytest.warns(UnpricedModelWarning, match="my-own-model") as warned:
        first = await agent.run("?")
        second = await agent.run("?")
    assert len(warned) == 1
    assert first.cost_usd == second.cost_usd == 0
    assert first.unpriced_requests == 1
    assert not first.cost_complete
    assert (first.input_tokens, first.output_tokens) == (100, 10)
    assert account.usage.unpriced_requests == 2
    assert all(record.unpriced and record.cost_usd is None for record in account.records)


async def test_a_warning_names_the_model_that_has_answered(server: ModelServer, model: Model) -> None:
    server.rule(None, Reply("ok", usage=Usage(100, 10), model="its-successor"))
    with pytest.warns(UnpricedModelWarning, match="no price is known for '[a-z]+:its-successor'"):
        assert not (await FastroAgent(model).run("?")).cost_complete


async def test_a_model_without_a_price_beside_one_that_has_one(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.rule(None, Reply("ok", usage=Usage(100, 10)))
    with pytest.warns(UnpricedModelWarning):
        await FastroAgent(server.model(UNKNOWN[0])).run("?")
    response = await FastroAgent(model).run("?")
    assert response.cost_complete
    assert account.usage.cost_usd == response.cost_usd > 0
    assert not account.usage.cost_complete


# --- prices of one's own ---


@pytest.mark.parametrize("with_provider", [False, True])
@pytest.mark.parametrize("unknown", UNKNOWN)
async def test_a_price_of_ones_own_is_the_one_that_counts(
    server: ModelServer, account: Account, unknown: str, with_provider: bool
) -> None:
    server.script(Reply("ok", usage=Usage(1_000, 100, cache_read_tokens=400)))
    key = unknown.replace("-chat", "") if with_provider else "my-own-model"
    calculator = CostCalculator(
        pricing_overrides={
            key: {"input_per_mtok": 2.5, "output_per_mtok": "10", "cache_read_per_mtok": Decimal("0.5")}
        }
    )
    response = await FastroAgent(server.model(unknown), cost_calculator=calculator, max_tokens=200).run("?")
    # 600 × $2.50 + 400 × $0.50 + 100 × $10 per million
    assert response.cost_usd == Decimal("0.0027")
    assert response.cost_complete


async def test_a_price_of_ones_own_goes_before_the_list_price_and_stays_with_its_agent(
    server: ModelServer, model: Model, account: Account, reference: str
) -> None:
    server.rule(None, Reply("ok", usage=Usage(1_000, 100)))
    name = reference.partition(":")[2]
    own = CostCalculator(pricing_overrides={name: {"input_per_mtok": 1_000, "output_per_mtok": 0}})
    dear = await FastroAgent(model, cost_calculator=own).run("?")
    listed = await FastroAgent(model).run("?")
    assert dear.cost_usd == Decimal(1)
    assert listed.cost_usd == listed_cost(server.ledger.entries[1])


async def test_a_price_of_zero_means_free_and_complete(
    server: ModelServer, model: Model, account: Account, reference: str
) -> None:
    free = CostCalculator()
    free.add_pricing_override(reference.partition(":")[2], input_per_mtok=0, output_per_mtok=0)
    response = await FastroAgent(model, cost_calculator=free, cost_budget=1).run("?")
    assert response.cost_usd == 0
    assert response.cost_complete
    assert response.total_tokens > 0
    assert account.records[0].cost_usd == Decimal(0)


async def test_a_test_model_is_free_and_needs_no_price(account: Account) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        response = await FastroAgent(TestModel(), cost_budget=1).run("?")
        async for chunk in FastroAgent(TestModel(), cost_budget=1).run_stream("?"):
            streamed = chunk.usage_data
    assert streamed is not None
    assert response.cost_usd == streamed.cost_usd == 0
    assert response.cost_complete
    assert streamed.cost_complete


async def test_a_function_model_that_fails_costs_nothing(account: Account) -> None:
    def fails(*_: object) -> None:
        raise ModelAPIError("function", "no")

    with pytest.raises(ModelAPIError) as caught:
        await FastroAgent(FunctionModel(fails), cost_budget=1).run("?")  # type: ignore[arg-type]
    usage = usage_of(caught.value)
    assert usage is not None
    assert usage.committed_usd == 0


async def test_pydantic_ai_sees_the_same_cost(
    server: ModelServer, model: Model, account: Account, reference: str
) -> None:
    own = CostCalculator(
        pricing_overrides={reference.partition(":")[2]: {"input_per_mtok": 7, "output_per_mtok": 70}}
    )
    server.script(Reply("ok", usage=Usage(1_000, 100)))
    response = await FastroAgent(agent=Agent(model), cost_calculator=own).run("?")
    assert response.result.response.usage.cost == response.cost_usd == Decimal("0.014")
