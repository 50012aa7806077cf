"""Anthropic Messages: https://docs.anthropic.com/en/api/messages."""

import json
from collections.abc import Iterator

from fastroai.testing.protocols.wire import Conversation, ServerEvent, ToolChoice, Wire, text_of
from fastroai.testing.replies import Usage
from fastroai.testing.requests import JsonObject, Tool
from fastroai.testing.served_answers import Answer, Call

_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class Messages(Wire):
    """The protocol of `POST /v1/messages`."""

    name = "anthropic"
    path = "/v1/messages"
    request_id_header = "request-id"
    id_prefix = "msg_"

    def _conversation(self, body: JsonObject) -> Conversation:
        conversation = Conversation(
            tools=tuple(
                Tool(tool["name"], tool.get("description") or "", tool["input_schema"])
                for tool in body.get("tools") or ()
                if tool.get("type", "custom") == "custom"  # other tools run at Anthropic
            ),
            tool_choice=_tool_choice(body.get("tool_choice") or {}),
            output_schema=((body.get("output_config") or {}).get("format") or {}).get("schema"),
            max_tokens=body["max_tokens"],
        )
        if body.get("system"):
            conversation.say("system", body["system"])
        for message in body["messages"]:
            content = message["content"]
            if text := text_of(content):
                conversation.say(message["role"], text)
            for block in () if isinstance(content, str) else content:
                if block["type"] == "tool_use":
                    conversation.call(block["id"], block["name"], block["input"])
                elif block["type"] == "tool_result":
                    conversation.result(block["tool_use_id"], block.get("content"))
        return conversation

    def body(self, answer: Answer) -> JsonObject:
        """Return a message."""
        content = [_block(answer, part) | _filled(part) for part in _parts(answer)]
        ending = {"content": content, "stop_reason": _STOP_REASONS.get(answer.finish_reason or "")}
        return _message(answer, answer.shown_usage) | ending

    def events(self, answer: Answer) -> Iterator[ServerEvent]:
        """Yield the events of a message."""
        for event in self._events(answer):
            assert isinstance(event.data, dict)
            yield ServerEvent({"type": event.name} | event.data, event.name, content=event.content)

    def _events(self, answer: Answer) -> Iterator[ServerEvent]:
        usage = answer.shown_usage
        # A message begins with the full count of its input and hardly any output; the totals come at the end.
        begun = usage and Usage(
            usage.input_tokens,
            min(1, usage.output_tokens),
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
        )
        yield ServerEvent({"message": _message(answer, begun)}, "message_start")
        for index, part in enumerate(_parts(answer)):
            yield ServerEvent({"index": index, "content_block": _block(answer, part)}, "content_block_start")
            for delta in _deltas(answer, part):
                yield ServerEvent({"index": index, "delta": delta}, "content_block_delta", content=True)
            yield ServerEvent({"index": index}, "content_block_stop")
        ending = {"stop_reason": _STOP_REASONS.get(answer.finish_reason or ""), "stop_sequence": None}
        yield ServerEvent({"delta": ending, "usage": _usage(usage)}, "message_delta")
        yield ServerEvent({}, "message_stop")

    def error(self, status: int, message: str, request_id: str) -> JsonObject:
        """Return an error."""
        error = {"type": _ERROR_TYPES.get(status, "api_error"), "message": message}
        return {"type": "error", "error": error, "request_id": request_id}


def _tool_choice(choice: JsonObject) -> ToolChoice:
    match choice.get("type"):
        case "any":
            return "required", None
        case "tool":
            return "required", frozenset([choice["name"]])
        case "none":
            return "none", None
        case _:
            return "auto", None


def _message(answer: Answer, usage: Usage | None) -> JsonObject:
    """Return a message that has just begun."""
    tier = answer.service_tier
    tier = "standard" if tier in (None, "auto", "standard_only") else tier
    return {
        "id": f"{Messages.id_prefix}{answer.id}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(usage) | {"service_tier": tier},
    }


def _parts(answer: Answer) -> Iterator[str | Call]:
    if answer.text or not answer.calls:
        yield answer.text
    yield from answer.calls


def _block(answer: Answer, part: str | Call) -> JsonObject:
    """Return a content block that has just begun."""
    if isinstance(part, str):
        return {"type": "text", "text": ""}
    return {"type": "tool_use", "id": part.id, "name": part.name, "input": {}}


def _filled(part: str | Call) -> JsonObject:
    """Return the fields that a complete content block has in place of empty ones."""
    if isinstance(part, str):
        return {"text": part}
    try:
        return {"input": json.loads(part.arguments)}
    except ValueError:
        return {"input": part.arguments}  # arguments that are not JSON: the closest that a message can get


def _deltas(answer: Answer, part: str | Call) -> Iterator[JsonObject]:
    if isinstance(part, str):
        for piece in answer.pieces(part):
            yield {"type": "text_delta", "text": piece}
    else:
        for piece in answer.pieces(part.arguments):
            yield {"type": "input_json_delta", "partial_json": piece}


def _usage(usage: Usage | None) -> JsonObject:
    if usage is None:
        return {}  # clients read counts from this object without a check that it exists
    counts: JsonObject = {
        # Anthropic does not include the cached parts in its count of the input.
        "input_tokens": usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "output_tokens": usage.output_tokens,
    }
    if usage.reasoning_tokens:
        counts["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return counts
