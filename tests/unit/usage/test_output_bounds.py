from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from support.bodies import body_of, claude_model, responses_model

from fastroai.usage.bounding.output_bounds import OutputLimit, output_limit
from fastroai.usage.prices.hosts import Host

OPENAI = OpenAIProvider(api_key="none")
ANTHROPIC = AnthropicProvider(api_key="none")


def claude(name: str = "claude-sonnet-4-5") -> Model:
    return AnthropicModel(name, provider=ANTHROPIC)


def gemini(name: str = "gemini-2.5-pro") -> Model:
    return GoogleModel(name, provider=GoogleProvider(api_key="none"))


def limit_of(model: Model, **settings: Any) -> OutputLimit:
    prepared, parameters = model.prepare_request(
        ModelSettings(**settings) if settings else None,  # type: ignore[typeddict-item]
        ModelRequestParameters(),
    )
    return output_limit(Host.of(model), model, dict(prepared or {}), parameters)


class TestLimits:
    @pytest.mark.parametrize(
        "model", [OpenAIResponsesModel("gpt-5-mini", provider=OPENAI), claude(), gemini()]
    )
    def test_max_tokens_limits_the_output(self, model: Model) -> None:
        assert limit_of(model, max_tokens=1_234).tokens == 1_234

    @pytest.mark.parametrize(
        ("name", "most"),
        [
            ("gpt-3.5-turbo", 4_096),
            ("gpt-4o", 16_384),
            ("gpt-4o-mini-2024-07-18", 16_384),
            ("gpt-4.1-nano", 32_768),
            ("gpt-5", 128_000),
            ("gpt-5-mini", 128_000),
            ("gpt-5-pro", 272_000),
            ("gpt-5.4", 128_000),
            ("o3-mini", 100_000),
        ],
    )
    def test_without_it_the_documented_limit_of_the_model_does(self, name: str, most: int) -> None:
        assert limit_of(OpenAIResponsesModel(name, provider=OPENAI)).tokens == most
        assert limit_of(OpenAIResponsesModel(name, provider=OPENAI), max_tokens=999_999).tokens == most

    @pytest.mark.parametrize(
        ("name", "most"), [("gemini-2.0-flash", 8_192), ("gemini-2.5-flash", 65_536), ("gemini-9", None)]
    )
    def test_so_it_does_for_google(self, name: str, most: int | None) -> None:
        assert limit_of(gemini(name)).tokens == most

    def test_elsewhere_only_the_context_window_does(self) -> None:
        local = OpenAIProvider(base_url="http://localhost:8000/v1", api_key="none")
        assert limit_of(OpenAIChatModel("gpt-5-mini", provider=local)).tokens == 400_000

    @pytest.mark.parametrize("max_tokens", [0, None, -5])
    def test_a_limit_that_is_none_does_not_count(self, max_tokens: int | None) -> None:
        model = OpenAIResponsesModel("gpt-5-mini", provider=OPENAI)
        assert limit_of(model, max_tokens=max_tokens).tokens == 128_000

    @pytest.mark.filterwarnings("ignore:The `max_tokens` setting is not supported")
    def test_a_limit_that_the_model_does_not_send_does_not_count(self) -> None:
        profile = OpenAIModelProfile(openai_unsupported_model_settings=["max_tokens"])

        class Deaf(OpenAIResponsesModel):
            unsupported_settings = frozenset({"max_tokens"})

        for model in (
            OpenAIResponsesModel("gpt-5-mini", provider=OPENAI, profile=profile),
            Deaf("gpt-5-mini", provider=OPENAI),
        ):
            assert limit_of(model, max_tokens=50) == OutputLimit(128_000, None)

    def test_reasoning_that_is_billed_besides_is_not_limited(self) -> None:
        class XaiProvider(OpenAIProvider):
            """Has the name of the other class, which needs an SDK of its own."""

            @property
            def name(self) -> str:
                return "xai"

        grok = OpenAIChatModel("grok-4-fast-reasoning", provider=XaiProvider(api_key="none"))
        assert limit_of(grok, max_tokens=50) == OutputLimit(grok.context_window, None)

    def test_rejected_predictions_are_output_that_max_tokens_does_not_limit(self) -> None:
        prediction = {"type": "content", "content": "def f(): ..."}
        model = OpenAIChatModel("gpt-4o", provider=OPENAI)
        assert limit_of(model, max_tokens=50, openai_prediction=prediction) == OutputLimit(16_384, None)


