import json
import unicodedata
from decimal import Decimal
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    CompactionPart,
    FilePart,
    ImageUrl,
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UploadedFile,
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
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from fastroai.usage import CostCalculator, RequestBound, request_bound
from fastroai.usage.bounds import HIDDEN_INPUT_TOKENS, OTHER_HIDDEN_INPUT_TOKENS

OPENAI = OpenAIProvider(api_key="none")
GPT = OpenAIResponsesModel("gpt-5-mini", provider=OPENAI)
CLAUDE = AnthropicModel("claude-sonnet-4-5", provider=AnthropicProvider(api_key="none"))
GEMINI = GoogleModel("gemini-2.5-pro", provider=GoogleProvider(api_key="none"))
WINDOW = 400_000
"""The context window of gpt-5-mini."""


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


UNBOUNDED = RequestBound(input_tokens=None, output_tokens=None, cost_usd=None)


def test_there_are_the_models_that_these_tests_speak_of() -> None:
    assert GPT.context_window == WINDOW
    assert GEMINI.context_window is None


class TestInput:
    def test_it_is_the_bytes_of_the_text_and_what_the_provider_adds(self) -> None:
        short, long = bound(ask("x")), bound(ask("x" * 1001))
        assert short.input_tokens is not None
        assert short.input_tokens > HIDDEN_INPUT_TOKENS["openai"]
        assert long.input_tokens == short.input_tokens + 1000

    @pytest.mark.parametrize("letter", ["é", "漢", "½", "ﷺ", "😀"])
    def test_letters_count_as_the_bytes_that_they_can_become(self, letter: str) -> None:
        shapes = (letter, unicodedata.normalize("NFKD", letter))
        longest = max(len(shape.encode()) for shape in shapes)
        before, after = bound(ask("é")).input_tokens, bound(ask("é" + letter * 100)).input_tokens
        assert before is not None
        assert after == before + 100 * longest

    @pytest.mark.parametrize(
        ("more", "least"),
        [
            ([ModelRequest(parts=[SystemPromptPart("s" * 500)])], 500),
            ([ModelRequest(parts=[UserPromptPart([TextContent("t" * 500), CachePoint()])])], 500),
            ([ModelResponse(parts=[TextPart("t" * 500)])], 500),
            ([ModelResponse(parts=[ToolCallPart("f", {"x": "y" * 500})])], 500),
            ([ModelRequest(parts=[ToolReturnPart("f", {"x": "y" * 500})])], 500),
        ],
    )
    def test_everything_in_the_messages_counts(self, more: list[ModelMessage], least: int) -> None:
        before, after = bound().input_tokens, bound(ask("hello") + more).input_tokens
        assert before is not None
        assert after is not None
        assert after >= before + least

    def test_the_instructions_count_once(self) -> None:
        def conversation(instructions: str) -> list[ModelMessage]:
            return [ModelRequest(parts=[UserPromptPart("hi")], instructions=instructions) for _ in range(3)]

        without, with_them = (
            bound(conversation("")).input_tokens,
            bound(conversation("i" * 1000)).input_tokens,
        )
        assert without is not None
        assert with_them == without + 1000
        in_parts = ModelRequestParameters(
            instruction_parts=[InstructionPart(content="i" * 1000)]
        )  # as of agents
        again = bound(conversation("i" * 1000), parameters=in_parts).input_tokens
        assert again is not None
        assert with_them <= again < with_them + 1000

    @pytest.mark.parametrize(
        "parameters",
        [
            ModelRequestParameters(
                function_tools=[ToolDefinition(name="f", description="d" * 500, parameters_json_schema={})]
            ),
            ModelRequestParameters(
                output_mode="tool", output_tools=[ToolDefinition(name="f" * 500, parameters_json_schema={})]
            ),
        ],
    )
    def test_tools_count(self, parameters: ModelRequestParameters) -> None:
        before, after = bound().input_tokens, bound(parameters=parameters).input_tokens
        assert before is not None
        assert after is not None
        assert after >= before + 500

    def test_content_counts_as_it_is_sent_with_the_names_it_is_sent_under(self) -> None:
        class Short(BaseModel):
            x: int = Field(serialization_alias="a_much_longer_name_" * 10)

        plain = bound([ModelRequest(parts=[ToolReturnPart("f", {"x": 1})])]).input_tokens
        aliased = bound([ModelRequest(parts=[ToolReturnPart("f", Short(x=1))])]).input_tokens
        assert plain is not None
        assert aliased is not None
        assert aliased >= plain + 150

    def test_settings_with_text_count(self) -> None:
        before = bound(model=CLAUDE).input_tokens
        after = bound(settings={"stop_sequences": ["s" * 500]}, model=CLAUDE).input_tokens
        assert before is not None
        assert after is not None
        assert after >= before + 500

    def test_a_provider_that_nothing_is_known_of_may_add_more(self) -> None:
        named = OpenAIChatModel("gpt-4o", provider=OPENAI)
        other = OpenAIChatModel("gpt-4o", provider=_Renamed())
        ours, theirs = bound(model=named).input_tokens, bound(model=other).input_tokens
        assert ours is not None
        assert theirs == ours + OTHER_HIDDEN_INPUT_TOKENS - HIDDEN_INPUT_TOKENS["openai"]

    def test_a_body_larger_than_the_context_window_is_refused_by_the_provider(self) -> None:
        assert bound(ask("x" * 2 * WINDOW)).input_tokens == WINDOW

    @pytest.mark.parametrize(
        "part",
        [
            TextPart("a", provider_name="openai", provider_details={"encrypted": "e"}),
            ThinkingPart("", id="rs_1", provider_name="openai"),
            ToolCallPart("f", {}, provider_name="google", provider_details={"thought_signature": "s"}),
        ],
    )
    def test_hidden_thoughts_are_no_more_than_what_was_billed_for_them(self, part: Any) -> None:
        def history(output_tokens: int) -> list[ModelMessage]:
            usage = RequestUsage(output_tokens=output_tokens)
            return [*ask("hello"), ModelResponse(parts=[part], usage=usage), *ask("go on")]

        fewer, more = bound(history(1000)).input_tokens, bound(history(9000)).input_tokens
        assert fewer is not None
        assert more == fewer + 8000
        assert bound(history(0)).input_tokens == WINDOW

    @pytest.mark.parametrize(
        "messages",
        [
            ask("look", ImageUrl("https://example.com/x.png")),
            ask(BinaryContent(b"x", media_type="image/png")),
            ask(UploadedFile(file_id="file-1", provider_name="openai")),
            [ModelRequest(parts=[ToolReturnPart("f", ["see", BinaryContent(b"x", media_type="image/png")])])],
            [ModelResponse(parts=[FilePart(BinaryContent(b"x", media_type="image/png"))])],
            [ModelResponse(parts=[NativeToolCallPart("web_search", {})])],
            [ModelResponse(parts=[CompactionPart(provider_name="openai", provider_details={"e": "c"})])],
            [ModelRequest(parts=[ToolReturnPart("f", object())])],
            ask("\udcff"),
        ],
    )
    def test_what_is_not_text_is_bounded_by_the_context_window_only(
        self, messages: list[ModelMessage]
    ) -> None:
        assert bound(messages).input_tokens == WINDOW
        assert bound(messages, {"max_tokens": 10}, model=GEMINI).cost_usd is None

    @pytest.mark.parametrize("setting", ["openai_previous_response_id", "openai_conversation_id"])
    def test_what_the_provider_remembers_is_bounded_by_the_context_window_only(self, setting: str) -> None:
        assert bound(settings={setting: "resp_1"}).input_tokens == WINDOW


