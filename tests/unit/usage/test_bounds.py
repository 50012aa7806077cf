import asyncio
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.instrumented import InstrumentedModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.native_tools import AbstractNativeTool, CodeExecutionTool, WebSearchTool
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage
from support.bodies import chat_model, claude_model, responses_model
from support.cookbook import tokens
from support.examples import examples

from fastroai.usage import CostCalculator, Endpoint, RequestBound, request_bound
from fastroai.usage.bounding import tokenizers
from fastroai.usage.bounding.bounds import prepare_bound
from fastroai.usage.facts.allowances import GATEWAY
from fastroai.usage.facts.documented import all_facts
from fastroai.usage.prices.flat_prices import FlatPrices

ANTHROPIC = all_facts()["anthropic"].allowances
OPENAI = all_facts()["openai"].allowances

GPT = responses_model()
CLAUDE = claude_model()
GEMINI = GoogleModel("gemini-2.5-pro", provider=GoogleProvider(api_key="none"))
UNLIMITED = GoogleModel("gemini-of-tomorrow", provider=GoogleProvider(api_key="none"))
WINDOW = 400_000
"""The context window of gpt-5-mini."""


def served_at(url: str, name: str = "gpt-5-mini") -> Model:
    return OpenAIChatModel(name, provider=OpenAIProvider(base_url=url, api_key="none"))


def ask(*content: UserContent) -> list[ModelMessage]:
    return [ModelRequest(parts=[UserPromptPart(list(content))])]


def bound(
    messages: list[ModelMessage] | None = None,
    settings: dict[str, object] | None = None,
    parameters: ModelRequestParameters | None = None,
    *,
    model: Model = GPT,
    calculator: CostCalculator | None = None,
) -> RequestBound:
    return request_bound(
        calculator or CostCalculator(),
        model,
        messages or ask("hello"),
        ModelSettings(**settings) if settings else None,  # type: ignore[typeddict-item]
        parameters or ModelRequestParameters(),
    )


def input_price(found: RequestBound) -> Decimal:
    assert found.prices is not None
    return found.prices.input_per_mtok


UNBOUNDED = RequestBound(input_tokens=None, output_tokens=None, cost_usd=None)


def test_there_are_the_models_that_these_tests_speak_of() -> None:
    assert GPT.context_window == WINDOW
    assert UNLIMITED.context_window is None


class TestInput:
    async def test_models_of_openai_are_counted_in_tokens(self) -> None:
        text = "What is the capital of France?"
        await prepare_bound(CostCalculator(), GPT, ask(text), ModelRequestParameters())
        assert bound(ask(text)).input_tokens == OPENAI.request + OPENAI.message + tokens(text)

    def test_before_their_tokenizer_is_loaded_they_are_counted_in_bytes(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tokenizers, "_loaded", set())
        text = "What is the capital of France?"
        assert bound(ask(text)).input_tokens == OPENAI.request + OPENAI.message + len(text)

    def test_others_are_counted_in_bytes(self) -> None:
        text = "What is the capital of France?"
        found = bound(ask(text), model=CLAUDE)
        assert found.input_tokens == ANTHROPIC.request + ANTHROPIC.message + len(text)

    @pytest.mark.parametrize("url", ["http://localhost:8000/v1", "https://gateway.example.com/v1"])
    def test_so_are_models_that_only_have_the_name_of_one_of_openai(self, url: str) -> None:
        found = bound(ask("capital"), model=served_at(url))
        assert found.input_tokens == GATEWAY.request + GATEWAY.message + len("capital")

    def test_so_are_models_whose_encoding_is_not_known(self) -> None:
        found = bound(ask("capital"), model=chat_model("gpt-of-tomorrow"))
        assert found.input_tokens == OPENAI.request + OPENAI.message + len("capital")

    def test_a_body_larger_than_the_context_window_is_refused_by_the_provider(self) -> None:
        assert bound(ask("x y" * WINDOW)).input_tokens == WINDOW

    @pytest.mark.parametrize(
        "messages",
        [
            ask(BinaryContent(b"x", media_type="application/pdf")),
            [ModelResponse(parts=[NativeToolCallPart("web_search", {})])],
            [ModelRequest(parts=[ToolReturnPart("f", object())])],
        ],
    )
    def test_what_is_not_in_the_body_is_bounded_by_the_context_window_only(
        self, messages: list[ModelMessage]
    ) -> None:
        assert bound(messages).input_tokens == WINDOW
        assert bound(messages, {"max_tokens": 10}, model=UNLIMITED).cost_usd is None

    @pytest.mark.parametrize("setting", ["openai_previous_response_id", "openai_conversation_id"])
    def test_what_the_provider_remembers_is_bounded_by_the_context_window_only(self, setting: str) -> None:
        assert bound(settings={setting: "resp_1"}).input_tokens == WINDOW

    def test_images_are_bounded_by_what_is_documented(self) -> None:
        image = ask("look", ImageUrl("https://example.com/x.png"))
        assert bound(image).input_tokens < 10_000  # type: ignore[operator]
        assert bound(image, {"max_tokens": 9}, model=UNLIMITED).input_tokens is None


