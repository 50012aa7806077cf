"""How many tokens a message history has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    FileUrl,
    ModelMessage,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextContent,
    ToolCallPart,
    ToolReturnPart,
    UploadedFile,
    UserContent,
    UserPromptPart,
)

BYTES_PER_TOKEN: Final = 4
"""A rule of thumb for English text and JSON, used only where no provider has counted."""
TOKENS_PER_FILE: Final = 1_000
"""Estimate for any file: about the tokens of a medium-sized image. The bytes of a file do not tell them."""


def tokens_in(messages: Sequence[ModelMessage]) -> int | None:
    """Return the tokens that the last response reports, plus an estimate of the messages after it.

    Return `None` if no response reports its tokens. The response must have answered exactly these messages,
    with nothing left out since.
    """
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, ModelResponse) and message.usage.input_tokens:
            used = message.usage.input_tokens + message.usage.output_tokens
            return used + estimated_tokens(messages[index + 1 :])
    return None


def estimated_tokens(messages: Iterable[ModelMessage]) -> int:
    """Return an estimate of the tokens of messages, by their length."""
    return sum(_tokens_of(part) for message in messages for part in message.parts)


def _tokens_of(part: ModelRequestPart | ModelResponsePart) -> int:
    if isinstance(part, ToolCallPart | NativeToolCallPart):
        return _text_tokens(part.tool_name, part.args_as_json_str())
    if isinstance(part, ToolReturnPart | NativeToolReturnPart):
        files = TOKENS_PER_FILE * len(part.files)
        return files + (0 if files else _text_tokens(part.tool_name, part.model_response_str()))
    if isinstance(part, UserPromptPart):
        items = [part.content] if isinstance(part.content, str) else part.content
        return sum(map(_item_tokens, items))
    if isinstance(part, FilePart):
        return TOKENS_PER_FILE
    content: object = getattr(part, "content", None)
    return _text_tokens(content if isinstance(content, str) else "" if content is None else str(content))


def _item_tokens(item: UserContent) -> int:
    if isinstance(item, BinaryContent | FileUrl | UploadedFile):
        return TOKENS_PER_FILE
    text: object = item.content if isinstance(item, TextContent) else item
    return _text_tokens(text if isinstance(text, str) else "")


def _text_tokens(*texts: str) -> int:
    return -(-sum(len(text.encode(errors="replace")) for text in texts) // BYTES_PER_TOKEN)