class _Renamed(OpenAIProvider):
    def __init__(self) -> None:
        super().__init__(api_key="none")

    @property
    def name(self) -> str:
        return "renamed"


class TestOutput:
    def test_it_is_max_tokens(self) -> None:
        assert bound(settings={"max_tokens": 123}).output_tokens == 123

    def test_the_settings_of_the_model_itself_count(self) -> None:
        model = OpenAIResponsesModel("gpt-5-mini", provider=OPENAI, settings={"max_tokens": 77})
        assert bound(model=model).output_tokens == 77
        assert bound(settings={"max_tokens": 5}, model=model).output_tokens == 5

    def test_without_it_the_limit_of_the_model_counts(self) -> None:
        assert bound().output_tokens == WINDOW
        assert bound(model=CLAUDE).output_tokens == 64_000

    @pytest.mark.parametrize("max_tokens", [0, None])
    def test_a_limit_that_is_none_does_not_count(self, max_tokens: int | None) -> None:
        assert bound(settings={"max_tokens": max_tokens}).output_tokens == WINDOW

    def test_with_no_limit_at_all_there_is_no_bound(self) -> None:
        assert bound(model=GEMINI).output_tokens is None
        assert bound(model=GEMINI).cost_usd is None

    @pytest.mark.filterwarnings("ignore:The `max_tokens` setting is not supported")
    def test_a_limit_that_the_model_does_not_send_does_not_count(self) -> None:
        profile = OpenAIResponsesModel(
            "gpt-5-mini",
            provider=OPENAI,
            profile=OpenAIModelProfile(openai_unsupported_model_settings=["max_tokens"]),
        )

        class Deaf(OpenAIResponsesModel):
            unsupported_settings = frozenset({"max_tokens"})

        for model in (profile, Deaf("gpt-5-mini", provider=OPENAI)):
            assert bound(settings={"max_tokens": 5}, model=model).output_tokens == WINDOW


