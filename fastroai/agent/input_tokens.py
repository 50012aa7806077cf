"""The likely and the least number of input tokens of a request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import ModelRequestParameters
from pydantic_core import to_json

from fastroai.usage.hosts import Host
from fastroai.usage.pieces import pieces
from fastroai.usage.tokenizers import LONGEST_INLINE, is_loaded, tokenizer_of

BYTES_PER_TOKEN: Final = 4
"""Bytes of English text for one token, about, where no tokenizer counts it."""
TOKENS_PER_FILE: Final = 1_000
"""Tokens assumed for an image, a document and the like."""


@dataclass(frozen=True, slots=True)
class InputTokens:
    """The tokens of a request's input, before any provider has counted it."""

    least: int
    likely: int


def input_tokens(
    host: Host, messages: Sequence[ModelMessage], parameters: ModelRequestParameters
) -> InputTokens:
    """Count the input of a request: exactly where a tokenizer is known, else by its bytes.

    Call `prepare_bound` before it: that loads the tokenizer.
    """
    tokenizer = None
    name = host.encoded_model
    if name is not None and is_loaded(name):
        tokenizer = tokenizer_of(name)
    least = likely = 0
    said, other = [part.content for part in parameters.instruction_parts or ()], list(_defined(parameters))
    for piece in pieces(messages):
        if piece.is_file:
            likely += TOKENS_PER_FILE
        else:
            (said if piece.kind == "text" else other).append(piece.text)
    for text in said:
        if tokenizer is not None and len(text) <= LONGEST_INLINE:
            least += tokenizer.count(text)
            likely += tokenizer.count(text)
        else:
            likely += _by_bytes(text)
    likely += sum(map(_by_bytes, other))
    return InputTokens(least=max(1, least), likely=max(1, likely))


def _by_bytes(text: str) -> int:
    return -(-len(text.encode(errors="replace")) // BYTES_PER_TOKEN)


def _defined(parameters: ModelRequestParameters) -> Iterator[str]:
    """Yield the definitions of tools and outputs, which the provider puts in its own form."""
    for tool in (*parameters.function_tools, *parameters.output_tools):
        yield f"{tool.name} {tool.description or ''}"
        yield to_json(tool.parameters_json_schema).decode()
    if parameters.output_object is not None:
        yield to_json(parameters.output_object.json_schema).decode()
