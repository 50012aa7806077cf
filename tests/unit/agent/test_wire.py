"""What leaves through an SDK's client was admitted: more is reserved first, and nothing goes out twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from types import ModuleType
from typing import Any

import httpx
import httpx2
import pytest
from anthropic import AsyncAnthropic
from botocore.awsrequest import AWSResponse
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.bedrock import BedrockConverseModel
from pydantic_ai.models.cohere import CohereModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.groq import GroqModel
from pydantic_ai.models.mistral import MistralModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.bedrock import BedrockProvider
from pydantic_ai.providers.cohere import CohereProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.groq import GroqProvider
from pydantic_ai.providers.mistral import MistralProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage

from fastroai import Budget, CostBudgetExceeded, FastroAgent, SpendLimit, budget_scope
from fastroai.agent import Metered
from fastroai.errors import UnmeteredRequestError
from fastroai.runtime import current_scope
from fastroai.usage import CostCalculator, request_bound
from fastroai.usage.shared.memory_spend_store import MemorySpendStore

ADDED = "Messages of the application come in blocks of their own, and only those blocks count. " * 20
"""Text that a model of tests adds where it maps messages, after they were counted."""


_COUNTS = ("count_tokens", "countTokens", "count-tokens", "input_tokens")
"""Ends of the paths of endpoints that count input."""


@dataclass
class Endpoint:
    """An endpoint in this process that answers the providers' own SDKs, and fails as often as it is told."""

    failures: list[Exception | int] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)

    def client(self, library: ModuleType = httpx2) -> Any:
        def answer(request: Any) -> Any:
            status, told = self.answer(request.url.path, request.content)
            return library.Response(status, json=told)

        return library.AsyncClient(transport=library.MockTransport(answer), timeout=60)

    def answer(self, path: str, content: bytes) -> tuple[int, dict[str, Any]]:
        if path.endswith(_COUNTS):
            return 404, {"error": {"message": "this endpoint counts nothing"}}
        self.bodies.append(json.loads(content))
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            return failure, {"error": {"message": "try again", "code": failure}}
        return 200, _answer_of(path, self.bodies[-1].get("model", ""))

    def answer_boto(self, request: Any, **_: object) -> Any:
        status, told = self.answer(request.url, request.body)
        return AWSResponse(
            request.url, status, {"content-type": "application/json"}, _Raw(json.dumps(told).encode())
        )


class _Raw:
    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, *_: object, **__: object) -> list[bytes]:
        return [self._content]