class TestCost:
    def test_it_is_the_tokens_at_the_highest_prices(self) -> None:
        calculator = CostCalculator(
            {
                "gpt-5-mini": {
                    "input_per_mtok": 1,
                    "cache_write_per_mtok": 3,
                    "output_per_mtok": 5,
                    "per_request": 1,
                }
            }
        )
        found = bound(settings={"max_tokens": 100}, calculator=calculator)
        assert found.input_tokens is not None
        assert found.cost_usd == 1 + Decimal(3 * found.input_tokens + 500) / 1_000_000

    def test_a_small_request_is_not_priced_by_the_tier_of_large_ones(self) -> None:
        small = bound(ask("x"), {"max_tokens": 1}, model=CLAUDE)
        assert small.input_tokens is not None
        most = CostCalculator().upper_prices("claude-sonnet-4-5", "anthropic")
        assert most is not None
        large_prices = most.cost(small.input_tokens, 1)
        assert small.cost_usd is not None
        assert large_prices is not None
        assert small.cost_usd < large_prices

    def test_a_model_whose_address_is_not_known_is_found_by_its_provider(self) -> None:
        class Homeless(OpenAIResponsesModel):
            @property
            def base_url(self) -> str:
                raise AttributeError("no address")

        nowhere = Homeless("gpt-5-mini", provider=OPENAI)
        assert bound(settings={"max_tokens": 9}, model=nowhere) == bound(settings={"max_tokens": 9})

    def test_a_model_without_a_price_has_no_bound(self) -> None:
        unheard_of = OpenAIResponsesModel("gpt-unheard-of", provider=OPENAI)
        found = bound(settings={"max_tokens": 10}, model=unheard_of)
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
        priced = CostCalculator({model.model_name: {"input_per_mtok": 1, "output_per_mtok": 1}})
        assert bound(settings={"max_tokens": 1}, model=model, calculator=priced).cost_usd != 0
        assert bound(model=model, calculator=priced).cost_usd is None

    @pytest.mark.parametrize(
        "settings",
        [
            {"extra_body": {"tools": [{"type": "web_search"}]}},
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
        ],
    )
    def test_harmless_settings_leave_a_bound(self, settings: dict[str, object]) -> None:
        assert bound(settings=settings | {"max_tokens": 10}).cost_usd is not None

    def test_native_tools_leave_no_bound(self) -> None:
        parameters = ModelRequestParameters(native_tools=[WebSearchTool()])
        assert bound(settings={"max_tokens": 10}, parameters=parameters) == UNBOUNDED


