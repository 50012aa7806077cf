"""At a gateway: what its owner says of it bounds requests, and the bill that it states in a header counts."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from fastroai import Budget, CostBudgetExceeded, CostCalculator, FastroAgent, usage_of
from fastroai.testing import Fault, ModelServer, Reply, ServedRequest, Usage
from fastroai.usage import Endpoint, NearMissWarning

REFERENCES = ("openai:gpt-4o", "openai-chat:gpt-4o")
COST = "x-litellm-response-cost"
USAGE = Usage(100, 20)


@pytest.fixture(autouse=True)
def at_the_server(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that FastroAI builds ask the model server, which is nobody's own host."""
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)


class TestStatedCosts:
    @pytest.mark.parametrize("reference", REFERENCES)
    async def test_the_header_is_the_bill_and_prices_stand_beside_it(
        self, server: ModelServer, reference: str
    ) -> None:
        server.script(Reply("hello", usage=USAGE, headers={COST: "3.45e-05"}))
        response = await FastroAgent(reference).run("?")
        (record,) = response.records
        assert (record.cost_usd, record.stated_usd, record.cost_source) == (
            Decimal("0.0000345"),
            Decimal("0.0000345"),
            "stated",
        )
        assert record.priced_usd is not None
        assert record.priced_usd > record.stated_usd
        assert response.usage.cost_complete

    async def test_a_bill_of_nothing_is_nothing(self, server: ModelServer) -> None:
        server.script(Reply("from the cache", usage=USAGE, headers={COST: "0.0"}))
        response = await FastroAgent("openai:gpt-4o").run("?")
        assert (response.cost_usd, response.records[0].cost_source) == (0, "stated")

    async def test_a_model_without_a_price_is_paid_as_stated(self, server: ModelServer) -> None:
        server.script(Reply("hello", usage=USAGE, headers={COST: "0.002"}))
        response = await FastroAgent("openai:in-house").run("?")
        assert response.cost_usd == Decimal("0.002")
        assert response.usage.cost_complete

    @pytest.mark.parametrize("value", ["None", "", "-1", "nan", "free"])
    async def test_what_is_no_amount_states_nothing(self, server: ModelServer, value: str) -> None:
        server.script(Reply("hello", usage=USAGE, headers={COST: value}))
        response = await FastroAgent("openai:gpt-4o").run("?")
        assert response.records[0].cost_source == "priced"

    @pytest.mark.parametrize("stated", ["0.000001", "0", "0.0"])
    async def test_a_stream_is_priced_for_its_header_came_before_its_answer(
        self, server: ModelServer, stated: str
    ) -> None:
        server.script(Reply("hello", usage=USAGE, headers={COST: stated}))
        chunks = [chunk async for chunk in FastroAgent("openai:gpt-4o").run_stream("?")]
        response = chunks[-1].usage_data
        assert response is not None
        (record,) = response.records
        list_price = 100 * Decimal("2.5e-6") + 20 * Decimal("10e-6")
        assert (record.cost_usd, record.cost_source, record.stated_usd) == (list_price, "priced", None)

    async def test_so_is_claude_whose_answers_pydantic_ai_always_streams(self, server: ModelServer) -> None:
        server.script(Reply("hello", usage=USAGE, headers={COST: "0.000001"}))
        response = await FastroAgent("anthropic:claude-haiku-4-5").run("?")
        assert response.records[0].cost_source == "priced"

    async def test_each_request_has_its_own_bill_though_they_overlap(self, server: ModelServer) -> None:
        server.rule(
            None,
            lambda request: Reply(
                "ok", usage=USAGE, latency=0.05, headers={COST: f"0.{request.prompt.split()[-1]}"}
            ),
        )
        one = FastroAgent("openai:gpt-4o")
        answers = await asyncio.gather(*(one.run(f"cost {number}") for number in range(1, 8)))
        assert [answer.cost_usd for answer in answers] == [Decimal(f"0.{number}") for number in range(1, 8)]

    async def test_a_refused_request_costs_nothing_and_its_repetition_what_is_stated(
        self, server: ModelServer
    ) -> None:
        server.script(Reply("hello", usage=USAGE, headers={COST: "0.25"}))
        server.fail_next(1, Fault.status(503))
        response = await FastroAgent("openai:gpt-4o").run("?")
        assert [record.stated_usd for record in response.records] == [None, Decimal("0.25")]

    def test_on_another_event_loop_too(self, server: ModelServer) -> None:
        server.rule(None, Reply("hello", usage=USAGE, headers={COST: "0.25"}))
        one = FastroAgent("openai:gpt-4o")
        costs = [one.run_sync("?").cost_usd, asyncio.run(one.run("?")).cost_usd, one.run_sync("?").cost_usd]
        assert costs == [Decimal("0.25")] * 3

    async def test_the_owner_names_another_header_or_none(self, server: ModelServer) -> None:
        server.rule(None, Reply("hello", usage=USAGE, headers={COST: "0.25", "x-team-cost": "0.5"}))
        for headers, cost in ((("x-missing", "x-team-cost"), Decimal("0.5")), ((), None)):
            calculator = CostCalculator(endpoints={server.url: Endpoint(cost_headers=headers)})
            response = await FastroAgent("openai:gpt-4o", cost_calculator=calculator).run("?")
            assert response.records[0].stated_usd == cost

    async def test_the_model_may_be_built_by_the_user(self, server: ModelServer) -> None:
        server.script(Reply("hello", usage=USAGE, headers={COST: "0.25"}))
        response = await FastroAgent(server.model("openai:gpt-4o")).run("?")
        assert response.records[0].cost_source == "stated"


