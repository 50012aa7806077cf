"""Embeddings are reserved and charged like other spending."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI
from pydantic_ai.embeddings import Embedder, TestEmbeddingModel
from pydantic_ai.embeddings.google import GoogleEmbeddingModel, GoogleEmbeddingSettings
from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
from pydantic_ai.embeddings.result import EmbeddingResult
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage

from fastroai import Budget, CostBudgetExceeded, budget_scope
from fastroai.agent import Metered
from fastroai.errors import ConfigurationError, UnpricedModelError, usage_of
from fastroai.records import Usage

PRICE = Decimal("0.02") / 1_000_000
"""Of a token of text-embedding-3-small: https://platform.openai.com/docs/pricing"""


class Provider:
    """OpenAI's endpoint for embeddings, which bills a token for each four letters."""

    def __init__(self, *, tells_usage: bool = True, status: int = 200) -> None:
        self.billed: list[int] = []
        self._tells_usage, self._status = tells_usage, status

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        if self._status != 200:
            return httpx2.Response(self._status, json={"error": {"message": "no"}})
        texts = json.loads(request.content)["input"]
        tokens = sum(len(text) // 4 for text in texts)
        self.billed.append(tokens)
        vectors = [{"object": "embedding", "index": n, "embedding": [0.0]} for n, _ in enumerate(texts)]
        usage = {"prompt_tokens": tokens if self._tells_usage else 0, "total_tokens": tokens}
        body = {"object": "list", "model": "text-embedding-3-small", "data": vectors, "usage": usage}
        return httpx2.Response(200, json=body)

    def embedder(self, name: str = "text-embedding-3-small") -> Embedder:
        return embedder(self, name)


def embedder(answer: Any, name: str = "text-embedding-3-small") -> Embedder:
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    client = AsyncOpenAI(api_key="k", http_client=http, max_retries=0)
    model = OpenAIEmbeddingModel(name, provider=OpenAIProvider(openai_client=client))
    return Embedder(Metered().embedding_model(model))


async def test_an_embedding_costs_what_its_tokens_cost() -> None:
    provider = Provider()
    async with budget_scope(Budget(usd=1)) as scope:
        await provider.embedder().embed_documents(["word " * 40, "word " * 80])
    assert scope.usage.cost_usd == 150 * PRICE
    assert (scope.usage.input_tokens, scope.usage.request_count) == (150, 0)
    [record] = scope.records
    assert (record.kind, record.provider, record.model) == ("spend", "openai", "text-embedding-3-small")


async def test_a_budget_holds_for_embeddings_at_once() -> None:
    provider, text = Provider(), "x" * 1_000
    most = (1_000 + 64) * PRICE
    async with budget_scope(Budget(usd=most * 3)) as scope:
        metered = provider.embedder()
        done = await asyncio.gather(*(metered.embed_query(text) for _ in range(40)), return_exceptions=True)
    refused = [each for each in done if isinstance(each, CostBudgetExceeded)]
    assert refused
    assert len(refused) + len(provider.billed) == 40
    assert scope.usage.cost_usd == sum(provider.billed) * PRICE <= most * 3


async def test_without_reported_usage_the_bound_counts() -> None:
    async with budget_scope(Budget(usd=1)) as scope:
        await Provider(tells_usage=False).embedder().embed_query("x" * 100)
    assert scope.usage.committed_usd == 164 * PRICE
    assert not scope.usage.cost_complete
    assert scope.records[0].error == "its result reports no usage, or one that cannot be true"


@pytest.mark.parametrize("tokens", [-3, 10**12], ids=["negative", "absurd"])
async def test_usage_that_cannot_be_true_counts_at_the_bound(tokens: int) -> None:
    class Gateway(TestEmbeddingModel):
        async def embed(self, *args: Any, **kwargs: Any) -> EmbeddingResult:
            return replace(await super().embed(*args, **kwargs), usage=RequestUsage(input_tokens=tokens))

    model = Gateway("text-embedding-3-small", provider_name="openai")
    async with budget_scope(Budget(usd=1, tokens=1_000)) as scope:
        await Embedder(Metered().embedding_model(model)).embed_query("x" * 100)
    assert scope.usage.committed_usd == 164 * PRICE
    assert scope.records[0].outcome == "unmeasured"
    assert scope.usage.input_tokens == 0


async def test_the_title_that_google_puts_before_each_text_is_in_the_bound() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.content.decode().count(title))
        return httpx2.Response(200, json={"embeddings": [{"values": [0.0]}] * 2})

    title, sent = "t" * 500, list[int]()
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer), timeout=60)
    google = GoogleEmbeddingModel(
        "gemini-embedding-2",
        provider=GoogleProvider(api_key="k", http_client=http),
        settings=GoogleEmbeddingSettings(google_title=title),
    )
    async with budget_scope(Budget(usd=1)) as scope:
        await Embedder(Metered().embedding_model(google)).embed_documents(["x" * 100] * 2)
    assert sent == [2]
    assert scope.usage.committed_usd == 2 * 664 * Decimal("0.2") / 1_000_000