@pytest.fixture
def without_the_extra(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "bpe_openai", None)
    tokenizers._load.cache_clear()
    yield
    tokenizers._load.cache_clear()


@pytest.mark.usefixtures("without_the_extra")
async def test_without_the_extra_models_of_openai_are_counted_in_bytes() -> None:
    await prepare_bound(CostCalculator(), GPT, ask("capital"), ModelRequestParameters())
    assert bound(ask("capital")).input_tokens == OPENAI.request + OPENAI.message + len("capital")


class TestOutput:
    def test_it_is_max_tokens(self) -> None:
        assert bound(settings={"max_tokens": 123}).output_tokens == 123

    def test_the_settings_of_the_model_itself_count(self) -> None:
        model = OpenAIResponsesModel(
            "gpt-5-mini", provider=OpenAIProvider(api_key="none"), settings={"max_tokens": 77}
        )
        assert bound(model=model).output_tokens == 77
        assert bound(settings={"max_tokens": 5}, model=model).output_tokens == 5

    def test_without_it_the_limit_of_the_model_counts(self) -> None:
        assert bound().output_tokens == 128_000
        assert bound(model=served_at("http://localhost/v1")).output_tokens == WINDOW
        assert bound(model=CLAUDE).output_tokens == 64_000

    def test_with_no_limit_at_all_there_is_no_bound(self) -> None:
        found = bound(model=UNLIMITED, calculator=priced("gemini-of-tomorrow"))
        assert (found.output_tokens, found.tokens, found.cost_usd) == (None, None, None)


def priced(model: str, **more: int) -> CostCalculator:
    return CostCalculator({model: {"input_per_mtok": 1, "output_per_mtok": 5, **more}})  # type: ignore[typeddict-item]


