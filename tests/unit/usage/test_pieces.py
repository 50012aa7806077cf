"""The one walk over messages: each part is its pieces, and something unknown is one of unknown size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    CompactionPart,
    FilePart,
    ImageUrl,
    InstructionDeltaPart,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    RetryFeedbackPart,
    RetryInfo,
    SpeechPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from fastroai.usage.bounding.pieces import pieces

IMAGE = BinaryContent(b"\x00", media_type="image/png")
URL = ImageUrl("https://example.com/a.png")


@dataclass
class StoredFilePart:
    part_kind: str = "stored-file"


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (SystemPromptPart("a"), [("system", "text", "a")]),
        (UserPromptPart("a"), [("user", "text", "a")]),
        (
            UserPromptPart(["a", TextContent("b"), IMAGE, URL, CachePoint()]),
            [
                ("user", "text", "a"),
                ("user", "text", "b"),
                ("user", "file", ""),
                ("user", "file", ""),
                ("user", "cache-point", ""),
            ],
        ),
        (ToolReturnPart("t", {"a": 1}, "1"), [("tool", "result", '{"a":1}')]),
        (RetryFeedbackPart("no", retry=RetryInfo(cause="validation_error")), [("system", "note", None)]),
        (InstructionDeltaPart(content="now", id="x", base_hash="y"), [("system", "note", "now")]),
        (SpeechPart(speaker="user", transcript="hi"), [("user", "speech", "")]),
        (StoredFilePart(), [("system", "unknown", "")]),
    ],
)
def test_the_pieces_of_a_request(part: Any, expected: list[tuple[str, str, str | None]]) -> None:
    found = list(pieces([ModelRequest(parts=[part])]))
    assert [(piece.role, piece.kind) for piece in found] == [(role, kind) for role, kind, _ in expected]
    for piece, (_, _, text) in zip(found, expected, strict=True):
        assert text is None or piece.text == text
        assert isinstance(piece.text, str)


@pytest.mark.parametrize(
    ("part", "kind", "name", "text"),
    [
        (TextPart("a"), "text", "", "a"),
        (ThinkingPart("a"), "thinking", "", "a"),
        (ToolCallPart("t", {"a": 1}), "call", "t", '{"a":1}'),
        (NativeToolCallPart("t", {"a": 1}), "call", "t", '{"a":1}'),
        (FilePart(IMAGE), "file", "", ""),
        (CompactionPart(None), "compaction", "", ""),
        (StoredFilePart(), "unknown", "", ""),
    ],
)
def test_the_piece_of_an_answer(part: Any, kind: str, name: str, text: str) -> None:
    (piece,) = pieces([ModelResponse(parts=[part])])
    assert (piece.kind, piece.name, piece.text) == (kind, name, text)
    assert piece.is_file == (kind in ("file", "unknown"))


def test_files_in_the_result_of_a_tool_are_pieces_of_their_own() -> None:
    (result, file) = pieces([ModelRequest(parts=[ToolReturnPart("t", ["a", IMAGE], "1")])])
    assert (result.kind, file.kind, file.item) == ("result", "file", IMAGE)
