"""What the input of a request consists of."""

from __future__ import annotations

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
from pydantic_ai.tools import ToolDefinition
from support.bodies import claude_model

from fastroai.usage import CostCalculator, request_bound
from fastroai.usage.bounds import parts_of_input

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
    parts = {part.kind: part for part in parts_of_input(CALCULATOR, CLAUDE, MESSAGES, None, parameters)}
    assert set(parts) == {"instructions", "history", "prompt", "results", "image", "tools"}
    assert parts["image"].by_url
    assert parts["history"].number == 2


def test_the_largest_part_comes_first_and_one_of_unknown_size_before_all() -> None:
    parameters = ModelRequestParameters()
    parts = parts_of_input(CALCULATOR, CLAUDE, MESSAGES, None, parameters)
    assert parts[0].kind == "image"
    url = DocumentUrl("https://example.com/a.pdf")
    unknown = ModelRequest(parts=[UserPromptPart([url, "text " * 9_000])])
    first, second = parts_of_input(CALCULATOR, CLAUDE, [unknown], None, parameters)
    assert (first.kind, second.kind) == ("pdf", "prompt")


@given(
    st.lists(st.tuples(st.text(max_size=50), st.text(max_size=50)), max_size=4),
    st.text(max_size=100),
    st.booleans(),
)
def test_the_parts_and_the_allowance_are_no_less_than_the_bound(
    turns: list[tuple[str, str]], prompt: str, has_tools: bool
) -> None:
    messages: list[ModelMessage] = []
    for asked, answered in turns:
        messages += [
            ModelRequest(parts=[UserPromptPart(asked)]),
            ModelResponse(parts=[TextPart(answered)]),
        ]
    messages.append(ModelRequest(parts=[UserPromptPart(prompt)]))
    parameters = ModelRequestParameters(function_tools=[TOOL] if has_tools else [])
    bound = request_bound(CALCULATOR, CLAUDE, messages, {"max_tokens": 10}, parameters)
    parts = parts_of_input(CALCULATOR, CLAUDE, messages, None, parameters)
    allowance = CALCULATOR.host(CLAUDE).allowances.request
    assert bound.input_tokens == allowance + sum(part.tokens or 0 for part in parts)