class TestCost:
    def test_it_is_the_tokens_at_the_highest_prices(self) -> None:
        calculator = priced("gpt-5-mini", cache_write_per_mtok=3, per_request=1)
        found = bound(settings={"max_tokens": 100}, calculator=calculator)
        assert found.input_tokens is not None
        assert found.tokens == found.input_tokens + 100
        assert found.cost_usd == 1 + Decimal(3 * found.input_tokens + 500) / 1_000_000

    def test_a_small_request_is_not_priced_by_the_tier_of_large_ones(self) -> None:
        small, large = bound(ask("x"), model=GEMINI), bound(ask("x" * 250_000), model=GEMINI)
        assert input_price(small) < input_price(large)

    def test_a_model_whose_address_is_not_known_is_found_by_its_provider(self) -> None:
        class Homeless(OpenAIResponsesModel):
            @property
            def base_url(self) -> str:
                raise AttributeError("no address")

        nowhere = Homeless("gpt-5-mini", provider=OpenAIProvider(api_key="none"))
        assert bound(settings={"max_tokens": 9}, model=nowhere).cost_usd is not None

    def test_a_model_without_a_price_has_no_bound(self) -> None:
        found = bound(settings={"max_tokens": 10}, model=responses_model("gpt-unheard-of"))
        assert (found.output_tokens, found.cost_usd) == (10, None)

    def test_what_wraps_the_model_does_not_matter(self) -> None:
        assert bound(settings={"max_tokens": 9}, model=InstrumentedModel(GPT)) == bound(
            settings={"max_tokens": 9}
        )

    @pytest.mark.parametrize(
        "model", [TestModel(), FunctionModel(lambda messages, info: ModelResponse(parts=[]))]
    )
    def test_local_models_cost_nothing_unless_they_have_a_price(self, model: Model) -> None:
        assert bound(model=model).cost_usd == 0
        calculator = priced(model.model_name)
        assert bound(settings={"max_tokens": 1}, model=model, calculator=calculator).cost_usd != 0
        assert bound(model=model, calculator=calculator).cost_usd is None

    @pytest.mark.parametrize(
        "settings",
        [
            {"extra_body": {"tools": [{"type": "web_search"}]}},
            {"extra_body": {"n": 3}},
            {"extra_body": "n=3"},
            {"openai_context_management": []},
            {"openai_reasoning_mode": "pro"},
            {"a_setting_of_tomorrow": 1},
            {"extra_headers": {"anthropic-beta": "context-1m"}},
        ],
    )
    def test_settings_that_may_cost_something_else_leave_no_bound(self, settings: dict[str, object]) -> None:
        assert bound(settings=settings | {"max_tokens": 10}) == UNBOUNDED

    @pytest.mark.parametrize(
        "settings",
        [
            {"extra_headers": {"X-Title": "test"}},
            {"temperature": 0.5, "service_tier": "priority"},
            {"openai_reasoning_effort": "high"},
            {"extra_body": None},
            {"extra_body": {}},
            {"extra_headers": {}},
        ],
    )
    def test_harmless_settings_leave_a_bound(self, settings: dict[str, object]) -> None:
        assert bound(settings=settings | {"max_tokens": 10}).cost_usd is not None


class TestServiceTiers:
    """gpt-5-mini costs 0.25 a million tokens of input, and 0.45 in the priority tier."""

    @pytest.mark.parametrize(
        ("settings", "price"),
        [
            ({}, "0.45"),  # the project may have set it
            ({"service_tier": "auto"}, "0.45"),
            ({"service_tier": "priority"}, "0.45"),
            ({"openai_service_tier": "priority", "service_tier": "default"}, "0.45"),
            ({"service_tier": "default"}, "0.25"),
            ({"service_tier": "flex"}, "0.25"),
            ({"openai_service_tier": "default"}, "0.25"),
        ],
    )
    def test_a_standard_tier_is_not_priced_as_a_faster_one(
        self, settings: dict[str, object], price: str
    ) -> None:
        assert input_price(bound(settings=settings)) == Decimal(price)

    def test_a_gateway_may_take_any(self) -> None:
        found = bound(settings={"service_tier": "default"}, model=served_at("https://gateway.example.com"))
        assert input_price(found) >= Decimal("0.45")

    @pytest.mark.parametrize(
        ("tier", "same_as"), [("default", "flex"), ("auto", None), ("priority", None), ("scale", None)]
    )
    def test_only_a_standard_tier_of_an_endpoint_lowers_bounds(self, tier: str, same_as: str | None) -> None:
        url = "https://gateway.example.com"
        calculators = [
            CostCalculator(endpoints={url: Endpoint(like="openai", service_tier=each)})
            for each in (tier, same_as)
        ]
        prices = [
            input_price(bound(model=served_at(url), calculator=calculator)) for calculator in calculators
        ]
        assert prices[0] == prices[1]
        assert (prices[0] < Decimal("0.45")) == (tier == "default")

    def test_the_fast_mode_of_claude_is_priced_if_it_is_asked_for(self) -> None:
        opus = claude_model("claude-opus-4-8")
        # A workspace can process in the US by default, for 10 % more.
        assert input_price(bound(model=opus)) == Decimal("5.5")
        anywhere = {"extra_body": {"inference_geo": "global"}}
        assert input_price(bound(settings=anywhere, model=opus)) == 5
        assert input_price(bound(settings={"anthropic_speed": "fast"}, model=opus)) == 11


