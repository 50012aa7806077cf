"""What budgets expect of a request, by the requests before it, or by what its provider counts."""

from __future__ import annotations

from decimal import Decimal

import httpx2
import pytest
from anthropic import AsyncAnthropic
from pydantic_ai.messages import ModelRequest
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.providers.anthropic import AnthropicProvider

from fastroai.agent import Metered
from fastroai.agent.quotes.learned import MODELS_REMEMBERED, PastRequest, PastRequests, UsualRequest
from fastroai.agent.requests.request_terms import Terms
from fastroai.records import RequestRecord, Tokens
from fastroai.usage.facts.documented import all_facts
from fastroai.usage.facts.priors import USUAL_ANSWER

ANTHROPIC = all_facts()["anthropic"].allowances

USD_PER_TOKEN = (Decimal("0.000001"), Decimal("0.000005"))
"""Of Claude Haiku 4.5: input and output."""


def terms(count: httpx2.Response, *, max_tokens: int | None = None) -> Terms:
    """A request to Claude, which answers `count` when it is to count its input."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        assert request.url.path == "/v1/messages/count_tokens"
        return count

    http_client = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    client = AsyncAnthropic(api_key="none", http_client=http_client, max_retries=0)
    return Terms(
        Metered(),
        AnthropicModel("claude-haiku-4-5", provider=AnthropicProvider(anthropic_client=client)),
        [ModelRequest.user_text_prompt("How are you?")],
        None if max_tokens is None else {"max_tokens": max_tokens},
        ModelRequestParameters(),
        streamed=False,
    )


COUNTED = httpx2.Response(200, json={"input_tokens": 11})


def settled(input_tokens: int, output_tokens: int) -> RequestRecord:
    tokens = Tokens(input_tokens=input_tokens, output_tokens=output_tokens)
    cost = USD_PER_TOKEN[0] * input_tokens + USD_PER_TOKEN[1] * output_tokens
    return RequestRecord(
        model="claude-haiku-4-5", provider="anthropic", outcome="settled", tokens=tokens, cost_usd=cost
    )


def long_request(count: httpx2.Response) -> Terms:
    """A request whose bound is far above its tokens: a token is at most a byte, and about 3.5 of them."""
    request = terms(count)
    request.messages = [ModelRequest.user_text_prompt("The quarterly report shows growth. " * 100)]
    return request


async def test_before_anything_is_known_a_short_answer_to_the_input_at_list_prices_is_expected() -> None:
    request = long_request(COUNTED)
    assert request.expected_tokens == 1_000 + USUAL_ANSWER.tokens, "3.5 bytes for each token of Claude"
    assert request.expected_usd == USD_PER_TOKEN[0] * 1_000 + USD_PER_TOKEN[1] * USUAL_ANSWER.tokens


async def test_a_request_with_web_searches_is_expected_to_search_once() -> None:
    request = terms(COUNTED)
    request.parameters = ModelRequestParameters(native_tools=[WebSearchTool()])
    assert request.bound.cost_usd is None
    assert request.expected_usd is not None
    assert Decimal("0.01") < request.expected_usd < Decimal("0.03"), "$0.01 a search, and what it finds"
    request.learn(settled(20_000, 400))
    learned = Decimal("0.022") * Decimal("1.25")
    assert abs(request.expected_usd - learned) < Decimal("1e-12"), "then the mean, and a quarter more"


async def test_no_more_is_expected_of_an_answer_than_it_may_have() -> None:
    request = terms(COUNTED, max_tokens=100)
    assert request.expected_tokens == 4 + 100


async def test_a_count_of_the_provider_lowers_the_bound_and_stays_above_the_count() -> None:
    request = long_request(httpx2.Response(200, json={"input_tokens": 720}))
    assert (before := request.bound.input_tokens) is not None
    counted = await request.counted_by_provider()
    assert counted.bound.input_tokens == 792 + ANTHROPIC.request < before, "a tenth more, and an allowance"
    assert counted.bound.cost_usd is not None
    assert request.bound.cost_usd is not None
    assert counted.bound.cost_usd < request.bound.cost_usd
    assert await counted.counted_by_provider() is counted, "it is asked once"


@pytest.mark.parametrize(
    "answer",
    [
        httpx2.Response(429, json={"error": {"type": "rate_limit_error", "message": "slow"}}),
        httpx2.Response(200, json={"input_tokens": None}),
        httpx2.Response(200, json={"input_tokens": 0}),
        httpx2.Response(200, json={"input_tokens": -5}),
        httpx2.Response(200, json={}),
        httpx2.Response(200, text="not JSON"),
        httpx2.Response(200, json={"input_tokens": 10**9}),
    ],
)
async def test_a_count_that_fails_or_cannot_be_true_changes_nothing(answer: httpx2.Response) -> None:
    request = long_request(answer)
    before = request.bound
    assert await request.counted_by_provider() is request
    assert request.bound == before
    assert await request.counted_by_provider() is request, "and nobody is asked again"


async def test_what_is_learned_of_requests_takes_the_place_of_what_is_usual() -> None:
    request = terms(httpx2.Response(500))
    for output_tokens in (100, 200, 300):
        request.learn(settled(10, output_tokens))
    assert request.expected_usd is not None
    usual = USD_PER_TOKEN[0] * 10 + USD_PER_TOKEN[1] * 200
    assert abs(request.expected_usd - usual * Decimal("1.25")) < usual / 10
    assert request.enough == 400, "three answers had 300 at most: a third more"


async def test_what_is_learned_never_changes_the_bound() -> None:
    request = terms(COUNTED)
    before = request.bound
    request.learn(settled(10, 5))
    after = Terms(
        request.meter, request.wrapped, request.messages, None, request.parameters, streamed=False
    ).bound
    assert (after.output_tokens, after.prices) == (before.output_tokens, before.prices)


def past(output_tokens: int) -> PastRequest:
    return PastRequest(
        output_tokens=output_tokens,
        tokens=output_tokens,
        cost_usd=Decimal(1),
        bound_tokens=0,
        bound_usd=Decimal(2),
    )


def test_the_more_answers_are_known_the_less_is_added_to_the_longest() -> None:
    assert [UsualRequest.of([past(100)] * count).longest_answer for count in (1, 2, 20, 50)] == [
        200,
        150,
        105,
        102,
    ]


def test_shares_are_those_of_all_requests_together() -> None:
    usual = UsualRequest.of([past(10), past(20)])
    assert (usual.output_tokens, usual.share_of_usd, usual.share_of_tokens) == (
        15,
        Decimal("0.5"),
        Decimal(1),
    )


def test_of_many_models_the_first_ones_are_forgotten() -> None:
    requests = PastRequests(UsualRequest.of)
    for number in range(MODELS_REMEMBERED + 1):
        requests.add(f"model {number}", past(10))
    assert requests.usual("model 0") is None
    assert requests.usual("model 1") is not None
