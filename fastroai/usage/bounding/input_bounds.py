"""An upper bound on the input tokens of a request.

Texts that are tokenized separately are counted separately: the text of each message, between tokens that
delimit it. Where texts may be joined first, both ways are counted and the larger count is taken, for
joined texts can have more tokens than separate ones. Parameters of the request (temperature, stop
sequences, ...) are no input.

Earlier thoughts of models come back as input in a form whose size says nothing (encrypted, or by
reference). They were billed as output once, so they are at most that many tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic_ai.messages import (
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    ModelMessagesTypeAdapter,
    ModelRequest,
    RetryFeedbackPart,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UploadedFile,
    UserPromptPart,
)
from pydantic_core import PydanticSerializationError

from fastroai.errors import how_to_install
from fastroai.usage.bounding.definitions import definition_tokens
from fastroai.usage.bounding.image_sizes import image_size
from fastroai.usage.bounding.pdf_sizes import PDF_SIZES, can_read_pdfs
from fastroai.usage.bounding.pieces import Piece, pieces_of
from fastroai.usage.bounding.surface import unlisted_in_parameters
from fastroai.usage.bounding.tokenizers import Count, bytes_of
from fastroai.usage.facts.allowances import REASONING_STEP, Allowances
from fastroai.usage.facts.provider import ModelFacts
from fastroai.usage.facts.settings import SERVER_SIDE_INPUT_SETTINGS

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelRequestPart, ModelResponse
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    from fastroai.usage.bounding.known_inputs import KnownBeginning
    from fastroai.usage.prices.hosts import Host

_FRAME: Final = " " * 256
"""A text of more bytes than PydanticAI puts around one that it renders: tags, and a line on the speaker."""
_SHORT_DETAILS: Final = frozenset({"logprobs", "phase"})
"""Details that OpenAI gives with a text. They are not sent back, or only as one word."""


class _NotInBody(Exception):
    """Raised for input that is already at the provider, or of unknown size. The message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRules:
    """Rules for counting the input of requests to one model."""

    provider: str
    count: Count
    allowances: Allowances
    facts: ModelFacts | None
    """The documented facts of the model."""
    render: Count = bytes_of
    """Function that counts a text that PydanticAI renders in its own way, or whose tokens are not known."""
    resolution: str = "auto"
    """The media resolution for all files of a request to Google."""

    @classmethod
    def of(cls, host: Host, count: Count, settings: Mapping[str, object] | None = None) -> InputRules:
        """Return the rules for a host, with a function that counts a text's tokens."""
        asked = (settings or {}).get("google_video_resolution")
        return cls(
            provider=host.provider,
            count=count,
            allowances=host.allowances,
            facts=host.facts,
            resolution="auto" if asked is None else str(getattr(asked, "value", asked)),
        )


@dataclass(frozen=True, slots=True)
class InputBound:
    """An upper bound on the input tokens of a request."""

    tokens: int | None
    """The most tokens; `None` if they cannot be told from the request."""
    why: str | None = None
    """Why there is no bound; `None` if there is one."""


def most_input(
    rules: InputRules,
    messages: Sequence[ModelMessage],
    settings: Mapping[str, object],
    parameters: ModelRequestParameters,
    known: KnownBeginning | None = None,
    *,
    unknown: Sequence[str],
) -> InputBound:
    """Return the upper bound on the input of a request; there is none if it has anything `unknown`.

    Settings and parameters are those that `Model.prepare_request` returns. If the beginning of the request
    is `known`, the tokens that the provider reported for it are taken instead of a count.
    """
    remembered = SERVER_SIDE_INPUT_SETTINGS.intersection(settings)
    if remembered:
        return InputBound(None, f"{min(remembered)} adds input that is at the provider already")
    if unknown:
        return InputBound(None, f"{UNKNOWN} {', '.join(unknown)}")
    try:
        tokens = rules.allowances.request
        if known is None:
            tokens += _instructions(rules, messages, parameters) + _definitions(rules, parameters)
        else:
            messages, tokens = messages[known.messages :], tokens + known.tokens
        return InputBound(tokens + sum(_message(rules, message) for message in messages))
    except _NotInBody as error:
        return InputBound(None, str(error))
    except (PydanticSerializationError, UnicodeError) as error:
        return InputBound(None, f"it cannot be sent: {error}")


UNKNOWN: Final = "this version of FastroAI does not know"


def unknown_input(given: Iterable[Piece], parameters: ModelRequestParameters) -> tuple[str, ...]:
    """Return the names of everything in the input of a request that nothing here knows, each once."""
    unknown = [str(piece.item) for piece in given if piece.kind == "unknown"]
    return tuple(dict.fromkeys((*unknown, *unlisted_in_parameters(parameters))))