class TestCacheWrites:
    """Claude Sonnet 4.5 costs 3 a million tokens of input, 3.75 to write them to the cache, 6 for an hour."""

    @pytest.mark.parametrize(
        ("settings", "price"),
        [
            ({}, "3"),
            ({"anthropic_cache_messages": False}, "3"),
            ({"anthropic_cache": True}, "3.75"),
            ({"anthropic_cache_instructions": "5m"}, "3.75"),
            ({"anthropic_cache_instructions": "5m", "anthropic_cache_messages": "1h"}, "6"),
            ({"cache": "1h"}, "6"),
            ({"cache": "5m"}, "3.75"),
        ],
    )
    def test_what_settings_ask_to_cache_is_priced(self, settings: dict[str, object], price: str) -> None:
        assert input_price(bound(settings=settings, model=CLAUDE)) == Decimal(price)

    @pytest.mark.parametrize(
        ("point", "price"), [(CachePoint(), "3.75"), (CachePoint(ttl="1h"), "6"), ("", "3")]
    )
    def test_what_a_prompt_asks_to_cache_is_priced(self, point: UserContent, price: str) -> None:
        history = [*ask("long", point), ModelResponse(parts=[TextPart("yes")]), *ask("go on")]
        history.append(ModelRequest(parts=[UserPromptPart("plain")]))
        assert input_price(bound(history, model=CLAUDE)) == Decimal(price)

    def test_a_gateway_may_write_to_a_cache_unasked(self) -> None:
        gateway = AnthropicProvider(api_key="none", base_url="https://gateway.example.com")
        found = bound(model=AnthropicModel("claude-sonnet-4-5", provider=gateway))
        assert input_price(found) == 6


class TestNativeTools:
    def searching(self, *tools: AbstractNativeTool, model: Model = CLAUDE, **settings: Any) -> RequestBound:
        parameters = ModelRequestParameters(native_tools=list(tools))
        return bound(None, settings, parameters, model=model)

    def test_searches_on_anthropic_are_bounded_by_how_often_they_may_be_used(self) -> None:
        found = self.searching(WebSearchTool(max_uses=3), max_tokens=1_000)
        assert CLAUDE.context_window is not None
        asked = bound(settings={"max_tokens": 1_000}, model=CLAUDE).input_tokens
        assert asked is not None
        assert found.input_tokens == asked + 9 * CLAUDE.context_window
        assert found.output_tokens == 10 * 1_000
        once_more = self.searching(WebSearchTool(max_uses=4), max_tokens=1_000)
        assert found.cost_usd is not None
        assert once_more.cost_usd == found.cost_usd + Decimal("0.01")

    def test_such_a_request_is_not_lowered(self) -> None:
        found = self.searching(WebSearchTool(max_uses=1), max_tokens=1_000)
        assert found.lowered(usd=found.cost_usd, tokens=None) is found
        assert found.lowered(usd=Decimal(1), tokens=None) is None

    @pytest.mark.parametrize(
        "tools",
        [[WebSearchTool()], [CodeExecutionTool()], [WebSearchTool(max_uses=1), CodeExecutionTool()]],
    )
    def test_other_tools_leave_no_bound(self, tools: list[AbstractNativeTool]) -> None:
        assert self.searching(*tools, max_tokens=10) == UNBOUNDED

    def test_elsewhere_nothing_limits_the_searches(self) -> None:
        gateway = AnthropicProvider(api_key="none", base_url="https://gateway.example.com")
        model = AnthropicModel("claude-sonnet-4-5", provider=gateway)
        assert self.searching(WebSearchTool(max_uses=1), model=model, max_tokens=10) == UNBOUNDED
        assert self.searching(WebSearchTool(), model=GPT, max_tokens=10) == UNBOUNDED

    def test_without_a_price_of_a_search_only_tokens_are_bounded(self) -> None:
        parameters = ModelRequestParameters(native_tools=[WebSearchTool(max_uses=1)])
        calculator = priced("claude-sonnet-4-5")
        found = bound(None, {"max_tokens": 10}, parameters, model=CLAUDE, calculator=calculator)
        assert (found.output_tokens, found.cost_usd) == (100, None)