class TestBounds:
    async def largest_max_tokens(self, server: ModelServer, usd: str, **endpoint: Any) -> int | None:
        """The `max_tokens` of a request without any, as a budget lets it go out."""
        sent: list[int | None] = []

        def answer(request: ServedRequest) -> Reply:
            sent.append(request.max_tokens)
            return Reply("ok", usage=Usage(10, 5))

        server.rule(None, answer)
        endpoints = {server.url: Endpoint(**endpoint)} if endpoint else {}
        agent = FastroAgent("openai:gpt-4o", cost_calculator=CostCalculator(endpoints=endpoints))
        await agent.run("?", budget=Budget(usd=usd))
        return sent[0]

    async def test_no_more_is_asked_for_than_a_model_of_that_name_can_answer(
        self, server: ModelServer
    ) -> None:
        assert await self.largest_max_tokens(server, "0.30") == 16_384

    async def test_a_limit_that_the_budget_sets_is_below_it(self, server: ModelServer) -> None:
        assert await self.largest_max_tokens(server, "0.20") == 11_500

    async def test_where_the_makers_rules_hold_the_longest_answer_is_known_and_nothing_is_asked_for(
        self, server: ModelServer
    ) -> None:
        assert await self.largest_max_tokens(server, "0.30", like="openai", service_tier="default") is None

    async def test_what_the_owner_says_is_all_that_a_bound_allows_for(self, server: ModelServer) -> None:
        bounds = []
        for endpoint in (None, Endpoint(like="openai"), Endpoint(like="openai", service_tier="default")):
            calculator = CostCalculator(endpoints={server.url: endpoint} if endpoint else None)
            agent = FastroAgent("openai:gpt-5-mini", max_tokens=100, cost_calculator=calculator)
            with pytest.raises(CostBudgetExceeded) as caught:
                await agent.run("?", cost_budget=1)
            bounds.append(caught.value.requested_microcents)
        # Priced for priority: 1,057 tokens of input and 100 of output; 25 of input. At the standard price.
        assert bounds == [836, 372, 207]

    async def test_an_open_model_under_a_budget_needs_a_price_and_a_limit(self, server: ModelServer) -> None:
        server.rule(None, Reply("ok", usage=Usage(1_000, 100)))
        free = Endpoint(prices={"*": {"input_per_mtok": 0, "output_per_mtok": 0, "per_request": "0.001"}})
        agent = FastroAgent(
            "openai-chat:llama3", cost_calculator=CostCalculator(endpoints={server.url: free})
        )
        response = await agent.run("?", budget=Budget(usd="0.001"))
        assert response.cost_usd == Decimal("0.001")


async def test_a_model_of_another_maker_is_paid_for_by_the_list_of_its_maker(server: ModelServer) -> None:
    server.rule(None, Reply("hello", usage=USAGE))
    endpoints = {server.environment()["OPENAI_BASE_URL"]: Endpoint(like="openai", service_tier="default")}
    agent = FastroAgent(
        "openai-chat:claude-sonnet-4-5",
        cost_calculator=CostCalculator(endpoints=endpoints),
        max_tokens=100,
    )
    response = await agent.run("?", budget=Budget(usd="0.02"))
    assert (response.cost_usd, response.cost_complete) == (Decimal("0.0006"), True)  # 100 at $3, 20 at $15
    with pytest.raises(CostBudgetExceeded) as stopped:
        await agent.run("?", budget=Budget(usd="0.0006"))
    assert stopped.value.requested_microcents >= 600


@pytest.mark.parametrize(("budget", "spent"), [(None, Decimal("0.00045")), (Budget(usd=1), Decimal(0))])
async def test_a_request_that_nearly_goes_to_an_endpoint_is_told_of_once(
    server: ModelServer, budget: Budget | None, spent: Decimal
) -> None:
    """Under a budget before it is sent, else after it is charged: warnings are errors here."""
    server.rule(None, Reply("hello", usage=USAGE))
    without_port = server.environment()["OPENAI_BASE_URL"].rpartition(":")[0]
    free = Endpoint(prices={"*": {"input_per_mtok": 0, "output_per_mtok": 0}})
    agent = FastroAgent("openai:gpt-4o", cost_calculator=CostCalculator(endpoints={without_port: free}))
    with pytest.raises(NearMissWarning, match="the port differs") as told:
        await agent.run("?", budget=budget)
    usage = usage_of(told.value)
    assert usage is not None
    assert usage.cost_usd == spent
    assert (await agent.run("?", budget=budget)).cost_usd == Decimal("0.00045")