async def test_the_bill_that_a_gateway_states_counts_in_models_that_are_built_from_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    provider = Provider()

    async def answer(transport: object, request: httpx2.Request) -> httpx2.Response:
        response = provider(request)
        response.headers["x-litellm-response-cost"] = "0.0000031"
        return response

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", answer)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://litellm.internal/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    async with budget_scope(Budget(usd=1)) as scope:
        await Embedder(Metered().embedding_model("openai:text-embedding-3-small")).embed_query("x" * 400)
    [record] = scope.records
    assert (record.cost_usd, record.cost_source) == (Decimal("0.0000031"), "stated")
    assert (record.tokens.input_tokens, record.priced_usd) == (100, 100 * PRICE)


async def test_an_embedding_that_is_refused_costs_nothing() -> None:
    with pytest.raises(ModelHTTPError) as caught:
        async with budget_scope(Budget(usd=1)):
            await Provider(status=429).embedder().embed_query("x")
    spent = usage_of(caught.value)
    assert spent is not None
    assert (spent.committed_usd, spent.failed_requests) == (0, 1)


@pytest.fixture
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastroai.agent.other_models.purchases.REQUEST_RETRY_DELAY", 0.0)


async def _by_name(
    statuses: list[int], monkeypatch: pytest.MonkeyPatch, **options: int
) -> tuple[int, Usage | None, Exception | None]:
    """Embed with a model that is built from a name, at a server that answers with these statuses, in turn.

    After 0 it does not answer.
    """
    asked, left = [0], [*statuses]

    async def answer(transport: object, request: httpx2.Request) -> httpx2.Response:
        asked[0] += 1
        if not (status := left.pop(0)):
            raise httpx2.ReadTimeout("no answer")
        return Provider(status=status)(request)

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", answer)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    embedder = Embedder(Metered(**options).embedding_model("openai:text-embedding-3-small"))
    try:
        async with budget_scope(Budget(usd=1)) as scope:
            await embedder.embed_query("x" * 400)
    except ModelHTTPError as error:
        return asked[0], usage_of(error), error
    return asked[0], scope.usage, None


@pytest.mark.usefixtures("no_wait")
async def test_each_attempt_of_a_model_that_is_built_from_a_name_is_charged_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, usage, error = await _by_name([429, 0, 200], monkeypatch)
    assert (asked, error) == (3, None)
    assert usage is not None
    # The refusal is not billed, and what was not answered may be.
    assert (usage.failed_requests, usage.unmeasured_requests) == (1, 1)
    assert usage.committed_usd == (464 + 100) * PRICE


@pytest.mark.usefixtures("no_wait")
@pytest.mark.parametrize(("options", "attempts"), [({}, 3), ({"request_retries": 0}, 1)])
async def test_what_the_last_attempt_raises_is_raised(
    options: dict[str, int], attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, usage, error = await _by_name([429] * 4, monkeypatch, **options)
    assert asked == attempts
    assert isinstance(error, ModelHTTPError)
    assert usage is not None
    assert (usage.failed_requests, usage.committed_usd) == (attempts, 0)


@pytest.mark.usefixtures("no_wait")
async def test_what_is_no_failure_of_the_transport_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, _, error = await _by_name([400] * 4, monkeypatch)
    assert (asked, isinstance(error, ModelHTTPError)) == (1, True)


async def test_an_embedding_that_is_cancelled_may_have_been_billed() -> None:
    asked = asyncio.Event()

    async def hang(request: httpx2.Request) -> httpx2.Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with budget_scope(Budget(usd=1)) as scope:
        call = asyncio.create_task(embedder(hang).embed_query("x" * 100))
        await asked.wait()
        call.cancel()
        await asyncio.wait([call])
    assert (scope.usage.unmeasured_requests, scope.usage.committed_usd) == (1, 164 * PRICE)


async def test_an_embedding_model_without_a_price_is_refused_under_a_budget_of_money() -> None:
    provider = Provider()
    async with budget_scope(Budget(usd=1)):
        with pytest.raises(UnpricedModelError):
            await provider.embedder("our-embeddings").embed_query("x")
    assert not provider.billed


async def test_the_model_for_tests_is_free() -> None:
    async with budget_scope(Budget(usd="0.000001")) as scope:
        await Embedder(Metered().embedding_model(TestEmbeddingModel())).embed_query("x" * 1_000)
    assert scope.records == ()


@pytest.mark.parametrize("wrong", [None, 3, Embedder(TestEmbeddingModel())])
def test_what_is_no_embedding_model_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="'provider:model', or a PydanticAI EmbeddingModel"):
        Metered().embedding_model(wrong)