class TestPreparing:
    async def test_long_texts_are_tokenized_in_a_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        threads: list[str] = []
        prepare = tokenizers.Tokenizer.prepare

        def spy(self: tokenizers.Tokenizer, texts: list[str]) -> None:
            threads.append(threading.current_thread().name)
            prepare(self, texts)

        monkeypatch.setattr(tokenizers.Tokenizer, "prepare", spy)
        long = f"{'a word and another ' * 4_000}{threading.get_ident()}"
        assert bound(ask(long)).input_tokens == OPENAI.request + OPENAI.message + len(long)
        for _ in range(2):
            await prepare_bound(CostCalculator(), InstrumentedModel(GPT), ask(long), ModelRequestParameters())
        assert bound(ask(long)).input_tokens == OPENAI.request + OPENAI.message + tokens(long)
        assert len(threads) == 1
        assert threads[0] != threading.main_thread().name

    async def test_the_tokenizer_is_loaded_in_a_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loaded_by: list[threading.Thread] = []
        load = tokenizers._load

        def spy(name: str) -> tokenizers.Tokenizer | None:
            loaded_by.append(threading.current_thread())
            return load(name)

        monkeypatch.setattr(tokenizers, "_load", spy)
        monkeypatch.setattr(tokenizers, "_loaded", set())
        await prepare_bound(CostCalculator(), GPT, ask("hello"), ModelRequestParameters())
        assert len(loaded_by) == 1
        assert loaded_by[0] is not threading.main_thread()

    @pytest.mark.parametrize("model", [CLAUDE, GEMINI, TestModel(), served_at("http://localhost:1/v1")])
    async def test_models_without_a_tokenizer_need_nothing(
        self, model: Model, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(asyncio, "to_thread", None)
        await prepare_bound(CostCalculator(), model, ask("x" * 100_000), ModelRequestParameters())

    async def test_what_cannot_be_counted_is_no_matter(self) -> None:
        await prepare_bound(
            CostCalculator(), GPT, ask(BinaryContent(b"x", media_type="audio/wav")), ModelRequestParameters()
        )


class TestLowering:
    def test_a_request_that_fits_is_itself(self) -> None:
        found = bound(settings={"max_tokens": 100})
        assert found.lowered(usd=None, tokens=None) is found
        assert found.lowered(usd=found.cost_usd, tokens=found.tokens) is found

    def test_the_answer_is_as_long_as_what_is_left_pays_for(self) -> None:
        found = bound(settings={"max_tokens": 1_000}, calculator=priced("gpt-5-mini"))
        assert found.input_tokens is not None
        usd = Decimal(found.input_tokens + 5 * 600) / 1_000_000
        lowered = found.lowered(usd=usd + Decimal("0.0000049"), tokens=None)
        assert lowered == replace(found, output_tokens=600, cost_usd=usd)

    def test_the_answer_is_as_long_as_the_tokens_that_are_left(self) -> None:
        found = bound(settings={"max_tokens": 1_000}, model=chat_model("gpt-unheard-of"))
        assert found.input_tokens is not None
        lowered = found.lowered(usd=None, tokens=found.input_tokens + 600)
        assert lowered == replace(found, output_tokens=600)
        assert found.lowered(usd=Decimal(1), tokens=None) is None  # nothing tells what it costs

    def test_without_max_tokens_it_can_be_lowered_too(self) -> None:
        found = bound(model=UNLIMITED, calculator=priced("gemini-of-tomorrow"))
        lowered = found.lowered(usd=Decimal("0.05"), tokens=None)
        assert lowered is not None
        assert lowered.output_tokens is not None
        assert 0 < lowered.output_tokens < 10_000

    def test_no_shorter_than_the_provider_accepts(self) -> None:
        found = bound(settings={"max_tokens": 1_000})
        assert found.input_tokens is not None
        assert found.lowered(usd=None, tokens=found.input_tokens + 16) is not None
        assert found.lowered(usd=None, tokens=found.input_tokens + 15) is None

    def test_an_unknown_input_leaves_nothing_for_an_answer(self) -> None:
        found = bound(ask(ImageUrl("https://example.com/x.png")), {"max_tokens": 100}, model=UNLIMITED)
        assert found.lowered(usd=None, tokens=1_000_000) is None
        assert found.lowered(usd=Decimal(100), tokens=None) is None

    def test_a_model_that_ignores_max_tokens_is_not_lowered(self) -> None:
        found = bound(
            model=OpenAIResponsesModel(
                "gpt-5-mini",
                provider=OpenAIProvider(api_key="none"),
                profile=OpenAIModelProfile(openai_unsupported_model_settings=["max_tokens"]),
            )
        )
        assert found.lowered(usd=Decimal("0.01"), tokens=None) is None

    def test_what_is_not_bounded_is_not_lowered(self) -> None:
        assert UNBOUNDED.lowered(usd=None, tokens=None) is UNBOUNDED
        assert UNBOUNDED.lowered(usd=Decimal(1), tokens=None) is None
        assert UNBOUNDED.lowered(usd=None, tokens=1_000) is None


amounts = st.decimals(0, 100, places=6)
prices = st.builds(
    FlatPrices,
    input_per_mtok=amounts,
    output_per_mtok=st.just(Decimal(0)) | amounts,
    per_request=st.just(Decimal(0)) | st.decimals(0, 1, places=6),
)


@st.composite
def bounds(draw: st.DrawFn) -> RequestBound:
    counts = st.none() | st.integers(0, 200_000)
    known, input_tokens, output_tokens = draw(st.none() | prices), draw(counts), draw(counts)
    return RequestBound(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cost_usd=None if known is None else known.cost(input_tokens, output_tokens),
        prices=known,
        least_output_tokens=draw(st.sampled_from([None, 1, 16, 1_025])),
    )


def fits(found: RequestBound, output: int | None, usd: Decimal | None, tokens: int | None) -> bool:
    """Whether a request with so much output is within the limits, and no longer than it was asked to be."""
    if output is not None and found.output_tokens is not None and output > found.output_tokens:
        return False
    cost = None if found.prices is None else found.prices.cost(found.input_tokens, output)
    if usd is not None and (cost is None or cost > usd):
        return False
    if tokens is None:
        return True
    return found.input_tokens is not None and output is not None and found.input_tokens + output <= tokens


usd_limits = st.none() | st.decimals(0, 20, places=9)
token_limits = st.none() | st.integers(0, 400_000)


@pytest.mark.slow
@given(bounds(), usd_limits, token_limits)
@settings(max_examples=examples(50))
def test_a_lowered_request_has_the_longest_answer_that_fits(
    found: RequestBound, usd: Decimal | None, tokens: int | None
) -> None:
    lowered = found.lowered(usd=usd, tokens=tokens)
    floor = found.least_output_tokens
    if fits(found, found.output_tokens, usd, tokens):
        assert lowered is found
    elif lowered is None:
        assert floor is None or not fits(found, floor, usd, tokens)
    else:
        assert floor is not None
        assert lowered.output_tokens is not None
        assert lowered.output_tokens >= floor
        assert fits(found, lowered.output_tokens, usd, tokens)
        assert not fits(found, lowered.output_tokens + 1, usd, tokens)
        assert lowered.input_tokens == found.input_tokens
        assert lowered.prices == found.prices
        if found.prices is not None:
            assert lowered.cost_usd == found.prices.cost(found.input_tokens, lowered.output_tokens)
        assert lowered.lowered(usd=usd, tokens=tokens) is lowered


@given(bounds(), st.lists(st.decimals(0, 20, places=9), min_size=2, max_size=2).map(sorted), token_limits)
def test_with_more_money_the_answer_is_no_shorter(
    found: RequestBound, usd: list[Decimal], tokens: int | None
) -> None:
    poorer, richer = (found.lowered(usd=each, tokens=tokens) for each in usd)
    if poorer is not None:
        assert richer is not None
        assert richer is found or poorer.output_tokens <= richer.output_tokens  # type: ignore[operator]


texts = st.text(st.characters(codec="utf-8"), max_size=200)


@given(texts, texts, texts, texts)
@settings(max_examples=examples(25))
def test_the_bound_with_a_tokenizer_is_no_looser_than_without(
    instructions: str, question: str, result: str, description: str
) -> None:
    tool = ToolDefinition(
        name="f",
        description=description,
        parameters_json_schema={"type": "object", "properties": {"x": {"description": description}}},
    )
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(question)], instructions=instructions),
        ModelResponse(parts=[TextPart(result), ToolCallPart("f", {"x": question}, tool_call_id="1")]),
        ModelRequest(parts=[ToolReturnPart("f", {"y": result}, tool_call_id="1")], instructions=instructions),
    ]
    parameters = ModelRequestParameters(function_tools=[tool])
    assert tokenizers.tokenizer_of(GPT.model_name), "a bound loads none"
    with_it = bound(messages, {"max_tokens": 10}, parameters)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizers, "_load", lambda name: None)
        without = bound(messages, {"max_tokens": 10}, parameters)
    assert with_it.input_tokens is not None
    assert without.input_tokens is not None
    assert with_it.input_tokens < without.input_tokens
    assert with_it.output_tokens == without.output_tokens
    assert with_it.cost_usd is not None
    assert without.cost_usd is not None
    assert with_it.cost_usd < without.cost_usd


