"""Images are reserved and charged like other spending."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any, cast

import grpc
import httpx2
import pytest
from openai import AsyncOpenAI
from pydantic_ai import Agent, BinaryImage
from pydantic_ai.capabilities import ImageGeneration
from pydantic_ai.exceptions import ContentFilterError, UserError
from pydantic_ai.images import ImageGenerator, TestImageGenerationModel
from pydantic_ai.images.google import GoogleImageGenerationModel
from pydantic_ai.images.openai import OpenAIImageGenerationModel, OpenAIImageGenerationSettings
from pydantic_ai.images.xai import XaiImageGenerationModel, XaiImageGenerationSettings
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.xai import XaiProvider
from xai_sdk import AsyncClient
from xai_sdk.proto import image_pb2, image_pb2_grpc, usage_pb2

from fastroai import Budget, CostBudgetExceeded, CostCalculator, SpendLimit, budget_scope
from fastroai.agent import Metered
from fastroai.errors import ConfigurationError, UnboundedRequestError, UnpricedModelError, usage_of

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
# https://developers.openai.com/api/docs/pricing#image-generation: US dollars of a token of gpt-image-1
TEXT_IN, IMAGE_IN, IMAGE_OUT = (Decimal(price) / 1_000_000 for price in ("5", "10", "40"))
LOW: OpenAIImageGenerationSettings = {"openai_quality": "low", "openai_size": "1024x1024"}
LOW_TOKENS = 272
"""https://developers.openai.com/api/docs/guides/image-generation#models-prior-to-gpt-image-2"""

Answer = Callable[[httpx2.Request], httpx2.Response | Awaitable[httpx2.Response]]


class OpenAI:
    """OpenAI's endpoints for images, which bill a token for each four letters, and those of the images."""

    def __init__(self, *, usage: bool = True, split: bool = True, status: int = 200, made: int = 272) -> None:
        self.billed: list[dict[str, Any]] = []
        self._usage, self._split, self._status, self._made = usage, split, status, made

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        if self._status != 200:
            return httpx2.Response(self._status, json={"error": {"message": "no"}})
        body = json.loads(request.content) if request.url.path.endswith("generations") else {}
        number = body.get("n", 1)
        text, image, made = 10, 0 if body else 323, self._made * number
        usage: dict[str, Any] = {
            "input_tokens": text + image,
            "input_tokens_details": {"text_tokens": text, "image_tokens": image},
            "output_tokens": made,
            "total_tokens": text + image + made,
        }
        if self._split:
            usage["output_tokens_details"] = {"text_tokens": 0, "image_tokens": made}
        self.billed.append(usage)
        data = [{"b64_json": base64.b64encode(PNG).decode()}] * number
        return httpx2.Response(
            200, json={"created": 1, "data": data, "usage": usage if self._usage else None}
        )

    @property
    def billed_usd(self) -> Decimal:
        """By the price page."""
        return sum((self._cost(usage) for usage in self.billed), Decimal(0))

    @staticmethod
    def _cost(usage: dict[str, Any]) -> Decimal:
        details = usage["input_tokens_details"]
        asked = details["text_tokens"] * TEXT_IN + details["image_tokens"] * IMAGE_IN
        return cast(Decimal, asked + usage["output_tokens"] * IMAGE_OUT)


def openai(
    answer: Answer,
    name: str = "gpt-image-1",
    *,
    url: str | None = None,
    calculator: CostCalculator | None = None,
    most_usd: Any = None,
) -> ImageGenerator:
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(cast(Any, answer)))
    client = AsyncOpenAI(api_key="k", http_client=http, max_retries=0, base_url=url)
    model = OpenAIImageGenerationModel(name, provider=OpenAIProvider(openai_client=client))
    return ImageGenerator(Metered(calculator).image_model(model, most_usd=most_usd))


# --- the account ---