def hears(given: Iterable[Piece], settings: Mapping[str, object]) -> bool:
    """Return whether some of the input may be audio or video, which can cost more than text."""
    if not SERVER_SIDE_INPUT_SETTINGS.isdisjoint(settings):
        return True
    return any(piece.is_file and not _media_type(piece.item).startswith(_SILENT) for piece in given)


_SILENT: Final = ("image/", "text/", "application/pdf")


def _message(rules: InputRules, message: ModelMessage) -> int:
    if isinstance(message, ModelRequest):
        return sum(_request_part(rules, part) for part in message.parts)
    return _response(rules, message)


def _request_part(rules: InputRules, part: ModelRequestPart) -> int:
    if isinstance(part, UserPromptPart):
        return _user_prompt(rules, pieces_of(part, "request"))
    if isinstance(part, ToolReturnPart):
        return _tool_return(rules, part)
    if isinstance(part, SystemPromptPart):
        return _texts(rules, [part.content])
    if part.part_kind == "speech":
        raise _NotInBody("the size of speech in tokens is not documented")
    # PydanticAI renders parts of other kinds as text before it sends them.
    dumped = ModelMessagesTypeAdapter.dump_json([ModelRequest(parts=[part])]).decode()
    rendered = rules.render(_FRAME) + rules.render(dumped)
    if isinstance(part, RetryFeedbackPart | RetryPromptPart):
        rendered += rules.render(part.model_response())
    return rendered


def _texts(rules: InputRules, texts: Sequence[str]) -> int:
    """Return the tokens of a message's texts, tokenized one by one or joined, with or without empty lines."""
    tokens = sum(map(rules.count, texts))
    if len(texts) > 1:
        tokens = max(tokens, rules.count("".join(texts)), rules.count("\n\n".join(texts)))
    return tokens + rules.allowances.message * len(texts)


def _user_prompt(rules: InputRules, given: Iterable[Piece]) -> int:
    texts, tokens = [], 0
    for piece in given:
        if piece.kind == "text":
            texts.append(piece.text)
        elif piece.is_file:
            tokens += _file(rules, piece.item)
    return tokens + _texts(rules, texts)


def _file(rules: InputRules, item: object) -> int:
    """Return the tokens of a file, inline or by its URL: an image, a PDF, or a text."""
    media_type = _media_type(item)
    if isinstance(item, BinaryContent) and media_type.startswith("text/"):
        tokens = rules.render(_FRAME) + rules.render(item.data.decode(errors="replace"))
        tokens += rules.render(item.identifier)
    elif isinstance(item, ImageUrl) or (isinstance(item, BinaryContent) and item.is_image):
        tokens = _image(rules, item, media_type)
    elif isinstance(item, DocumentUrl | BinaryContent) and media_type == "application/pdf":
        tokens = _pdf(rules, item)
    else:
        raise _no_rule(media_type)
    return tokens + rules.allowances.message


def _no_rule(media_type: str) -> _NotInBody:
    return _NotInBody(f"no documented rule tells how many tokens a file of type {media_type!r} is")


def _image(rules: InputRules, item: ImageUrl | BinaryContent, media_type: str) -> int:
    if rules.facts is None or rules.facts.images is None:
        raise _no_rule(media_type)
    size = image_size(item.data, media_type) if isinstance(item, BinaryContent) else None
    tokens = rules.facts.images.most_tokens(size, _detail(rules, item))
    if tokens is None:
        how = (
            "pass the image itself, as BinaryContent" if isinstance(item, ImageUrl) else "ask for less detail"
        )
        raise _NotInBody(f"the size of an image of type {media_type!r} is not known ({how})")
    return tokens


def _pdf(rules: InputRules, item: DocumentUrl | BinaryContent) -> int:
    if rules.facts is None or rules.facts.pdf is None:
        raise _no_rule("application/pdf")
    size = PDF_SIZES.size(item.data) if isinstance(item, BinaryContent) else None
    tokens = rules.facts.pdf.most_tokens(size, _detail(rules, item))
    if tokens is None:
        if isinstance(item, DocumentUrl):
            how = "it is behind a URL: pass the file itself, as BinaryContent"
        elif can_read_pdfs():
            how = "it is encrypted, damaged, or too large"
        else:
            how = f"that takes pypdf: {how_to_install('pdf')}"
        raise _NotInBody(f"the pages of a PDF could not be counted ({how})")
    return tokens


def _media_type(item: object) -> str:
    if isinstance(item, UploadedFile):
        return "uploaded"
    try:
        return str(getattr(item, "media_type", "unknown"))
    except ValueError:  # PydanticAI raises this for a URL whose ending it does not know
        return "unknown"