@given(
    model=st.sampled_from([GPT, CLAUDE, GEMINI]),
    text=texts,
    max_tokens=st.integers(1, 50_000),
    used=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    cached=st.tuples(st.floats(0, 0.5), st.floats(0, 0.5), st.sampled_from([None, "5m", "1h"])),
    tier=st.sampled_from(["priority", "default", "flex", "fast", None]),
    asked=st.sampled_from(["default", "flex", None]),
)
@settings(deadline=None)
def test_no_response_within_the_bounds_costs_more(
    model: Model,
    text: str,
    max_tokens: int,
    used: tuple[float, float],
    cached: tuple[float, float, str | None],
    tier: str | None,
    asked: str | None,
) -> None:
    size = (tokens(text) if model is GPT else len(text.encode())) + 7
    read, write, asked_to_cache = cached
    if model is CLAUDE and asked_to_cache is None:
        write = 0
    usage = RequestUsage(
        input_tokens=int(used[0] * size),
        output_tokens=int(used[1] * max_tokens),
        cache_read_tokens=int(read * used[0] * size),
        cache_write_tokens=int(write * used[0] * size),
        cache_write_1h_tokens=int(write * used[0] * size) * (asked_to_cache == "1h"),
    )
    if model is GPT and asked is not None:
        tier = asked  # it is not served in another one
    response = ModelResponse(
        parts=[],
        usage=usage,
        model_name=model.model_name,
        provider_name=model.system,
        provider_url=model.base_url,
        provider_details={"service_tier": tier} if tier and model is GPT else None,
    )
    cost = CostCalculator().price(response)
    given_settings: dict[str, object] = {
        "max_tokens": max_tokens,
        "service_tier": asked,
        "anthropic_cache": asked_to_cache,
    }
    if model is not CLAUDE:
        del given_settings["anthropic_cache"]
    most = bound(ask(text), given_settings, model=model).cost_usd
    assert cost is not None
    assert most is not None
    assert cost <= most