async def test_the_bill_that_a_gateway_states_counts_in_models_that_are_built_from_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    provider = OpenAI()

    async def answer(transport: object, request: httpx2.Request) -> httpx2.Response:
        response = provider(request)
        response.headers["x-litellm-response-cost"] = "0.0091"
        return response

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", answer)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://litellm.internal/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    async with budget_scope(Budget(usd=1)) as scope:
        await ImageGenerator(Metered().image_model("openai:gpt-image-1", most_usd="0.1")).generate("a map")
    [record] = scope.records
    assert (record.cost_usd, record.cost_source) == (Decimal("0.0091"), "stated")
    assert record.priced_usd == provider.billed_usd


async def test_an_image_costs_what_its_tokens_cost() -> None:
    provider = OpenAI()
    async with budget_scope(Budget(usd=1)) as scope:
        await openai(provider).generate("a red square", settings=LOW)
    assert scope.usage.cost_usd == provider.billed_usd == 10 * TEXT_IN + LOW_TOKENS * IMAGE_OUT
    assert scope.usage.cost_complete
    assert (scope.usage.input_tokens, scope.usage.output_tokens, scope.usage.request_count) == (10, 272, 0)
    [record] = scope.records
    assert (record.kind, record.provider, record.model) == ("spend", "openai", "gpt-image-1")


async def test_an_edited_image_costs_what_the_reference_costs_besides() -> None:
    provider, reference = OpenAI(), BinaryImage(data=PNG, media_type="image/png")
    async with budget_scope(Budget(usd=1)) as scope:
        await openai(provider).generate("a blue square", images=[reference], settings=LOW)
    assert scope.usage.cost_usd == provider.billed_usd == 10 * TEXT_IN + 323 * IMAGE_IN + 272 * IMAGE_OUT


@pytest.mark.parametrize(("name", "most"), [("gpt-image-1", 7_337), ("gpt-image-1.5", None)])
async def test_references_are_bounded_where_that_is_documented(name: str, most: int | None) -> None:
    reference = BinaryImage(data=PNG, media_type="image/png")
    async with budget_scope(Budget(usd=1)) as scope:
        if most is None:
            with pytest.raises(UnboundedRequestError, match="reference images"):
                await openai(OpenAI(), name).generate("word", images=[reference], settings=LOW)
            return
        await openai(OpenAI(usage=False), name).generate("word", images=[reference], settings=LOW)
    assert scope.usage.committed_usd == 68 * TEXT_IN + most * IMAGE_IN + LOW_TOKENS * IMAGE_OUT


async def test_output_that_no_answer_splits_is_sold_as_images() -> None:
    """GPT Image 1.5 sells images at $32 and text at $10."""
    async with budget_scope(Budget(usd=1)) as scope:
        await openai(OpenAI(split=False), "gpt-image-1.5").generate("a red square", settings=LOW)
    assert scope.usage.cost_usd == 10 * TEXT_IN + LOW_TOKENS * Decimal(32) / 1_000_000


async def test_an_image_without_reported_usage_counts_at_its_bound() -> None:
    async with budget_scope(Budget(usd=1)) as scope:
        await openai(OpenAI(usage=False)).generate("word", settings=LOW)
    assert scope.usage.committed_usd == (4 + 64) * TEXT_IN + LOW_TOKENS * IMAGE_OUT
    assert not scope.usage.cost_complete


async def test_an_image_of_a_region_that_may_cost_more_counts_with_the_premium() -> None:
    provider = OpenAI()
    async with budget_scope(Budget(usd=1)) as scope:
        await openai(provider, url="https://eu.api.openai.com/v1").generate("a red square", settings=LOW)
    assert scope.usage.committed_usd == provider.billed_usd * Decimal("1.1")
    assert not scope.usage.cost_complete


async def test_a_sync_call_in_a_thread_is_charged_alike() -> None:
    provider = OpenAI()

    def generate() -> None:
        with asyncio.Runner() as runner:
            asyncio.set_event_loop(runner.get_loop())
            openai(provider).generate_sync("a red square", settings=LOW)

    async with budget_scope(Budget(usd=1)) as scope:
        await asyncio.to_thread(generate)
    assert scope.usage.cost_usd == provider.billed_usd > 0