def _detail(rules: InputRules, item: ImageUrl | DocumentUrl | BinaryContent) -> str:
    """Return the level of detail at which a file is to be read, as the provider names it."""
    asked = item.vendor_metadata or {}
    if rules.provider in ("google", "google-cloud"):
        detail = asked.get("media_resolution", rules.resolution)
        if isinstance(detail, Mapping):
            detail = detail.get("level", "")
        return str(getattr(detail, "value", detail))
    return str(asked.get("detail", "auto"))


def _tool_return(rules: InputRules, part: ToolReturnPart) -> int:
    tokens = rules.allowances.result + rules.count(part.tool_name) + _call_id(rules, part.tool_call_id)
    if not part.files:
        return tokens + rules.count(part.model_response_str())
    for item in part.content_items(mode="str"):
        if isinstance(item, str):  # as it is, or as an item of a list in JSON
            tokens += max(rules.count(item), rules.count(json.dumps(item, ensure_ascii=False)))
        else:
            tokens += _file(rules, item) + rules.render(_FRAME)
            tokens += rules.render(part.tool_name) + rules.render(part.tool_call_id)
    return tokens


def _call_id(rules: InputRules, call_id: str) -> int:
    return bytes_of(call_id) if rules.allowances.names_calls else 0


def _response(rules: InputRules, message: ModelResponse) -> int:
    texts, tokens, hidden = [], 0, False
    for part in message.parts:
        details = part.provider_details
        if isinstance(part, TextPart):
            texts.append(part.content)
            hidden |= bool(details and details.keys() - _SHORT_DETAILS)
        elif isinstance(part, ToolCallPart):
            tokens += _tool_call(rules, part)
            hidden |= bool(details)
        elif isinstance(part, ThinkingPart):
            tokens += rules.count(part.content) + rules.allowances.message + rules.render(_FRAME[:32])
            hidden |= part.provider_name in (None, rules.provider)  # others' thoughts are sent as text
        else:
            raise _NotInBody(
                f"an earlier answer has a part of kind {part.part_kind!r}, whose tokens cannot be counted "
                "(leave it out of the message history if the model does not need it)"
            )
    return tokens + _texts(rules, texts) + (_hidden(rules, message) if hidden else 0)


def _tool_call(rules: InputRules, part: ToolCallPart) -> int:
    arguments = part.args_as_json_str()
    return (
        rules.allowances.call
        + rules.count(part.tool_name)
        + rules.count(arguments)
        + arguments.count(",")  # a provider that parses them may render them with spaces
        + arguments.count(":")
        + _call_id(rules, part.tool_call_id)
    )


def _hidden(rules: InputRules, message: ModelResponse) -> int:
    """Return the tokens of an earlier response besides its text: its thoughts, once billed as output."""
    usage = message.usage
    if not usage.output_tokens:
        raise _NotInBody(
            "an earlier answer holds thoughts of the model but no usage, so their size is unknown"
        )
    if rules.allowances.tells_reasoning and usage.output_reasoning_tokens:
        return min(usage.output_tokens, usage.output_reasoning_tokens + REASONING_STEP.tokens)
    return usage.output_tokens


def _instructions(
    rules: InputRules, messages: Sequence[ModelMessage], parameters: ModelRequestParameters
) -> int:
    if parameters.instruction_parts is not None:
        return _texts(rules, [part.content for part in parameters.instruction_parts])
    # Each request of a history has the instructions of its time; only those of one of the last two are sent.
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    candidates = [message.instructions for message in requests[-2:] if message.instructions]
    return max((_texts(rules, [instructions]) for instructions in candidates), default=0)


def _definitions(rules: InputRules, parameters: ModelRequestParameters) -> int:
    tokens = 0
    tools = [*parameters.function_tools, *parameters.output_tools]
    if tools:
        tokens += rules.allowances.tools
    for tool in tools:
        # A tool that the model is told of later can be defined once more at that point.
        times = 1 if parameters.visibility_of(tool.name) == "visible" else 2
        tokens += times * _tool(rules, tool)
    if parameters.output_mode in ("native", "prompted"):
        tokens += rules.allowances.output_format
    schema = parameters.output_object
    if schema is not None and parameters.output_mode == "native":
        given = {"name": schema.name, "description": schema.description, "schema": schema.json_schema}
        tokens += rules.allowances.tool + definition_tokens(rules.count, given)
    return tokens


def _tool(rules: InputRules, tool: ToolDefinition) -> int:
    given = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters_json_schema,
    }
    # Its name counts twice: a choice among tools may name it again.
    return rules.allowances.tool + rules.count(tool.name) + definition_tokens(rules.count, given)
