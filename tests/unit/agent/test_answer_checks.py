"""Answers whose usage leaves something out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    ModelResponse,
    NativeToolCallPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.usage import RequestUsage

from fastroai.agent.answer_checks import uncounted


@dataclass
class LaterPart:
    """A part of a PydanticAI that is not out yet."""

    content: str = "content"
    part_kind: Literal["later"] = "later"


def uncounted_in(part: Any) -> str | None:
    return uncounted(ModelResponse([part], usage=RequestUsage(input_tokens=7)), system="openai")


@pytest.mark.parametrize(
    "part",
    [
        TextPart("yes"),
        ThinkingPart("hm"),
        ToolCallPart("look", {}),
        NativeToolCallPart("web_search", {}),
        FilePart(BinaryContent(b"x", media_type="image/png")),
        LaterPart(),
    ],
    ids=lambda part: part.part_kind,
)
def test_an_answer_without_output_tokens_is_not_counted_whatever_it_is_made_of(part: object) -> None:
    assert uncounted_in(part) == "no tokens for the answer"


def test_an_empty_answer_has_no_output_tokens() -> None:
    assert uncounted_in(TextPart("")) is None
