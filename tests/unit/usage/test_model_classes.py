"""Every model class of PydanticAI that sends requests: what it prepares, its bound, and what is refused.

`tests/versions` compares the classes here with those of PydanticAI.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from google.oauth2.credentials import Credentials
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.bedrock import BedrockConverseModel
from pydantic_ai.models.bedrock_mantle import BedrockMantleChatModel, BedrockMantleResponsesModel
from pydantic_ai.models.cerebras import CerebrasModel
from pydantic_ai.models.cohere import CohereModel
from pydantic_ai.models.crusoe import CrusoeModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.github_copilot import GitHubCopilotModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.groq import GroqModel
from pydantic_ai.models.huggingface import HuggingFaceModel
from pydantic_ai.models.mistral import MistralModel
from pydantic_ai.models.ollama import OllamaModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.models.openrouter import OpenRouterModel
from pydantic_ai.models.snowflake import SnowflakeModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.xai import XaiModel
from pydantic_ai.models.zai import ZaiModel
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.providers.alibaba import AlibabaProvider
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.azure import AzureProvider
from pydantic_ai.providers.bedrock import BedrockProvider
from pydantic_ai.providers.bedrock_mantle import BedrockMantleProvider
from pydantic_ai.providers.cerebras import CerebrasProvider
from pydantic_ai.providers.cohere import CohereProvider
from pydantic_ai.providers.crusoe import CrusoeProvider
from pydantic_ai.providers.deepseek import DeepSeekProvider
from pydantic_ai.providers.fireworks import FireworksProvider
from pydantic_ai.providers.github_copilot import GitHubCopilotProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.google_cloud import GoogleCloudProvider
from pydantic_ai.providers.groq import GroqProvider
from pydantic_ai.providers.heroku import HerokuProvider
from pydantic_ai.providers.huggingface import HuggingFaceProvider
from pydantic_ai.providers.litellm import LiteLLMProvider
from pydantic_ai.providers.mistral import MistralProvider
from pydantic_ai.providers.moonshotai import MoonshotAIProvider
from pydantic_ai.providers.ollama import OllamaProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openrouter import OpenRouterProvider
from pydantic_ai.providers.ovhcloud import OVHcloudProvider
from pydantic_ai.providers.snowflake import SnowflakeProvider
from pydantic_ai.providers.together import TogetherProvider
from pydantic_ai.providers.vercel import VercelProvider
from pydantic_ai.providers.xai import XaiProvider
from pydantic_ai.providers.zai import ZaiProvider
from pydantic_ai.usage import RequestUsage

from fastroai.usage import CostCalculator, RequestBound, base_url_of, request_bound

GOOGLE_CLOUD = {"credentials": Credentials("none"), "project": "p"}  # type: ignore[no-untyped-call]
LOCAL = "http://localhost:1/v1"
KEY = {"api_key": "none"}

PRICED: dict[str, tuple[Callable[[], Model], dict[str, Any]]] = {
    "openai": (lambda: OpenAIResponsesModel("gpt-5-mini", provider=OpenAIProvider(**KEY)), {}),
    "openai chat": (lambda: OpenAIChatModel("gpt-4.1", provider=OpenAIProvider(**KEY)), {}),
    "anthropic": (lambda: AnthropicModel("claude-sonnet-4-5", provider=AnthropicProvider(**KEY)), {}),
    "google": (lambda: GoogleModel("gemini-2.5-flash", provider=GoogleProvider(**KEY)), {}),
    "google cloud": (
        lambda: GoogleModel("gemini-3.5-flash", provider=GoogleCloudProvider(**GOOGLE_CLOUD)),  # type: ignore[arg-type]
        {},
    ),
    "azure": (
        lambda: OpenAIChatModel(
            "gpt-4.1",
            provider=AzureProvider(azure_endpoint="https://x.openai.azure.com", api_version="1", **KEY),
        ),
        {},
    ),
    "bedrock": (
        lambda: BedrockConverseModel(
            "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            provider=BedrockProvider(region_name="us-east-1", **KEY),
        ),
        {},
    ),
    "cerebras": (lambda: CerebrasModel("gpt-oss-120b", provider=CerebrasProvider(**KEY)), {}),
    "cerebras glm": (
        lambda: CerebrasModel("zai-glm-4.7", provider=CerebrasProvider(**KEY)),
        {"extra_body": {"clear_thinking": False}},
    ),
    "cohere": (lambda: CohereModel("command-a-03-2025", provider=CohereProvider(**KEY)), {}),
    "groq": (lambda: GroqModel("openai/gpt-oss-120b", provider=GroqProvider(**KEY)), {}),
    "huggingface": (
        lambda: HuggingFaceModel(
            "meta-llama/Llama-3.3-70B-Instruct",
            provider=HuggingFaceProvider(provider_name="together", **KEY),
        ),
        {},
    ),
    "mistral": (lambda: MistralModel("mistral-large-latest", provider=MistralProvider(**KEY)), {}),
    "openrouter": (
        lambda: OpenRouterModel("anthropic/claude-sonnet-4.6", provider=OpenRouterProvider(**KEY)),
        {"extra_body": {}},
    ),
    "xai": (lambda: XaiModel("grok-4.3", provider=XaiProvider(**KEY)), {}),
    "zai": (
        lambda: ZaiModel("glm-5.2", provider=ZaiProvider(**KEY)),
        {"extra_body": {"thinking": {"clear_thinking": False}}},
    ),
    "github copilot": (
        lambda: GitHubCopilotModel("gpt-4.1", provider=GitHubCopilotProvider(**KEY)),
        {},
    ),
    "deepseek": (lambda: OpenAIChatModel("deepseek-chat", provider=DeepSeekProvider(**KEY)), {}),
    "fireworks": (
        lambda: OpenAIChatModel(
            "accounts/fireworks/models/llama-v3p1-8b-instruct", provider=FireworksProvider(**KEY)
        ),
        {},
    ),
    "litellm": (lambda: OpenAIChatModel("gpt-4o", provider=LiteLLMProvider(api_base=LOCAL, **KEY)), {}),
    "moonshotai": (lambda: OpenAIChatModel("kimi-k2.5", provider=MoonshotAIProvider(**KEY)), {}),
    "ovhcloud": (lambda: OpenAIChatModel("gpt-oss-120b", provider=OVHcloudProvider(**KEY)), {}),
    "together": (
        lambda: OpenAIChatModel("meta-llama/Llama-3.3-70B-Instruct-Turbo", provider=TogetherProvider(**KEY)),
        {},
    ),
}
"""Models with a list price: how to build each, and what it sets by itself."""
UNPRICED: dict[str, Callable[[], Model]] = {
    "alibaba": lambda: OpenAIChatModel("qwen-max", provider=AlibabaProvider(**KEY)),
    "bedrock mantle": lambda: BedrockMantleChatModel(
        "openai.gpt-oss-safeguard-20b", provider=BedrockMantleProvider(region_name="us-east-1", **KEY)
    ),
    "bedrock mantle responses": lambda: BedrockMantleResponsesModel(
        "openai.gpt-oss-120b", provider=BedrockMantleProvider(region_name="us-east-1", **KEY)
    ),
    "crusoe": lambda: CrusoeModel("deepseek-ai/DeepSeek-V3-0324", provider=CrusoeProvider(**KEY)),
    "heroku": lambda: OpenAIChatModel("claude-4-5-sonnet", provider=HerokuProvider(**KEY)),
    "ollama": lambda: OllamaModel("llama3.2", provider=OllamaProvider(base_url=LOCAL)),
    "snowflake": lambda: SnowflakeModel(
        "claude-sonnet-4-5", provider=SnowflakeProvider(account="a", token="none")
    ),
    "vercel": lambda: OpenAIChatModel("anthropic/claude-sonnet-4.5", provider=VercelProvider(**KEY)),
}
"""Models without one: a price of the user's own bounds them."""
HELLO: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("What is the capital of France?")])]
REAL = RequestUsage(input_tokens=25, output_tokens=100)
"""What such a question uses, with the tokens that chat templates add."""