async def test_an_override_is_the_price_of_images() -> None:
    calculator = CostCalculator(
        pricing_overrides={"our-images": {"input_per_mtok": 1, "output_per_mtok": 10}}
    )
    async with budget_scope(Budget(usd=1)) as scope:
        await openai(OpenAI(), "our-images", calculator=calculator, most_usd="0.5").generate("a red square")
    assert scope.usage.cost_usd == (10 * Decimal(1) + 272 * 10) / 1_000_000
    assert scope.usage.cost_complete


async def test_outside_of_runs_images_are_as_they_were() -> None:
    provider = OpenAI()
    result = await openai(provider, "gpt-image-2").generate("a red square")
    assert result.image.data == PNG


async def test_the_model_for_tests_is_free() -> None:
    generator = ImageGenerator(Metered().image_model(TestImageGenerationModel()))
    async with budget_scope(Budget(usd="0.000001")) as scope:
        await generator.generate("a red square")
    assert scope.records == ()


# --- budgets ---


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({}, 6_240),
        ({"openai_quality": "low"}, 408),
        ({"openai_size": "1024x1024"}, 4_160),
        ({"openai_quality": "medium", "openai_size": "1536x1024", "openai_n": 3}, 3 * 1_568),
        ({"openai_quality": "low", "dimensions": (1024, 1024)}, 408),
        ({"openai_quality": "low", "aspect_ratio": "1:1"}, 408),
    ],
)
async def test_the_bound_of_an_image_is_what_is_documented(settings: Any, tokens: int) -> None:
    most = (4 + 64) * TEXT_IN + tokens * IMAGE_OUT
    provider = OpenAI()
    async with budget_scope(Budget(usd=most)):
        await openai(provider).generate("word", settings=settings)
    async with budget_scope(Budget(usd=most - Decimal("0.000001"))):
        with pytest.raises(CostBudgetExceeded):
            await openai(provider).generate("word", settings=settings)
    assert len(provider.billed) == 1


async def test_a_budget_holds_for_images_at_once() -> None:
    provider = OpenAI()
    async with budget_scope(Budget(usd="0.05")) as scope:
        metered = openai(provider)
        done = await asyncio.gather(
            *(metered.generate("word", settings=LOW) for _ in range(30)), return_exceptions=True
        )
    refused = [each for each in done if isinstance(each, CostBudgetExceeded)]
    assert refused
    assert len(refused) + len(provider.billed) == 30
    assert scope.usage.cost_usd == provider.billed_usd <= Decimal("0.05")


async def test_a_spend_limit_has_what_images_were_billed() -> None:
    provider, limit = OpenAI(), SpendLimit(usd=1, window="total", key="images")
    async with budget_scope(limit):
        await openai(provider).generate("word", settings=LOW)
    assert (await limit.status()).spent_usd == provider.billed_usd


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gpt-image-2", {}),
        ("gpt-image-1", {"extra_body": {"n": 10}}),
        ("gpt-image-1", {"openai_quality": "ultra"}),
    ],
)
async def test_images_that_nothing_documented_bounds_need_a_most_under_a_budget(
    name: str, settings: Any
) -> None:
    provider = OpenAI()
    async with budget_scope(Budget(usd=1)):
        with pytest.raises(UnboundedRequestError, match="most_usd="):
            await openai(provider, name).generate("word", settings=settings)
    assert not provider.billed
    async with budget_scope(Budget(usd=1, on_unbounded="allow")) as scope:
        await openai(provider, name).generate("word", settings=settings)
    assert scope.usage.cost_usd > 0
    async with budget_scope(Budget(usd="0.3")) as scope:
        await openai(provider, name, most_usd="0.25").generate("word", settings=settings)
    assert scope.usage.cost_complete
    with pytest.raises(CostBudgetExceeded):
        async with budget_scope(Budget(usd="0.2")):
            await openai(provider, name, most_usd="0.25").generate("word", settings=settings)
    assert len(provider.billed) == 2


async def test_a_most_in_dollars_says_nothing_of_tokens() -> None:
    provider = OpenAI()
    async with budget_scope(Budget(tokens=10_000)) as scope:
        with pytest.raises(UnboundedRequestError, match="no page of the provider says"):
            await openai(provider, "gpt-image-2", most_usd="0.25").generate("word")
        await openai(provider, most_usd="0.25").generate("word", settings=LOW)
    assert scope.usage.total_tokens == 10 + LOW_TOKENS


