"""How long a history is."""

from __future__ import annotations

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    CompactionPart,
    FilePart,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from fastroai.graphs.conversation.compaction import TOKENS_PER_FILE, estimated_tokens, tokens_in

IMAGE = BinaryContent(b"\x00" * 100_000, media_type="image/png")


def asked(*parts: ModelRequestPart) -> ModelRequest:
    return ModelRequest(parts=list(parts))


def answered(*parts: ModelResponsePart, used: tuple[int, int] = (0, 0)) -> ModelResponse:
    usage = RequestUsage(input_tokens=used[0], output_tokens=used[1])
    return ModelResponse(parts=list(parts), usage=usage)


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (asked(UserPromptPart("12345678")), 2),
        (asked(UserPromptPart("123456789")), 3),
        (asked(UserPromptPart("éé")), 1),
        (asked(UserPromptPart(["1234", TextContent("5678"), CachePoint()])), 2),
        (asked(UserPromptPart([IMAGE, ImageUrl("https://example.com/a.png")])), 2 * TOKENS_PER_FILE),
        (asked(ToolReturnPart("tool", "1234", "1")), 2),
        (asked(ToolReturnPart("tool", [IMAGE], "1")), 1 + TOKENS_PER_FILE),
        (asked(ToolReturnPart("tool", {"a": 1}, "1")), 3),
        (asked(CompactionPart("1234")), 1),
        (answered(TextPart("1234"), ThinkingPart("5678")), 2),
        (answered(ToolCallPart("tool", {"a": 1})), 3),
        (answered(NativeToolCallPart("tool", {"a": 1})), 3),
        (asked(), 0),
        (answered(NativeToolReturnPart("tool", "1234", "1")), 2),
        (answered(FilePart(IMAGE)), TOKENS_PER_FILE),
        (answered(CompactionPart(None)), 0),
    ],
)
def test_without_a_count_four_bytes_are_a_token(message: ModelMessage, tokens: int) -> None:
    assert estimated_tokens([message]) == tokens


def test_the_last_response_says_how_long_it_was_and_the_rest_is_estimated() -> None:
    history: list[ModelMessage] = [
        asked(UserPromptPart("x" * 4_000)),
        answered(TextPart("a"), used=(900, 50)),
        asked(UserPromptPart("12345678")),
        answered(TextPart("1234")),  # of a provider that does not say
    ]
    assert tokens_in(history) == 900 + 50 + 2 + 1


def test_where_no_response_says_it_nothing_is_known() -> None:
    assert tokens_in([]) is None
    assert tokens_in([asked(UserPromptPart("1234")), answered(TextPart("1"))]) is None