def bound(model: Model, *, calculator: CostCalculator | None = None, **settings: Any) -> RequestBound:
    asked: Any = {"max_tokens": 100, **settings}
    return request_bound(calculator or CostCalculator(), model, HELLO, asked, ModelRequestParameters())


@pytest.mark.parametrize("name", PRICED)
def test_a_question_is_bounded_and_costs_no_more(name: str) -> None:
    build, by_itself = PRICED[name]
    model = build()
    prepared, _ = model.prepare_request({"max_tokens": 100}, ModelRequestParameters())
    assert {key: value for key, value in (prepared or {}).items() if key != "max_tokens"} == by_itself
    found = bound(model)
    cost = CostCalculator().cost_of(
        ModelResponse(
            parts=[],
            usage=REAL,
            model_name=model.model_name,
            provider_name=model.system,
            provider_url=base_url_of(model),
        ),
        model=model.model_name,
        provider=model.system,
    )
    assert cost.cost_usd is not None
    assert found.cost_usd is not None
    assert (cost.most_usd or cost.cost_usd) <= found.cost_usd
    assert found.input_tokens is not None
    assert REAL.input_tokens <= found.input_tokens < 5_000
    if name != "xai":
        assert found.output_tokens == 100
        assert found.why is None
        assert found.cost_usd < Decimal("0.05")