async def test_an_agent_makes_images_with_a_metered_model() -> None:
    """`ImageGeneration` takes a model for agents whose own model makes none."""
    provider = OpenAI()
    generation = ImageGeneration(native=False, local=openai(provider, most_usd="0.25"))
    async with budget_scope(Budget(usd=1)) as scope:
        await Agent(TestModel(), capabilities=[generation]).run("Draw a red square.")
    assert scope.usage.cost_usd == provider.billed_usd > 0


async def test_a_gateway_may_make_other_images_than_the_maker_documents() -> None:
    async with budget_scope(Budget(usd=1)):
        with pytest.raises(UnboundedRequestError, match="own address"):
            await openai(OpenAI(), url="https://gateway.example.com/v1").generate("word", settings=LOW)


async def test_a_model_without_a_price_is_refused_under_a_budget_of_money() -> None:
    provider = OpenAI()
    async with budget_scope(Budget(usd=1)):
        with pytest.raises(UnpricedModelError, match="most_usd="):
            await openai(provider, "our-images").generate("word")
    assert not provider.billed
    async with budget_scope(Budget(usd=1, on_unpriced="allow")) as scope:
        await openai(provider, "our-images").generate("word")
    assert not scope.usage.cost_complete


async def test_images_that_cost_more_than_was_said_are_charged_in_full_and_kept() -> None:
    provider = OpenAI(made=6_240)
    async with budget_scope(Budget(usd="0.1")) as scope:
        made = await openai(provider, most_usd="0.01").generate("word")
        assert made.images
        with pytest.raises(CostBudgetExceeded):
            await openai(provider, most_usd="0.01").generate("word")
    assert len(provider.billed) == 1
    assert scope.usage.cost_usd == provider.billed_usd > Decimal("0.1")


# --- ends without an image ---


async def test_an_image_that_is_moderated_away_may_have_been_billed() -> None:
    def block(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(400, json={"error": {"message": "no", "code": "moderation_blocked"}})

    with pytest.raises(ContentFilterError) as caught:
        async with budget_scope(Budget(usd=1)):
            await openai(block).generate("word", settings=LOW)
    spent = usage_of(caught.value)
    assert spent is not None
    assert spent.committed_usd == 68 * TEXT_IN + LOW_TOKENS * IMAGE_OUT


async def test_a_request_that_cannot_be_sent_reserves_nothing() -> None:
    async with budget_scope(Budget(usd=1)) as scope:
        with pytest.raises(UserError):
            await openai(OpenAI()).generate(" ")
    assert scope.records == ()


# --- other providers ---


def gemini(answer: Answer, **options: Any) -> ImageGenerator:
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(cast(Any, answer)), timeout=60)
    provider = GoogleProvider(api_key="k", http_client=http)
    model = GoogleImageGenerationModel("gemini-2.5-flash-image", provider=provider)
    return ImageGenerator(Metered().image_model(model, **options))


def gemini_answer(*, parts: bool = True, **usage: Any) -> Answer:
    data = {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(PNG).decode()}}
    content = {"role": "model", "parts": [data] if parts else []}
    body = {
        "candidates": [{"content": content, "finishReason": "STOP" if parts else "IMAGE_SAFETY"}],
        "modelVersion": "gemini-2.5-flash-image",
        "responseId": "r",
        "usageMetadata": {"promptTokenCount": 8, "candidatesTokenCount": 1290, **usage} if usage else None,
    }
    return lambda request: httpx2.Response(200, json=body)


IMAGE_DETAILS = [{"modality": "IMAGE", "tokenCount": 1290}]
GEMINI_IMAGE = 8 * Decimal("0.3") / 1_000_000 + 1290 * Decimal(30) / 1_000_000
"""https://ai.google.dev/gemini-api/docs/pricing#gemini-2.5-flash-image"""


