"""What a request asks of OpenAI, the tier and the cache, at the price of what it was given."""

from decimal import Decimal
from typing import Any

import httpx2
import pytest
from pydantic_ai import Agent, capabilities
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import ModelRequest, ModelResponse, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from fastroai import Budget, FastroAgent, budget_scope
from fastroai.errors import UnboundedRequestError
from fastroai.records import Usage
from fastroai.usage import CostCalculator, request_bound

NAME = "gpt-6.1-sol"
TOKENS = 10_000


def answer(name: str, *, written: int = 0, tier: str | None = None, cut: bool = False) -> dict[str, Any]:
    text = {"type": "output_text", "text": "fine", "annotations": []}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": name,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "content_filter"} if cut else None,
        "error": None,
        "output": [
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "service_tier": tier,
        "usage": {
            "input_tokens": TOKENS,
            "output_tokens": 5,
            "total_tokens": TOKENS + 5,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": written},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }


class OpenAI:
    """A server at OpenAI's address, and the models it was asked for."""

    def __init__(self, *, fails: bool = False, **given: Any) -> None:
        self.asked: list[str] = []
        self.given = given
        self.fails = fails

    def model(self, name: str = NAME) -> OpenAIResponsesModel:
        def handle(request: httpx2.Request) -> httpx2.Response:
            if request.url.path.endswith("/input_tokens"):
                return httpx2.Response(404, json={"error": {"message": "nothing is counted here"}})
            self.asked.append(name)
            if self.fails:
                return httpx2.Response(503, json={"error": {"message": "down"}})
            return httpx2.Response(200, json=answer(name, **self.given))

        client = httpx2.AsyncClient(transport=httpx2.MockTransport(handle))
        return OpenAIResponsesModel(name, provider=OpenAIProvider(api_key="k", http_client=client))


async def usage(settings: dict[str, Any], *, budget: Budget | None = None, **given: Any) -> Usage:
    settings = {"max_tokens": 50, "max_retries": 0, **settings}
    agent = FastroAgent(OpenAI(**given).model(), model_settings=settings)  # type: ignore[arg-type]
    async with budget_scope(budget) as scope:
        await agent.run("x" * 4 * TOKENS)
    return scope.usage


async def cost(settings: dict[str, Any], **given: Any) -> Decimal:
    spent = await usage(settings, budget=Budget(usd=1), **given)
    assert spent.cost_complete
    return spent.cost_usd


class TestTiers:
    @pytest.mark.parametrize("asked", ["fast", "priority"])
    async def test_a_faster_tier_costs_what_the_list_says_of_the_tier_that_answers(self, asked: str) -> None:
        listed = await cost({})
        assert await cost({"openai_service_tier": asked}, tier="priority") > listed
        assert await cost({"openai_service_tier": asked}, tier="default") == listed

    @pytest.mark.parametrize("asked", ["ultrafast", "scale"])
    async def test_a_tier_without_a_price_is_refused_by_name_under_a_budget(self, asked: str) -> None:
        with pytest.raises(UnboundedRequestError, match=f"no price is known for service tier '{asked}'"):
            await usage({"openai_service_tier": asked}, budget=Budget(usd=1))

    @pytest.mark.parametrize("told", ["ultrafast", None])
    @pytest.mark.filterwarnings("ignore:.*service_tier")
    async def test_without_a_budget_its_cost_is_incomplete_whether_or_not_the_answer_names_it(
        self, told: str | None
    ) -> None:
        spent = await usage({"openai_service_tier": "ultrafast"}, tier=told)
        assert not spent.cost_complete
        assert (await usage({"openai_service_tier": "ultrafast"}, tier="default")).cost_complete


class TestCaches:
    async def test_a_write_for_twelve_hours_costs_two_and_a_half_times_its_input(self) -> None:
        plain = await cost({})
        short = await cost(
            {"openai_prompt_cache_options": {"mode": "implicit", "ttl": "30m"}}, written=TOKENS
        )
        long = await cost({"openai_prompt_cache_options": {"mode": "implicit", "ttl": "12h"}}, written=TOKENS)
        premium = short - plain  # a quarter of the input
        assert premium > 0
        assert long - plain == 6 * premium

    def test_a_budget_reserves_it(self) -> None:
        messages = [ModelRequest(parts=[UserPromptPart("x" * 4 * TOKENS)])]
        reserved = []
        for ttl in ("30m", "12h"):
            settings: Any = {"max_tokens": 50, "openai_prompt_cache_options": {"ttl": ttl}}
            bound = request_bound(
                CostCalculator(), OpenAI().model(), messages, settings, ModelRequestParameters()
            )
            assert bound.cost_usd is not None
            reserved.append(bound.cost_usd)
        assert Decimal("1.9") < reserved[1] / reserved[0] <= 2


class TestTransports:
    async def test_http_is_as_without_the_setting(self) -> None:
        assert await cost({"openai_transport": "http"}) == await cost({})

    async def test_a_websocket_is_refused_under_a_budget(self) -> None:
        with pytest.raises(UnboundedRequestError, match="openai_transport='websocket' may ask for more"):
            await usage({"openai_transport": "websocket"}, budget=Budget(usd=1))


def is_filtered(response: ModelResponse) -> bool:
    """Say to fall back after an answer that a filter cut, which not every version does by itself."""
    return response.finish_reason == "content_filter"


@pytest.mark.skipif(not hasattr(capabilities, "ModelFallback"), reason="of a later PydanticAI")
class TestModelFallback:
    async def test_each_candidate_is_in_the_account_once(self) -> None:
        down, refuses, serves = OpenAI(fails=True), OpenAI(cut=True), OpenAI()
        candidates = (refuses.model("gpt-5.6-sol"), serves.model())
        fallback = capabilities.ModelFallback(*candidates, fallback_on=[ModelAPIError, is_filtered])
        agent = FastroAgent(down.model(), max_tokens=50, capabilities=[fallback])
        async with budget_scope(Budget(usd=1)) as scope:
            await agent.run("Hi")
        assert down.asked
        assert (len(refuses.asked), len(serves.asked)) == (1, 1)
        billed = [record for record in scope.records if record.outcome != "released"]
        assert [(record.model, record.outcome) for record in billed] == [
            ("gpt-5.6-sol", "settled"),
            (NAME, "settled"),
        ]

    async def test_a_budget_of_requests_holds_for_its_candidates(self) -> None:
        refuses, serves = OpenAI(cut=True), OpenAI()
        fallback = capabilities.ModelFallback(serves.model("gpt-5.6-sol"), fallback_on=is_filtered)
        agent = Agent(refuses.model(), capabilities=[fallback])
        async with budget_scope(Budget(requests=1)) as scope:
            with pytest.raises(Exception, match="budget"):
                await FastroAgent(agent=agent).run("Hi")
        assert scope.usage.request_count == 1
        assert not serves.asked
