"""The likely and the least number of input tokens of a request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic_ai.messages import (
    CachePoint,
    ModelMessage,
    ModelRequest,
    RetryPromptPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_core import to_json

from fastroai.usage.hosts import Host
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
    least, likely = 0, TOKENS_PER_FILE * sum(map(_files, messages))
    for text in _said(messages, parameters):
        if tokenizer is not None and len(text) <= LONGEST_INLINE:
            least += tokenizer.count(text)
            likely += tokenizer.count(text)
        else:
            likely += _by_bytes(text)
    likely += sum(map(_by_bytes, _other(messages, parameters)))
    return InputTokens(least=max(1, least), likely=max(1, likely))


def _by_bytes(text: str) -> int:
    return -(-len(text.encode(errors="replace")) // BYTES_PER_TOKEN)


def _said(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> Iterator[str]:
    """Yield the texts that reach the model as they are."""
    yield from (part.content for part in parameters.instruction_parts or ())
    for message in messages:
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                yield from _user_texts(part.content)
            elif isinstance(part, SystemPromptPart | TextPart):
                yield part.content


def _other(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> Iterator[str]:
    """Yield the texts that the provider puts in its own form: tools, schemas, and results of calls."""
    for tool in (*parameters.function_tools, *parameters.output_tools):
        yield f"{tool.name} {tool.description or ''}"
        yield to_json(tool.parameters_json_schema).decode()
    if parameters.output_object is not None:
        yield to_json(parameters.output_object.json_schema).decode()
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                yield part.model_response_str()
            elif isinstance(part, ToolCallPart):
                yield part.args_as_json_str()
            elif isinstance(part, ThinkingPart | RetryPromptPart):
                yield str(part.content)


def _user_texts(content: str | Sequence[UserContent]) -> Iterator[str]:
    for item in [content] if isinstance(content, str) else content:
        if isinstance(item, str | TextContent):
            yield item if isinstance(item, str) else item.content


def _files(message: ModelMessage) -> int:
    if not isinstance(message, ModelRequest):
        return 0
    items = [
        item
        for part in message.parts
        if isinstance(part, UserPromptPart) and not isinstance(part.content, str)
        for item in part.content
    ]
    return sum(not isinstance(item, str | TextContent | CachePoint) for item in items)
