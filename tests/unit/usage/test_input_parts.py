"""What the input of a request consists of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import (
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition
from support.bodies import claude_model

from fastroai.usage import CostCalculator, Endpoint, request_bound
from fastroai.usage.bounding.bounds import AskedRequest
from fastroai.usage.facts.allowances import GATEWAY, OTHER
from fastroai.usage.facts.documented import all_facts

ANTHROPIC = all_facts()["anthropic"].allowances
OPENAI = all_facts()["openai"].allowances

CALCULATOR = CostCalculator()
CLAUDE = claude_model()
TOOL = ToolDefinition(name="look_up", description="Look it up.", parameters_json_schema={"type": "object"})

MESSAGES: list[ModelMessage] = [
    ModelRequest(parts=[SystemPromptPart("Be brief."), UserPromptPart("First?")]),
    ModelResponse(parts=[TextPart("An answer.")]),
    ModelRequest(
        parts=[
            ToolReturnPart("look_up", "found", tool_call_id="1"),
            UserPromptPart(["And this?", ImageUrl("https://example.com/a.png")]),
        ]
    ),
]


def test_each_kind_of_input_is_told_apart() -> None:
    parameters = ModelRequestParameters(function_tools=[TOOL])
    found = AskedRequest(CALCULATOR, CLAUDE, MESSAGES, None, parameters).input_parts
    parts = {part.kind: part for part in found if part.added_by is None}
    assert set(parts) == {"instructions", "history", "prompt", "results", "image", "tools"}
    assert parts["image"].by_url
    assert parts["history"].number == 2


def test_the_largest_part_comes_first_and_one_of_unknown_size_before_all() -> None:
    parameters = ModelRequestParameters()
    parts = AskedRequest(CALCULATOR, CLAUDE, MESSAGES, None, parameters).input_parts
    assert parts[0].kind == "image"
    url = DocumentUrl("https://example.com/a.pdf")
    unknown = ModelRequest(parts=[UserPromptPart([url, "text " * 9_000])])
    first, second, last = AskedRequest(CALCULATOR, CLAUDE, [unknown], None, parameters).input_parts
    assert (first.kind, second.kind, last.added_by) == ("pdf", "prompt", "provider")


@given(
    st.lists(st.tuples(st.text(max_size=50), st.text(max_size=50)), max_size=4),
    st.text(max_size=100),
    st.booleans(),
)
def test_the_parts_add_up_to_the_bound(turns: list[tuple[str, str]], prompt: str, has_tools: bool) -> None:
    messages: list[ModelMessage] = []
    for asked, answered in turns:
        messages += [
            ModelRequest(parts=[UserPromptPart(asked)]),
            ModelResponse(parts=[TextPart(answered)]),
        ]
    messages.append(ModelRequest(parts=[UserPromptPart(prompt)]))
    parameters = ModelRequestParameters(function_tools=[TOOL] if has_tools else [])
    bound = request_bound(CALCULATOR, CLAUDE, messages, {"max_tokens": 10}, parameters)
    parts = AskedRequest(CALCULATOR, CLAUDE, messages, None, parameters).input_parts
    assert bound.input_tokens == sum(part.tokens or 0 for part in parts)


def test_what_nobody_asked_for_is_told_apart_by_who_adds_it() -> None:
    openai = OpenAIProvider(api_key="k")
    unknown = OpenAIProvider(base_url="https://gateway.example.com/v1", api_key="k")
    stated = CostCalculator(endpoints={"https://gateway.example.com": Endpoint(allowance=300)})

    def added(calculator: CostCalculator, provider: OpenAIProvider) -> list[tuple[str | None, int | None]]:
        model = OpenAIChatModel("gpt-5-mini", provider=provider)
        parts = AskedRequest(calculator, model, [], None, ModelRequestParameters()).input_parts
        return [(part.added_by, part.tokens) for part in parts if part.kind == "added"]

    assert added(CALCULATOR, openai) == [("provider", OPENAI.request)]
    assert added(CALCULATOR, unknown) == [("host", GATEWAY.request)]
    assert added(stated, unknown) == [("provider", 300)]


def test_an_untested_pydantic_ai_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastroai.usage.prices.hosts.untested_version", lambda: "2.99.0")
    monkeypatch.setattr("fastroai.usage.bounding.bounds.untested_version", lambda: "2.99.0")
    parts = AskedRequest(CALCULATOR, CLAUDE, MESSAGES, None, ModelRequestParameters()).input_parts
    added = {part.added_by: part.tokens for part in parts if part.kind == "added"}
    assert added == {"untested version": OTHER.request, "provider": ANTHROPIC.request}


def test_what_the_searches_of_a_provider_find_is_the_rest() -> None:
    parameters = ModelRequestParameters(native_tools=[WebSearchTool(max_uses=2)])
    parts = AskedRequest(CALCULATOR, CLAUDE, MESSAGES, None, parameters).input_parts
    assert [(part.kind, part.tokens) for part in parts][-1] == ("searches", None)