def _answer_of(path: str, model: str) -> dict[str, Any]:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    if path.endswith("/messages"):
        return {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [{"type": "text", "text": "Hi"}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 5},
        }
    if path.endswith("/responses"):
        return {
            "id": "r",
            "object": "response",
            "created_at": 1,
            "model": model,
            "status": "completed",
            "output": [
                {
                    "id": "m",
                    "type": "message",
                    "role": "assistant",
                    "status": "completed",
                    "content": [{"type": "output_text", "text": "Hi", "annotations": []}],
                }
            ],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 10,
                "output_tokens": 5,
                "total_tokens": 15,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
            },
        }
    if ":generateContent" in path:
        return {
            "candidates": [{"content": {"role": "model", "parts": [{"text": "Hi"}]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
            "modelVersion": "gemini-2.5-flash",
        }
    if path.endswith("/chat"):
        return {
            "id": "c",
            "finish_reason": "COMPLETE",
            "message": {"role": "assistant", "content": [{"type": "text", "text": "Hi"}]},
            "usage": {"tokens": {"input_tokens": 10, "output_tokens": 5}},
        }
    if path.endswith("/converse"):
        return {
            "output": {"message": {"role": "assistant", "content": [{"text": "Hi"}]}},
            "stopReason": "end_turn",
            "usage": {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15},
            "metrics": {"latencyMs": 1},
        }
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
        "usage": usage,
    }


def _bedrock(model: type[BedrockConverseModel], endpoint: Endpoint) -> Model:
    provider = BedrockProvider(api_key="x", region_name="us-east-1")
    provider.client.meta.events.register("before-send.bedrock-runtime.*", endpoint.answer_boto)
    return model("us.anthropic.claude-haiku-4-5-20251001-v1:0", provider=provider)


def _with(name: str, provider: Any, library: ModuleType = httpx2) -> Callable[[Any, Endpoint], Model]:
    def build(model: Any, endpoint: Endpoint) -> Model:
        built: Model = model(name, provider=provider(api_key="x", http_client=endpoint.client(library)))
        return built

    return build


SDKS: dict[str, tuple[Any, Callable[[Any, Endpoint], Model]]] = {
    "openai chat": (OpenAIChatModel, _with("gpt-4.1", OpenAIProvider)),
    "openai responses": (OpenAIResponsesModel, _with("gpt-4.1", OpenAIProvider)),
    "anthropic": (AnthropicModel, _with("claude-haiku-4-5", AnthropicProvider)),
    "google": (GoogleModel, _with("gemini-2.5-flash", GoogleProvider)),
    "groq": (GroqModel, _with("llama-3.3-70b-versatile", GroqProvider, httpx)),
    "mistral": (MistralModel, _with("mistral-large-latest", MistralProvider)),
    "cohere": (CohereModel, _with("command-a-03-2025", CohereProvider, httpx)),
    "bedrock": (BedrockConverseModel, _bedrock),
}


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our attempts follow at once."""
    monkeypatch.setattr("fastroai.agent.requests.metering.REQUEST_RETRY_DELAY", 0.0)


every_sdk = pytest.mark.parametrize("sdk", SDKS)


def plain(sdk: str, endpoint: Endpoint) -> Model:
    kind, build = SDKS[sdk]
    return build(kind, endpoint)


def adding(sdk: str, endpoint: Endpoint) -> Model:
    """The model of a subclass that adds text after the request was counted, as newer adapters do."""
    kind, build = SDKS[sdk]

    class Adding(kind):  # type: ignore[misc]
        async def request(self, messages: list[ModelMessage], *rest: Any) -> Any:
            told = ModelRequest(parts=[SystemPromptPart(ADDED)])
            return await super().request([told, *messages], *rest)

    return build(Adding, endpoint)


def bound_usd(model: Model) -> Decimal:
    """The most that the request of these tests was to cost when it was counted."""
    messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("Hello")])]
    settings: Any = {"max_tokens": 20}
    bound = request_bound(CostCalculator(), model, messages, settings, ModelRequestParameters()).cost_usd
    assert bound is not None
    return bound


@every_sdk
async def test_a_request_that_leaves_as_it_was_counted_costs_no_more_than_its_bound(sdk: str) -> None:
    endpoint = Endpoint()
    model = plain(sdk, endpoint)
    async with budget_scope(Budget(usd=bound_usd(model))) as scope:
        await FastroAgent(model, max_tokens=20).run("Hello")
    assert len(endpoint.bodies) == scope.usage.request_count == 1


@every_sdk
async def test_text_that_an_adapter_adds_is_refused_before_it_leaves_if_the_budget_has_no_room(
    sdk: str,
) -> None:
    endpoint = Endpoint()
    model = adding(sdk, endpoint)
    async with budget_scope(Budget(usd=bound_usd(model))) as scope:
        with pytest.raises(CostBudgetExceeded) as stop:
            await FastroAgent(model, max_tokens=20).run("Hello")
    assert endpoint.bodies == []
    assert scope.usage.committed_usd == 0
    assert stop.value.usage is not None


@every_sdk
async def test_text_that_an_adapter_adds_is_in_the_bound_if_there_is_room(sdk: str) -> None:
    endpoint = Endpoint()
    model = adding(sdk, endpoint)
    counted = bound_usd(model)
    endpoint.failures = [404]  # the request ends without usage, so it shows what was reserved
    reserved: list[Decimal] = []
    sent = endpoint.answer

    def answer(path: str, content: bytes) -> tuple[int, dict[str, Any]]:
        scope = current_scope()
        assert scope is not None
        assert scope.bounds.account is not None
        reserved.append(scope.bounds.account.reserved_usd)
        return sent(path, content)

    endpoint.answer = answer  # type: ignore[method-assign]
    async with budget_scope(Budget(usd=1)):
        with pytest.raises(Exception, match=r"(?i)404|try again|not found"):
            await FastroAgent(model, max_tokens=20).run("Hello")
    assert len(endpoint.bodies) == 1
    assert reserved[0] > counted


async def test_added_text_is_admitted_anew_under_a_spend_limit() -> None:
    endpoint = Endpoint()
    model = adding("anthropic", endpoint)
    store = MemorySpendStore()
    async with budget_scope(SpendLimit(usd=bound_usd(model), key="k", store=store)):
        with pytest.raises(CostBudgetExceeded):
            await FastroAgent(model, max_tokens=20).run("Hello")
    assert endpoint.bodies == []
    async with budget_scope(SpendLimit(usd=1, key="other", store=store)) as scope:
        await FastroAgent(model, max_tokens=20).run("Hello")
    assert len(endpoint.bodies) == scope.usage.request_count == 1


class Preferring(AsyncOpenAI):
    """A client of the user's own, which adds text to each request."""

    async def _prepare_options(self, options: Any) -> Any:
        options.json_data["messages"].insert(0, {"role": "developer", "content": ADDED})
        return options


def preferring(endpoint: Endpoint) -> Model:
    client = Preferring(api_key="x", http_client=endpoint.client(), max_retries=3)
    return OpenAIChatModel("gpt-4.1", provider=OpenAIProvider(openai_client=client))


async def test_text_that_the_users_own_client_adds_is_counted() -> None:
    endpoint = Endpoint()
    model = preferring(endpoint)
    async with budget_scope(Budget(usd=bound_usd(model))):
        with pytest.raises(CostBudgetExceeded):
            await FastroAgent(model, max_tokens=20).run("Hello")
    assert endpoint.bodies == []


async def test_a_stream_is_checked_as_well() -> None:
    endpoint = Endpoint()
    model = preferring(endpoint)
    async with budget_scope(Budget(usd=bound_usd(model))):
        with pytest.raises(CostBudgetExceeded):
            async for _ in FastroAgent(model, max_tokens=20).run_stream("Hello"):
                pass
    assert endpoint.bodies == []


async def test_what_is_added_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    model = adding("mistral", Endpoint())
    async with budget_scope(Budget(usd=1)):
        for _ in range(2):
            await FastroAgent(model, max_tokens=20).run("Hello")
    told = [each.message for each in caplog.records if "did not count beforehand" in each.message]
    assert len(told) <= 1  # tests before this one may have told it
    assert ADDED not in "".join(told)


async def test_a_request_that_cannot_be_seen_has_a_margin_from_the_next_one_on() -> None:
    class Elsewhere(OpenAIChatModel):
        """A model that answers by another way than the client of its provider."""

        async def request(self, *_: Any) -> Any:
            usage = RequestUsage(input_tokens=10, output_tokens=5)
            return ModelResponse(
                parts=[TextPart("Hi")], usage=usage, model_name="gpt-4.1", provider_name="openai",
                finish_reason="stop",
            )  # fmt: skip

    model = Elsewhere("gpt-4.1", provider=OpenAIProvider(api_key="x"))
    counted = bound_usd(model)
    async with budget_scope(Budget(usd=counted)):
        await FastroAgent(model, max_tokens=20).run("Hello")
    async with budget_scope(Budget(usd=counted)):
        with pytest.raises(CostBudgetExceeded):
            await FastroAgent(model, max_tokens=20).run("Hello")
    async with budget_scope(Budget(usd=counted + Decimal("0.1"))):
        await FastroAgent(model, max_tokens=20).run("Hello")


# --- requests that an SDK repeats ---


class Twice(OpenAIChatModel):
    """A model that asks twice for one answer, of which PydanticAI sees one."""

    async def request(self, *given: Any) -> Any:
        await super().request(*given)
        return await super().request(*given)


async def test_a_second_request_within_one_is_counted_and_makes_the_cost_incomplete() -> None:
    endpoint = Endpoint()
    model = Twice("gpt-4.1", provider=OpenAIProvider(api_key="x", http_client=endpoint.client()))
    async with budget_scope() as scope:
        await FastroAgent(model, max_tokens=20).run("Hello")
    assert len(endpoint.bodies) == scope.usage.request_count == 2
    assert not scope.usage.cost_complete
    assert scope.usage.committed_usd > bound_usd(model)


async def test_a_second_request_within_one_is_refused_under_a_budget() -> None:
    endpoint = Endpoint()
    model = Twice("gpt-4.1", provider=OpenAIProvider(api_key="x", http_client=endpoint.client()))
    async with budget_scope(Budget(usd=1)) as scope:
        with pytest.raises(UnmeteredRequestError):
            await FastroAgent(model, max_tokens=20).run("Hello")
    assert len(endpoint.bodies) == scope.usage.request_count == 1
    assert scope.usage.committed_usd == bound_usd(model)


@every_sdk
async def test_each_attempt_is_admitted_and_in_the_account(sdk: str, no_waiting: None) -> None:
    endpoint = Endpoint(failures=[503, 503])
    model = plain(sdk, endpoint)
    async with budget_scope(Budget(usd=1)) as scope:
        await FastroAgent(model, max_tokens=20).run("Hello")
    assert len(endpoint.bodies) == len(scope.records) == 3
    assert [record.outcome for record in scope.records] == ["released", "released", "settled"]


@every_sdk
async def test_without_retries_a_request_goes_out_once(sdk: str, no_waiting: None) -> None:
    endpoint = Endpoint(failures=[503] * 9)
    with pytest.raises(ModelAPIError):
        async with budget_scope():
            await FastroAgent(plain(sdk, endpoint), max_tokens=20, request_retries=0).run("Hello")
    assert len(endpoint.bodies) == 1


@pytest.mark.parametrize("own", [1, 4])
async def test_the_number_that_the_users_client_has_is_the_number_of_retries(
    own: int, no_waiting: None
) -> None:
    endpoint = Endpoint(failures=[503] * 9)
    client = AsyncAnthropic(api_key="x", http_client=endpoint.client(), max_retries=own)
    model = AnthropicModel("claude-haiku-4-5", provider=AnthropicProvider(anthropic_client=client))
    with pytest.raises(ModelAPIError):
        async with budget_scope() as scope:
            await FastroAgent(model, max_tokens=20).run("Hello")
    assert len(endpoint.bodies) == len(scope.records) == own + 1
    assert client.max_retries == own


async def test_the_number_in_the_settings_is_the_number_of_retries(no_waiting: None) -> None:
    endpoint = Endpoint(failures=[503] * 9)
    agent = FastroAgent(plain("openai chat", endpoint), model_settings={"max_retries": 1, "max_tokens": 20})
    with pytest.raises(ModelAPIError):
        await agent.run("Hello")
    assert len(endpoint.bodies) == 2


async def test_a_plain_agent_has_the_same_retries(no_waiting: None) -> None:
    endpoint = Endpoint(failures=[503, 503])
    agent = Agent(plain("groq", endpoint), capabilities=[Metered()])
    async with budget_scope() as scope:
        await agent.run("Hello")
    assert len(endpoint.bodies) == len(scope.records) == 3
