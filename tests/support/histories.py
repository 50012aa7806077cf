"""Message histories as agents make them, at random."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st
from pydantic_ai.messages import (
    BinaryImage,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    RetryFeedbackPart,
    RetryInfo,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from fastroai.graphs.conversation.markers import Done
from fastroai.graphs.conversation.talk import handed_over
from fastroai.graphs.conversation.thread import Phase

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)

words = st.text("ab é\n", min_size=1, max_size=8)
payloads = st.one_of(
    words,
    st.integers(400, 4_000).map(lambda length: "x" * length),
    st.lists(st.integers(0, 9), max_size=3),
    st.just({"rows": ["y" * 600]}),
    st.none(),
)


@st.composite
def prompts(draw: st.DrawFn) -> ModelRequest:
    """What a call begins with."""
    parts: list[ModelRequestPart] = []
    if draw(st.booleans()):
        parts.append(SystemPromptPart(draw(words), timestamp=NOON))
    image = BinaryImage(b"\x00\x01", media_type="image/png")
    content: Any = draw(st.sampled_from(["text", "list"]))
    said = draw(words)
    parts.append(UserPromptPart(said if content == "text" else [said, image], timestamp=NOON))
    return ModelRequest(parts=parts, instructions=draw(st.none() | words), timestamp=NOON)


@st.composite
def exchanges(draw: st.DrawFn, ids: Sequence[str]) -> list[ModelMessage]:
    """A response that calls tools, and what they return, in any order; some ask for another try."""
    thinks = draw(st.booleans())
    parts: list[ModelResponsePart] = []
    if thinks:
        parts.append(ThinkingPart("hm", id="rs_1", signature="signed", provider_name="openai"))
    calls = [ToolCallPart(draw(st.sampled_from("fg")), {"n": draw(words)}, tool_call_id=one) for one in ids]
    response = ModelResponse(
        parts=[*parts, *calls],
        usage=RequestUsage(input_tokens=draw(st.integers(0, 5_000)), output_tokens=draw(st.integers(0, 50))),
        model_name="m",
        provider_name="openai",
        provider_response_id=draw(st.none() | st.just("resp_1")),
        timestamp=NOON,
    )
    returns: list[ModelRequestPart] = [
        ToolReturnPart(
            call.tool_name,
            draw(payloads),
            call.tool_call_id,
            timestamp=NOON,
            outcome=draw(st.sampled_from(["success", "retried", "failed"])),
        )
        for call in draw(st.permutations(calls))
    ]
    return [response, ModelRequest(parts=returns, timestamp=NOON)]


@st.composite
def agent_calls(draw: st.DrawFn, name: str) -> list[ModelMessage]:
    """The new messages of one answered call."""
    messages: list[ModelMessage] = [draw(prompts())]
    for turn in range(draw(st.integers(0, 2))):
        ids = [f"{name}.{turn}.{number}" for number in range(draw(st.integers(1, 3)))]
        messages.extend(draw(exchanges(ids)))
    if draw(st.booleans()):
        messages.append(ModelResponse(parts=[TextPart("bad")], model_name="m", timestamp=NOON))
        feedback = RetryFeedbackPart("no", retry=RetryInfo("model_retry", attempt=1), timestamp=NOON)
        messages.append(ModelRequest(parts=[feedback], timestamp=NOON))
    if draw(st.booleans()):  # an output tool
        messages.extend(draw(exchanges([f"{name}.final"])))
    else:
        messages.append(ModelResponse(parts=[TextPart(draw(words))], model_name="m", timestamp=NOON))
    return messages


@st.composite
def phases(draw: st.DrawFn, most: int = 6) -> list[Phase]:
    """Visits of nodes, each with one call or two."""
    made = []
    for number in range(draw(st.integers(0, most))):
        opening = ModelRequest(parts=[UserPromptPart(f"Next: node {number}", timestamp=NOON)])
        said = [
            message
            for call in range(draw(st.integers(1, 2)))
            for message in handed_over(draw(agent_calls(f"{number}.{call}")))
        ]
        made.append(Phase(Done("n", number + 1, {"n": "1"}), (opening, *said)))
    return made