HELLO: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("hello")])]


BUDGETED = [
    "claude-3-7-sonnet-latest",
    "claude-sonnet-4-0",
    "claude-opus-4-1",
    "claude-sonnet-4-5",
    "claude-of-tomorrow",
]
"""Models that take a budget for thinking."""


class TestAnthropic:
    """It requires `max_tokens`, so PydanticAI always sends some."""

    @pytest.mark.parametrize("name", ["claude-opus-4-8", *BUDGETED])
    @pytest.mark.parametrize("settings", [{}, {"thinking": "high"}])
    async def test_what_is_sent_is_never_more(self, name: str, settings: dict[str, Any]) -> None:
        await self._check(name, settings)

    @pytest.mark.parametrize("name", BUDGETED)
    @pytest.mark.parametrize("settings", [{}, {"max_tokens": 31_000}])
    async def test_so_it_is_with_a_budget_to_think_with(self, name: str, settings: dict[str, Any]) -> None:
        await self._check(
            name, settings | {"anthropic_thinking": {"type": "enabled", "budget_tokens": 30_000}}
        )

    async def _check(self, name: str, settings: dict[str, Any]) -> None:
        model = claude_model(name)
        limit = limit_of(model, **settings)
        body = await body_of(model, HELLO, ModelSettings(**settings))  # type: ignore[typeddict-item]
        assert limit.tokens is not None
        assert limit.tokens >= body["max_tokens"]
        thinking = body.get("thinking", {})
        assert limit.floor == thinking.get("budget_tokens", 0) + 1

    def test_a_limit_of_the_model_counts_where_more_is_asked_for(self) -> None:
        assert limit_of(claude(), max_tokens=500_000).tokens == 64_000

    def test_a_model_whose_limit_is_not_known_gets_a_default(self) -> None:
        assert limit_of(claude("claude-of-tomorrow")).tokens == 16_384


class TestFloors:
    def test_responses_take_16_and_more(self) -> None:
        class Mine(OpenAIResponsesModel):
            pass

        assert limit_of(OpenAIResponsesModel("gpt-5-mini", provider=OPENAI)).floor == 16
        assert limit_of(Mine("gpt-5-mini", provider=OPENAI)).floor == 16

    @pytest.mark.parametrize("model", [OpenAIChatModel("gpt-4o", provider=OPENAI), claude(), gemini()])
    def test_others_take_1_and_more(self, model: Model) -> None:
        assert limit_of(model).floor == 1

    @pytest.mark.parametrize(
        ("settings", "floor"),
        [
            ({"anthropic_thinking": {"type": "enabled", "budget_tokens": 5_000}}, 5_001),
            ({"anthropic_thinking": {"type": "adaptive"}}, 1),
            ({"anthropic_thinking": {"type": "disabled"}, "thinking": "high"}, 1),
            ({"thinking": True}, 10_001),
            ({"thinking": "low"}, 2_049),
            ({"thinking": False}, 1),
        ],
    )
    @pytest.mark.filterwarnings("ignore:.*thinking")
    def test_claude_must_have_more_than_it_thinks_with(self, settings: dict[str, Any], floor: int) -> None:
        assert limit_of(claude(), **settings).floor == floor

    def test_claude_that_adapts_has_no_budget_to_think_with(self) -> None:
        assert limit_of(claude("claude-opus-4-8"), thinking="high").floor == 1

    def test_so_it_is_on_bedrock(self) -> None:
        class Bedrock(AnthropicModel):
            """Has the name of the other class, which needs an SDK of its own."""

            @property
            def system(self) -> str:
                return "bedrock"

        assert limit_of(Bedrock("claude-sonnet-4-5", provider=ANTHROPIC), thinking="low").floor == 2_049

    def test_others_that_think_need_no_more(self) -> None:
        assert limit_of(gemini(), thinking="high").floor == 1
        assert limit_of(responses_model(), thinking="high").floor == 16