@pytest.mark.parametrize("name", UNPRICED)
def test_without_a_list_price_one_of_your_own_bounds_it(name: str) -> None:
    model = UNPRICED[name]()
    assert bound(model).cost_usd is None
    own = CostCalculator({model.model_name: {"input_per_mtok": 1, "output_per_mtok": 2}})
    found = bound(model, calculator=own)
    assert found.output_tokens == 100
    assert found.cost_usd is not None
    assert found.cost_usd < Decimal("0.01")


@pytest.mark.parametrize("name", [*PRICED, *UNPRICED])
@pytest.mark.filterwarnings("ignore:.*extra_body")
def test_what_else_a_body_may_ask_for_is_refused(name: str) -> None:
    model = (PRICED[name][0] if name in PRICED else UNPRICED[name])()
    own = CostCalculator({model.model_name: {"input_per_mtok": 1, "output_per_mtok": 2}})
    found = bound(model, calculator=own, extra_body={"n": 3})
    prepared, _ = model.prepare_request({"extra_body": {"n": 3}}, ModelRequestParameters())
    if "extra_body" in (prepared or {}):
        assert found.cost_usd is None
        assert found.why is not None
        assert "extra_body['n'] may ask for more than the tokens" in found.why


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"openrouter_usage": {"include": True}, "openrouter_reasoning": {"effort": "low"}}, None),
        ({"openrouter_transforms": ["middle-out"]}, None),
        ({"openrouter_provider": {"order": ["x"]}}, "extra_body['provider']"),
        ({"openrouter_models": ["a/b"]}, "extra_body['models']"),
        ({"openrouter_preset": "mine"}, "extra_body['preset']"),
        ({"extra_body": {"plugins": [{"id": "web"}]}}, "extra_body['plugins']"),
    ],
)
def test_openrouter_is_refused_for_what_changes_the_price(settings: Any, named: str | None) -> None:
    found = bound(PRICED["openrouter"][0](), **settings)
    assert (found.cost_usd is None) == (named is not None)
    assert named is None or named in (found.why or "")


@pytest.mark.parametrize("level", [False, True, "low", "high"])
def test_thinking_of_glm_is_bounded(level: Any) -> None:
    assert bound(PRICED["zai"][0](), thinking=level).cost_usd is not None


class TestGrok:
    def test_it_thinks_beyond_max_tokens(self) -> None:
        found = bound(PRICED["xai"][0]())
        assert found.output_tokens == 1_000_000
        assert found.why is not None
        assert "grok-4.3 can think beyond max_tokens, up to 1,000,000 tokens: set thinking=False" in found.why
        assert found.lowered(usd=Decimal(1), tokens=None) is None

    @pytest.mark.parametrize("settings", [{"thinking": False}, {"xai_reasoning_effort": "none"}])
    def test_told_not_to_it_costs_what_the_answer_costs(self, settings: Any) -> None:
        found = bound(PRICED["xai"][0](), **settings)
        assert (found.output_tokens, found.why) == (100, None)
        assert found.cost_usd is not None
        assert found.cost_usd < Decimal("0.01")

    @pytest.mark.parametrize("name", ["grok-4.5", "grok-4-1-fast"])
    @pytest.mark.filterwarnings("ignore:.*thinking")
    def test_one_that_cannot_be_told_thinks_all_the_same(self, name: str) -> None:
        model = XaiModel(name, provider=XaiProvider(**KEY))
        assert bound(model, thinking=False).output_tokens == model.context_window

    def test_so_it_does_through_others(self) -> None:
        routed = OpenRouterModel("x-ai/grok-4.3", provider=OpenRouterProvider(**KEY))
        assert bound(routed).output_tokens == routed.context_window
        at_xai = OpenAIProvider(base_url="https://api.x.ai/v1", **KEY)
        chat = OpenAIChatModel("grok-4.3", provider=at_xai)
        assert bound(chat).output_tokens == chat.context_window

    def test_in_responses_max_tokens_is_for_its_thoughts_too(self) -> None:
        at_xai = OpenAIProvider(base_url="https://api.x.ai/v1", **KEY)
        assert bound(OpenAIResponsesModel("grok-4.3", provider=at_xai)).output_tokens == 100


@pytest.mark.parametrize(
    "model", [PRICED["openai"][0](), PRICED["google"][0](), PRICED["xai"][0](), PRICED["openrouter"][0]()]
)
def test_searches_without_a_limit_are_refused_with_what_helps(model: Model) -> None:
    parameters = ModelRequestParameters(native_tools=[WebSearchTool()])
    found = request_bound(CostCalculator(), model, HELLO, {"max_tokens": 100}, parameters)
    assert found.cost_usd is None
    assert found.why is not None
    assert "tools of the provider (web_search) are billed by how often it uses them" in found.why
    assert "search with a tool of your own" in found.why


@pytest.mark.parametrize(
    "model", [TestModel(), FunctionModel(lambda messages, info: ModelResponse(parts=[]))]
)
def test_models_for_tests_cost_nothing(model: Model) -> None:
    assert bound(model).cost_usd == 0
