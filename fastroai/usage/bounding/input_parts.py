"""The bound of a request's input, divided by what the input consists of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    FileUrl,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextContent,
    ToolReturnPart,
    UserPromptPart,
)

from fastroai.pydantic_ai_private import is_added_by_pydantic_ai
from fastroai.usage.bounding.input_bounds import InputRules, most_input, unknown_input
from fastroai.usage.bounding.pdf_sizes import PDF_SIZES
from fastroai.usage.bounding.pieces import pieces

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelRequestPart
    from pydantic_ai.models import ModelRequestParameters

InputKind = Literal[
    "instructions", "tools", "history", "prompt", "results", "image", "pdf", "file", "searches", "added"
]
"""What a part of the input is: instructions and system prompts; definitions of tools and of the output;
earlier messages; the text of the prompt; results of tools; images; PDFs; other files; what the provider's own
searches find; what somebody adds to all this."""

AddedBy = Literal["PydanticAI", "SDK", "unseen client", "untested version", "host", "provider"]
"""Who adds a part to what the user asks: PydanticAI, as its messages show; PydanticAI's model or the SDK, as
the body shows; a client whose requests cannot be seen; a PydanticAI newer than the tested ones; a host of
which nobody has said what it is; or a host whose additions are documented or stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPart:
    """The input of one kind, all of it together."""

    kind: InputKind
    tokens: int | None
    """The most tokens; `None` if they are not known."""
    number: int = 1
    """How many tools, messages, results, images or files there are."""
    pages: int | None = None
    """How many pages the PDFs have; `None` if that is not known."""
    by_url: bool = False
    """Whether a file is named by its URL."""
    added_by: AddedBy | None = None
    """Who adds it; `None` if the user asks for it."""
    places: tuple[str, ...] = ()
    """Where in the body it is, if only the body shows it."""


def input_parts(
    rules: InputRules, messages: Sequence[ModelMessage], parameters: ModelRequestParameters
) -> tuple[InputPart, ...]:
    """Return what the input of a request consists of, largest first. Parts of unknown size come before all.

    Takes what `most_input` takes. The tokens of the parts add up to its result, except for allowances, and
    texts that have other tokens if they are joined.
    """
    found: dict[tuple[InputKind, AddedBy | None], InputPart] = {}
    for part in _parts(rules, messages, parameters):
        key = part.kind, part.added_by
        found[key] = _together(found[key], part) if key in found else part
    sized = [part for part in found.values() if part.tokens != 0]
    return tuple(sorted(sized, key=lambda part: (part.tokens is not None, -(part.tokens or 0))))


def _together(one: InputPart, other: InputPart) -> InputPart:
    return replace(
        one,
        tokens=None if one.tokens is None or other.tokens is None else one.tokens + other.tokens,
        number=one.number + other.number,
        pages=None if one.pages is None or other.pages is None else one.pages + other.pages,
        by_url=one.by_url or other.by_url,
    )


def _parts(
    rules: InputRules, messages: Sequence[ModelMessage], parameters: ModelRequestParameters
) -> Iterator[InputPart]:
    bare = replace(
        parameters,
        function_tools=[],
        output_tools=[],
        output_object=None,
        output_mode="text",
        instruction_parts=[],
    )

    def most(some: Sequence[ModelMessage], given: ModelRequestParameters = bare) -> int | None:
        unknown = unknown_input(pieces(some), given)
        tokens = most_input(rules, some, {}, given, unknown=unknown).tokens
        return None if tokens is None else tokens - rules.allowances.request

    tools = len(parameters.function_tools)  # without any, only the output type is defined
    yield InputPart(kind="tools", tokens=most([], replace(parameters, instruction_parts=[])), number=tools)
    silent = [replace(message, parts=[]) for message in messages if isinstance(message, ModelRequest)]
    asked = parameters.instruction_parts
    if asked is not None:
        added = [part for part in asked if is_added_by_pydantic_ai(part)]
        asked = [part for part in asked if part not in added]
        tokens = most([], replace(bare, instruction_parts=added))
        yield InputPart(kind="instructions", tokens=tokens, added_by="PydanticAI")
    yield InputPart(kind="instructions", tokens=most(silent, replace(bare, instruction_parts=asked)))
    for message in messages:
        if isinstance(message, ModelResponse):
            yield InputPart(kind="history", tokens=most([message]))
            continue
        for part in message.parts:
            for kind, each, item in _divided(part, is_news=message is messages[-1]):
                yield InputPart(
                    kind=kind,
                    tokens=most([ModelRequest(parts=[each])]),
                    pages=_pages(item) if kind == "pdf" else None,
                    by_url=isinstance(item, FileUrl),
                    added_by="PydanticAI" if is_added_by_pydantic_ai(part) else None,
                )


def _divided(
    part: ModelRequestPart, *, is_news: bool
) -> Iterator[tuple[InputKind, ModelRequestPart, object]]:
    """Yield the kinds of input in a part, each with a part that holds it alone, and with the file if any."""
    if isinstance(part, SystemPromptPart):
        yield "instructions", part, None
    elif isinstance(part, ToolReturnPart):
        yield "results" if is_news else "history", part, None
    elif isinstance(part, UserPromptPart) and not isinstance(part.content, str):
        texts = [item for item in part.content if isinstance(item, str | TextContent)]
        if texts:
            yield "prompt" if is_news else "history", UserPromptPart(texts), None
        for item in part.content:
            if not isinstance(item, str | TextContent | CachePoint):
                yield _kind_of(item), UserPromptPart([item]), item
    else:
        yield "prompt" if is_news else "history", part, None


def _kind_of(item: object) -> InputKind:
    try:
        media_type = str(getattr(item, "media_type", ""))
    except ValueError:  # PydanticAI raises this for a URL whose ending it does not know
        return "file"
    if media_type == "application/pdf":
        return "pdf"
    return "image" if media_type.startswith("image/") else "file"


def _pages(item: object) -> int | None:
    size = PDF_SIZES.size(item.data) if isinstance(item, BinaryContent) else None
    return None if size is None else size.pages
