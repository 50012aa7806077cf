"""The most input tokens that a request can have.

What is tokenized by itself is counted by itself: the text of each message, between tokens that delimit it.
Where texts may be joined first, the largest count of both ways is taken, for two texts together can have
more tokens than apart. Parameters of the request (temperature, stop sequences, ...) are no input.

What models thought earlier comes back as input in a form whose size says nothing (encrypted, or by
reference), but it was billed as output once, so it is no more tokens than that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    ImageUrl,
    ModelMessagesTypeAdapter,
    ModelRequest,
    RetryFeedbackPart,
    RetryPromptPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_core import PydanticSerializationError

from fastroai.usage.allowances import Allowances, allowances_of
from fastroai.usage.definitions import definition_tokens
from fastroai.usage.images import image_tokens
from fastroai.usage.settings import SERVER_SIDE_INPUT_SETTINGS
from fastroai.usage.tokenizers import Count, bytes_of

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelRequestPart, ModelResponse, UserContent
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

_FRAME: Final = 256
"""More than what PydanticAI puts around a text that it renders: tags, and a line that says who speaks."""
_REASONING_STEP: Final = 64
"""Reasoning tokens of some models of OpenAI are reported as multiples of 64."""
_SHORT_DETAILS: Final = frozenset({"logprobs", "phase"})
"""What OpenAI tells of a text, and is not sent back, or as one word."""


class _NotInBody(Exception):
    """Some input is at the provider already, or of a size that nothing here tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRules:
    """How to count the input of requests to one model."""

    provider: str
    url: str | None
    model: str
    count: Count
    allowances: Allowances

    @classmethod
    def of(cls, provider: str, url: str | None, model: str, count: Count) -> InputRules:
        """The rules for a model at a URL, where `count` counts the tokens of a text."""
        return cls(
            provider=provider, url=url, model=model, count=count, allowances=allowances_of(provider, url)
        )


def most_input_tokens(
    rules: InputRules,
    messages: Sequence[ModelMessage],
    settings: Mapping[str, object],
    parameters: ModelRequestParameters,
) -> int | None:
    """No fewer tokens than a request has as input; `None` if that cannot be told from the request.

    Takes what a model is given, with settings and parameters as `Model.prepare_request` leaves them.
    """
    if not SERVER_SIDE_INPUT_SETTINGS.isdisjoint(settings):
        return None
    try:
        return (
            rules.allowances.request
            + sum(_message(rules, message) for message in messages)
            + _instructions(rules, messages, parameters)
            + _definitions(rules, parameters)
        )
    except (_NotInBody, PydanticSerializationError, UnicodeError):  # the latter two cannot be sent either
        return None


def _message(rules: InputRules, message: ModelMessage) -> int:
    if isinstance(message, ModelRequest):
        return sum(_request_part(rules, part) for part in message.parts)
    return _response(rules, message)


def _request_part(rules: InputRules, part: ModelRequestPart) -> int:
    if isinstance(part, UserPromptPart):
        return _user_prompt(rules, [part.content] if isinstance(part.content, str) else part.content)
    if isinstance(part, ToolReturnPart):
        return _tool_return(rules, part)
    if isinstance(part, SystemPromptPart):
        return _texts(rules, [part.content])
    if part.part_kind == "speech":
        raise _NotInBody
    # PydanticAI renders all others as text of its own before they are sent.
    rendered = _FRAME + bytes_of(_dumped(part))
    if isinstance(part, RetryFeedbackPart | RetryPromptPart):
        rendered += bytes_of(part.model_response())
    return rendered


def _dumped(part: ModelRequestPart) -> str:
    return ModelMessagesTypeAdapter.dump_json([ModelRequest(parts=[part])]).decode()


def _texts(rules: InputRules, texts: Sequence[str]) -> int:
    """Texts of one message, which may be tokenized one by one or together, with or without empty lines."""
    tokens = sum(map(rules.count, texts))
    if len(texts) > 1:
        tokens = max(tokens, rules.count("".join(texts)), rules.count("\n\n".join(texts)))
    return tokens + rules.allowances.message * len(texts)


def _user_prompt(rules: InputRules, content: Iterable[UserContent]) -> int:
    texts, tokens = [], 0
    for item in content:
        if isinstance(item, str | TextContent):
            texts.append(item if isinstance(item, str) else item.content)
        elif not isinstance(item, CachePoint):
            tokens += _image(rules, item)
    return tokens + _texts(rules, texts)


def _image(rules: InputRules, item: object) -> int:
    if not isinstance(item, ImageUrl | BinaryContent) or not (isinstance(item, ImageUrl) or item.is_image):
        raise _NotInBody
    detail = str((item.vendor_metadata or {}).get("detail", "auto"))
    tokens = image_tokens(rules.provider, rules.url, rules.model, detail)
    if tokens is None:
        raise _NotInBody
    return tokens + rules.allowances.message


def _tool_return(rules: InputRules, part: ToolReturnPart) -> int:
    tokens = rules.allowances.result + rules.count(part.tool_name) + _call_id(rules, part.tool_call_id)
    if not part.files:
        return tokens + rules.count(part.model_response_str())
    for item in part.content_items(mode="str"):
        if isinstance(item, str):  # as it is, or as an item of a list in JSON
            tokens += max(rules.count(item), rules.count(json.dumps(item, ensure_ascii=False)))
        else:
            tokens += _image(rules, item) + _FRAME + bytes_of(part.tool_name) + bytes_of(part.tool_call_id)
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
            tokens += rules.count(part.content) + rules.allowances.message + _FRAME // 8
            hidden |= part.provider_name in (None, rules.provider)  # others' thoughts are sent as text
        else:
            raise _NotInBody
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
    """What comes back with a response besides its text: its thoughts, once billed as output."""
    usage = message.usage
    if not usage.output_tokens:
        raise _NotInBody
    if rules.allowances.tells_reasoning and usage.output_reasoning_tokens:
        return min(usage.output_tokens, usage.output_reasoning_tokens + _REASONING_STEP)
    return usage.output_tokens


def _instructions(
    rules: InputRules, messages: Sequence[ModelMessage], parameters: ModelRequestParameters
) -> int:
    if parameters.instruction_parts is not None:
        return _texts(rules, [part.content for part in parameters.instruction_parts])
    # Each request of a history has the instructions of its time; those of one of the last two are sent.
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    candidates = [message.instructions for message in requests[-2:] if message.instructions]
    return max((_texts(rules, [instructions]) for instructions in candidates), default=0)


def _definitions(rules: InputRules, parameters: ModelRequestParameters) -> int:
    tokens = 0
    tools = [*parameters.function_tools, *parameters.output_tools]
    if tools:
        tokens += rules.allowances.tools
    for tool in tools:
        # A tool that the model is told of later can be defined there once more.
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