@pytest.mark.parametrize("usage", [{"candidatesTokensDetails": IMAGE_DETAILS}, {"totalTokenCount": 1298}])
async def test_an_image_of_gemini_costs_the_price_of_image_tokens(usage: Any) -> None:
    async with budget_scope(Budget(usd=5)) as scope:
        await gemini(gemini_answer(**usage)).generate("a red square")
    assert scope.usage.cost_usd == GEMINI_IMAGE
    assert scope.usage.cost_complete


async def test_an_image_of_gemini_is_bounded_by_the_output_of_the_model() -> None:
    most = 68 * Decimal("0.3") / 1_000_000 + 65_536 * Decimal(30) / 1_000_000
    answer = gemini_answer()
    async with budget_scope(Budget(usd=most)) as scope:
        await gemini(answer).generate("word")
    assert scope.usage.committed_usd == most
    with pytest.raises(CostBudgetExceeded):
        async with budget_scope(Budget(usd=most - Decimal("0.000001"))):
            await gemini(answer).generate("word")


async def test_no_documented_rule_bounds_references_for_gemini() -> None:
    reference = BinaryImage(data=PNG, media_type="image/png")
    async with budget_scope(Budget(usd=5)):
        with pytest.raises(UnboundedRequestError):
            await gemini(gemini_answer()).generate("word", images=[reference])


async def test_an_image_that_gemini_blocks_counts_at_the_most_that_was_said() -> None:
    with pytest.raises(ContentFilterError) as caught:
        async with budget_scope(Budget(usd=1)):
            await gemini(gemini_answer(parts=False), most_usd="0.04").generate("word")
    spent = usage_of(caught.value)
    assert spent is not None
    assert spent.committed_usd == Decimal("0.04")


class Grok(image_pb2_grpc.ImageServicer):
    """xAI's service for images on this machine: it speaks gRPC, and says what it bills."""

    async def GenerateImage(self, request: Any, context: Any) -> image_pb2.ImageResponse:
        usage = usage_pb2.SamplingUsage(prompt_tokens=8, cost_in_usd_ticks=200_000_000 * max(request.n, 1))
        url = "data:image/png;base64," + base64.b64encode(PNG).decode()
        made = image_pb2.GeneratedImage(base64=url, respect_moderation=True)
        return image_pb2.ImageResponse(model=request.model, usage=usage, images=[made] * max(request.n, 1))


@asynccontextmanager
async def grok(**options: Any) -> AsyncIterator[ImageGenerator]:
    server = grpc.aio.server()
    image_pb2_grpc.add_ImageServicer_to_server(Grok(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    client = AsyncClient(api_key="k", api_host=f"127.0.0.1:{port}", use_insecure_channel=True)
    model = XaiImageGenerationModel("grok-imagine-image", provider=XaiProvider(xai_client=client))
    try:
        yield ImageGenerator(Metered().image_model(model, **options))
    finally:
        await client.close()
        await server.stop(None)


@pytest.mark.parametrize("number", [1, 3])
async def test_images_of_grok_cost_what_their_bill_says(number: int) -> None:
    settings: XaiImageGenerationSettings = {"xai_n": number}
    async with grok(most_usd="0.1") as generator, budget_scope(Budget(usd=1)) as scope:
        await generator.generate("a red square", settings=settings)
    assert scope.usage.cost_usd == number * Decimal("0.02")
    assert [record.cost_source for record in scope.records] == ["stated"]


async def test_grok_has_no_price_for_images() -> None:
    async with grok() as generator, budget_scope(Budget(usd=1)):
        with pytest.raises(UnpricedModelError):
            await generator.generate("a red square")


# --- mistakes ---


@pytest.mark.parametrize("wrong", [None, 3, ImageGenerator(TestImageGenerationModel())])
def test_what_makes_no_images_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="'provider:model', or a PydanticAI ImageGenerationModel"):
        Metered().image_model(wrong)


@pytest.mark.parametrize("wrong", [-1, "much", True, float("nan")])
def test_a_most_that_is_no_amount_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="most_usd"):
        Metered().image_model(TestImageGenerationModel(), most_usd=wrong)
