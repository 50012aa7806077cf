"""How many tokens the input of a request is likely to have, and how many it has at least."""

from __future__ import annotations

import asyncio
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
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_core import to_json

from fastroai.usage import base_url_of
from fastroai.usage.endpoints import is_first_party
from fastroai.usage.tokenizers import Tokenizer, tokenizer_of

BYTES_PER_TOKEN: Final = 4
"""Of English text, about, where no tokenizer is at hand."""
TOKENS_PER_FILE: Final = 1_000
"""What an image, a document and the like are taken for."""

_LONGEST_COUNTED: Final = 200_000
"""Letters; a text that is longer may be more than the tokenizer can count."""


@dataclass(frozen=True, slots=True)
class InputTokens:
    """What the input of a request is, before any provider has counted it."""

    least: int
    likely: int


async def input_tokens(
    model: Model, messages: Sequence[ModelMessage], parameters: ModelRequestParameters
) -> InputTokens:
    """Count the input of a request to a model, in a thread where that takes long."""
    said, other = list(_said(messages, parameters)), list(_other(messages, parameters))
    files = TOKENS_PER_FILE * sum(map(_files, messages))
    tokenizer = await asyncio.to_thread(tokenizer_of, model.model_name) if model.system == "openai" else None
    if tokenizer is None:
        bytes_sent = sum(len(text.encode(errors="replace")) for text in (*said, *other))
        return InputTokens(least=1, likely=files + max(1, -(-bytes_sent // BYTES_PER_TOKEN)))
    counts = await asyncio.to_thread(_count, tokenizer, [*said, *other])
    least = sum(count for text, count in zip(said, counts, strict=False) if len(text) <= _LONGEST_COUNTED)
    own_api = is_first_party(model.system, base_url_of(model))
    return InputTokens(least=max(1, least) if own_api else 1, likely=files + max(1, sum(counts)))


def _count(tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    tokenizer.prepare(texts)
    return [tokenizer.count(text) for text in texts]


def _said(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> Iterator[str]:
    """The texts that reach the model as they are."""
    yield from (part.content for part in parameters.instruction_parts or ())
    for message in messages:
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                yield from _user_texts(part.content)
            elif isinstance(part, SystemPromptPart | TextPart):
                yield part.content


def _other(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> Iterator[str]:
    """The texts that the provider puts in a form of its own: tools, schemas, and what became of calls."""
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