class _Sent(Exception):
    """Carries the body of the request that was about to be sent."""


async def _body_of(messages: list[ModelMessage], parameters: ModelRequestParameters) -> bytes:
    """The body that PydanticAI sends to Anthropic."""
    client = AsyncAnthropic(api_key="none", max_retries=0)

    async def keep(**body: Any) -> None:
        raise _Sent({name: value for name, value in body.items() if isinstance(value, str | list | int)})

    client.beta.messages.create = keep  # type: ignore[method-assign, assignment]
    model = AnthropicModel("claude-sonnet-4-5", provider=AnthropicProvider(anthropic_client=client))
    try:
        await model.request(model.prepare_messages(messages, parameters), {"max_tokens": 10}, parameters)
    except _Sent as sent:
        return json.dumps(sent.args[0], ensure_ascii=False, default=str).encode()
    raise AssertionError("nothing was sent")


texts = st.text(st.characters(codec="utf-8"), max_size=200)


@given(texts, texts, texts, texts)
@settings(max_examples=25, deadline=None)
async def test_the_bound_covers_every_byte_that_is_sent(
    instructions: str, question: str, result: str, description: str
) -> None:
    parameters = ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name="f", description=description, parameters_json_schema={"type": "object", "properties": {}}
            )
        ]
    )
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(question or "?")], instructions=instructions),
        ModelResponse(parts=[TextPart(result or "!"), ToolCallPart("f", {"x": question}, tool_call_id="1")]),
        ModelRequest(parts=[ToolReturnPart("f", {"y": result}, tool_call_id="1")], instructions=instructions),
    ]
    found = bound(messages, {"max_tokens": 10}, parameters, model=CLAUDE)
    body = await _body_of(messages, parameters)
    assert found.input_tokens is not None
    assert found.input_tokens - HIDDEN_INPUT_TOKENS["anthropic"] >= len(body)


@given(
    model=st.sampled_from([GPT, CLAUDE, GEMINI]),
    text=texts,
    max_tokens=st.integers(1, 50_000),
    used=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    cached=st.tuples(st.floats(0, 0.5), st.floats(0, 0.5), st.booleans()),
    tier=st.sampled_from(["priority", "default", "flex", "fast", None]),
)
@settings(deadline=None)
def test_no_response_within_the_bytes_costs_more_than_the_bound(
    model: Model,
    text: str,
    max_tokens: int,
    used: tuple[float, float],
    cached: tuple[float, float, bool],
    tier: str | None,
) -> None:
    input_tokens = int(used[0] * (len(text.encode()) + 530))
    read, write, for_an_hour = cached
    usage = RequestUsage(
        input_tokens=input_tokens,
        output_tokens=int(used[1] * max_tokens),
        cache_read_tokens=int(read * input_tokens),
        cache_write_tokens=int(write * input_tokens),
        cache_write_1h_tokens=int(write * input_tokens) * for_an_hour,
    )
    response = ModelResponse(
        parts=[],
        usage=usage,
        model_name=model.model_name,
        provider_name=model.system,
        provider_url=model.base_url,
        provider_details={"service_tier": tier} if tier else None,
    )
    cost = CostCalculator().price(response)
    most = bound(ask(text), {"max_tokens": max_tokens}, model=model).cost_usd
    assert cost is not None
    assert most is not None
    assert cost <= most
