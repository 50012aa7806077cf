"""How many tokens a message history has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pydantic_ai.messages import ModelMessage, ModelResponse

from fastroai.usage.bounding.pieces import pieces

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
    return sum(
        TOKENS_PER_FILE if piece.is_file else _text_tokens(piece.name, piece.text)
        for piece in pieces(messages)
    )


def _text_tokens(*texts: str) -> int:
    return -(-sum(len(text.encode(errors="replace")) for text in texts) // BYTES_PER_TOKEN)
