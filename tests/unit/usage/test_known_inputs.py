"""What was reported for one request bounds others that begin alike."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    ImageUrl,
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UploadedFile,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage
from support.bodies import claude_model
from support.examples import examples

from fastroai.usage import CostCalculator, request_bound
from fastroai.usage.bounding import bounds
from fastroai.usage.bounding.known_inputs import KnownBeginning, KnownInputs, beginnings
from fastroai.usage.prices.hosts import Host

CLAUDE = claude_model()
GEMINI = GoogleModel("gemini-2.5-flash", provider=GoogleProvider(api_key="none"))
NONE = ModelRequestParameters()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def ask(*content: Any) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(list(content))])


def answer(text: str = "yes", *more: ModelResponsePart) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text), *more], usage=RequestUsage(output_tokens=5))


def tool(name: str) -> ToolDefinition:
    return ToolDefinition(name=name, parameters_json_schema={"type": "object", "properties": {}})


def begun(
    messages: Sequence[ModelMessage],
    model: Model = CLAUDE,
    settings: dict[str, Any] | None = None,
    parameters: ModelRequestParameters = NONE,
) -> list[bytes]:
    return list(beginnings(Host.of(model), model, messages, settings, parameters))  # type: ignore[arg-type]


def after(
    noted: Sequence[ModelMessage],
    asked: Sequence[ModelMessage],
    *,
    models: tuple[Model, Model] = (CLAUDE, CLAUDE),
    settings: tuple[dict[str, Any] | None, dict[str, Any] | None] = (None, None),
    parameters: tuple[ModelRequestParameters, ModelRequestParameters] = (NONE, NONE),
) -> KnownBeginning | None:
    """What is known of one request, once 1,000 tokens were reported for another."""
    known = KnownInputs()
    known.note(noted, begun(noted, models[0], settings[0], parameters[0]), 1_000)
    return known.longest(begun(asked, models[1], settings[1], parameters[1]))


FIRST = ask("hello")


class TestWhatIsKnown:
    def test_a_conversation_that_goes_on_begins_with_what_was_measured(self) -> None:
        assert after([FIRST], [FIRST, answer(), ask("more")]) == KnownBeginning(1, 1_000)

    def test_the_same_request_once_more_is_wholly_known(self) -> None:
        again = replace(FIRST, parts=[UserPromptPart(["hello"])], run_id="another")  # at another time
        assert after([FIRST], [again]) == KnownBeginning(1, 1_000)

    def test_another_question_has_the_same_tools_and_instructions(self) -> None:
        assert after([FIRST], [ask("something else")]) == KnownBeginning(0, 1_000)

    def test_so_has_another_question_after_the_same_system_prompt(self) -> None:
        def helped(question: str) -> ModelRequest:
            return ModelRequest(parts=[SystemPromptPart("You help."), UserPromptPart(question)])

        assert after([helped("a")], [helped("b")]) == KnownBeginning(1, 1_000)
        assert after([helped("a")], [helped("a"), answer(), ask("more")]) == KnownBeginning(2, 1_000)

    def test_a_whole_request_has_what_was_last_reported_for_it(self) -> None:
        known = KnownInputs()
        for tokens in (900, 1_100):
            known.note([FIRST], begun([FIRST]), tokens)
        assert known.longest(begun([FIRST])) == KnownBeginning(1, 1_100)
        assert known.longest(begun([ask("b")])) == KnownBeginning(0, 900)

    def test_what_continues_an_answer_reports_the_input_of_another_request(self) -> None:
        assert after([FIRST, answer()], [FIRST, answer()]) is None

    def test_the_smallest_count_is_kept_of_what_many_requests_begin_with(self) -> None:
        known = KnownInputs()
        for text, tokens in (("a", 900), ("b", 700), ("c", 800)):
            known.note([ask(text)], begun([ask(text)]), tokens)
        assert known.longest(begun([ask("d")])) == KnownBeginning(0, 700)
        assert known.longest(begun([ask("a")])) == KnownBeginning(1, 900)

    def test_how_long_the_answer_may_be_says_nothing_of_the_input(self) -> None:
        assert after([FIRST], [FIRST], settings=({"max_tokens": 5}, {"max_tokens": 9})) is not None

    @pytest.mark.parametrize("now", [0.0, 3_600.0])
    def test_it_is_known_for_an_hour(self, now: float) -> None:
        clock = Clock()
        known = KnownInputs(clock)
        known.note([FIRST], begun([FIRST]), 10)
        clock.now = now
        assert known.longest(begun([FIRST])) is not None
        clock.now = 3_601.0
        assert known.longest(begun([FIRST])) is None
        known.note([FIRST], begun([FIRST]), 20)
        assert known.longest(begun([FIRST])) == KnownBeginning(1, 20)

    def test_only_so_much_is_remembered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("fastroai.usage.bounding.known_inputs._REMEMBERED", 3)
        known = KnownInputs()
        for text in "abcd":
            known.note([ask(text)], begun([ask(text)]), 10)
        assert known.longest(begun([ask("a")])) == KnownBeginning(0, 10)
        assert known.longest(begun([ask("d")])) == KnownBeginning(1, 10)


class TestWhatIsNotKnown:
    @pytest.mark.parametrize(
        "settings",
        [
            ({"thinking": "high"}, None),
            ({"anthropic_thinking": {"type": "enabled", "budget_tokens": 2_000}}, None),
            ({"tool_choice": "required"}, {"tool_choice": "auto"}),
            ({"extra_headers": {"anthropic-beta": "context-management"}}, None),
            ({"extra_body": {"context_management": {}}}, None),
        ],
    )
    def test_other_settings_can_have_another_input(self, settings: Any) -> None:
        assert after([FIRST], [FIRST], settings=settings) is None

    @pytest.mark.parametrize(
        "parameters",
        [
            ModelRequestParameters(function_tools=[tool("f")]),
            ModelRequestParameters(instruction_parts=[InstructionPart(content="be brief")]),
            ModelRequestParameters(output_mode="native"),
        ],
    )
    def test_so_can_other_tools_and_instructions(self, parameters: ModelRequestParameters) -> None:
        assert after([FIRST], [FIRST], parameters=(NONE, parameters)) is None

    def test_so_can_instructions_of_a_later_request(self) -> None:
        later = replace(ask("more"), instructions="be brief")
        assert after([FIRST], [FIRST, answer(), later]) is None

    def test_so_can_another_model(self) -> None:
        assert after([FIRST], [FIRST], models=(CLAUDE, claude_model("claude-opus-4-5"))) is None

    @pytest.mark.parametrize(
        "model",
        [
            AnthropicModel(
                "claude-sonnet-4-5", provider=AnthropicProvider(api_key="k", base_url="https://gw.example")
            ),
            OpenAIChatModel("gpt-5", provider=OpenAIProvider(api_key="k", base_url="http://localhost:1/v1")),
        ],
    )
    def test_nothing_is_known_of_what_gateways_count(self, model: Model) -> None:
        assert after([FIRST], [FIRST], models=(model, model)) is None

    @pytest.mark.parametrize(
        "file",
        [ImageUrl("https://example.com/x.png"), UploadedFile(file_id="f", provider_name="anthropic")],
    )
    def test_what_is_behind_a_url_can_be_another_thing_tomorrow(self, file: Any) -> None:
        asked = [FIRST, answer(), ask("look", file)]
        assert after(asked, asked) == KnownBeginning(2, 1_000)
        returned = [ModelRequest(parts=[ToolReturnPart("f", [file])])]
        assert after(returned, returned) == KnownBeginning(0, 1_000)

    @pytest.mark.parametrize(
        ("setting", "value"), [("openai_previous_response_id", "r"), ("openai_truncation", "auto")]
    )
    def test_what_the_provider_adds_or_drops_is_not_in_the_messages(self, setting: str, value: str) -> None:
        given = ({setting: value}, {setting: value})
        assert after([FIRST], [FIRST], settings=given) is None

    def test_tools_of_the_provider_add_to_the_input(self) -> None:
        searching = ModelRequestParameters(native_tools=[WebSearchTool(max_uses=1)])
        assert after([FIRST], [FIRST], parameters=(searching, searching)) is None

    def test_tools_that_cannot_be_compared_are_not(self) -> None:
        odd = ModelRequestParameters(function_tools=[replace(tool("f"), metadata={"x": object()})])
        assert after([FIRST], [FIRST], parameters=(odd, odd)) is None

    def test_a_provider_that_reports_nothing_tells_nothing(self) -> None:
        known = KnownInputs()
        known.note([FIRST], begun([FIRST]), 0)
        assert known.longest(begun([FIRST])) is None

    def test_thoughts_that_were_dropped_may_be_sent_in_another_branch(self) -> None:
        thinking = ThinkingPart("hm", signature="s", provider_name="anthropic")
        thought = answer("", thinking, ToolCallPart("f", {}, tool_call_id="1"))
        result = ModelRequest(parts=[ToolReturnPart("f", "1", tool_call_id="1")])
        over = [FIRST, thought, result, answer(), ask("next")]  # here the thought is of a turn that is over
        other = replace(result, parts=[replace(result.parts[0], content="2")])  # type: ignore[arg-type]
        assert after(over, [FIRST, thought, other]) == KnownBeginning(1, 1_000)
        assert after(over, [*over, answer(), ask("and?")]) == KnownBeginning(5, 1_000)


def test_a_measured_history_is_no_longer_counted_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    known = KnownInputs()
    monkeypatch.setattr(bounds, "KNOWN_INPUTS", known)
    long = [ask("The customer writes that the parcel has not arrived. " * 500)]

    def bound(messages: list[ModelMessage]) -> int:
        found = request_bound(CostCalculator(), CLAUDE, messages, {"max_tokens": 100}, NONE).input_tokens
        assert found is not None
        return found

    assert bound(long) > 25_000
    known.note(long, begun(long, settings={"max_tokens": 300}), 5_300)
    assert bound([*long, answer(), ask("more")]) < 5_300 + 300
    pdf = [ask(BinaryContent(b"%PDF", media_type="application/pdf"), "what is it?")]
    assert bound(pdf) == 200_000
    known.note(pdf, begun(pdf), 3_000)
    assert bound([*pdf, answer(), ask("more")]) < 3_300


# --- against a provider ---


class Provider:
    """Counts 1 to 3 bytes a token, by the text; drops thoughts of turns that are over, as Claude does."""

    def count(
        self, messages: Sequence[ModelMessage], settings: dict[str, Any], tools: Sequence[ToolDefinition]
    ) -> int:
        begins = max(
            (at for at, each in enumerate(messages) if self._is_prompt(each)), default=0
        )  # of the turn that goes on
        forced = 300 if settings.get("tool_choice") else 0
        total = 20 + forced + sum(60 + self.tokens(each.name) for each in tools)
        for at, message in enumerate(messages):
            for part in message.parts:
                thought = isinstance(part, ThinkingPart)
                if thought and at < begins:
                    continue
                content = part.args_as_json_str() if isinstance(part, ToolCallPart) else str(part.content)
                total += 4 + self.tokens(content)
        return total

    @staticmethod
    def tokens(text: str) -> int:
        return -(-len(text.encode()) // (1 + sum(text.encode()) % 3))

    @staticmethod
    def _is_prompt(message: ModelMessage) -> bool:
        return any(isinstance(part, UserPromptPart) for part in message.parts)


words = st.text("abc é漢", min_size=1, max_size=30)
turns = st.lists(
    st.tuples(
        st.sampled_from(["go on", "go on", "go on", "branch", "restart"]),
        words,
        st.booleans(),  # a tool is called
        st.booleans(),  # the model thinks
        st.integers(0, 8),
        st.sampled_from([{}, {}, {}, {"tool_choice": "required"}]),
        st.sampled_from([("f",), ("f",), ("f", "g")]),
    ),
    min_size=2,
    max_size=14,
)


@pytest.mark.slow
@pytest.mark.parametrize("model", [CLAUDE, GEMINI])
@given(plan=turns)
@settings(
    max_examples=examples(30),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_no_request_of_any_conversation_has_more_input_than_its_bound(
    monkeypatch: pytest.MonkeyPatch, model: Model, plan: list[Any]
) -> None:
    known, provider, used = KnownInputs(), Provider(), 0
    monkeypatch.setattr(bounds, "KNOWN_INPUTS", known)
    history: list[ModelMessage] = []
    for how, text, calls, thinks, back, given_settings, names in plan:
        if how == "restart":
            history = []
        elif how == "branch":
            history = history[: back - back % 2]
        last = history[-1] if history else None
        call = next((part for part in last.parts if isinstance(part, ToolCallPart)), None) if last else None
        part: ModelRequestPart = UserPromptPart(text)
        if call is not None:
            part = ToolReturnPart(call.tool_name, text, tool_call_id=call.tool_call_id)
        parts_now = [part] if history or back < 4 else [SystemPromptPart("You help. " * back), part]
        messages: list[ModelMessage] = [*history, ModelRequest(parts=parts_now)]
        asked = ModelRequestParameters(function_tools=[tool(name) for name in names])
        used += known.longest(begun(messages, model, given_settings, asked)) is not None
        found = request_bound(CostCalculator(), model, messages, {**given_settings, "max_tokens": 50}, asked)
        tokens = provider.count(messages, given_settings, asked.function_tools)
        assert found.input_tokens is not None
        assert tokens <= found.input_tokens
        known.note(messages, begun(messages, model, {**given_settings, "max_tokens": 50}, asked), tokens)
        parts: list[ModelResponsePart] = [TextPart(text[::-1])]
        billed = 4 + provider.tokens(text)
        if thinks:
            parts.insert(0, ThinkingPart(text * 3, signature="s", provider_name=model.system))
            billed += 4 + provider.tokens(text * 3)
        if calls:
            parts.append(ToolCallPart("f", {"x": text}))
            billed += 4 + provider.tokens(text) + 20
        history = [*messages, ModelResponse(parts=parts, usage=RequestUsage(output_tokens=billed))]


def test_cache_points_are_no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    plain: list[ModelMessage] = [ask("long")]
    marked: list[ModelMessage] = [ask("long", CachePoint())]
    assert after(marked, [*marked, answer(), ask("more")]) == KnownBeginning(1, 1_000)
    assert after(plain, marked) == KnownBeginning(0, 1_000)


def test_settings_of_the_model_count_as_those_of_the_request() -> None:
    eager = AnthropicModel(
        "claude-sonnet-4-5",
        provider=AnthropicProvider(api_key="k"),
        settings=ModelSettings(tool_choice="required"),
    )
    plain = AnthropicModel("claude-sonnet-4-5", provider=AnthropicProvider(api_key="k"))
    assert after([FIRST], [FIRST], models=(eager, plain)) is None
    asked = (None, {"tool_choice": "required"})
    assert after([FIRST], [FIRST], models=(eager, plain), settings=asked) is not None
