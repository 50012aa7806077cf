"""Recorded answers as the streams in which their providers would have sent them."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from support.recorded_models import Wire, readable
from support.recorded_oracle import Json

EVENT_STREAM = "application/vnd.amazon.eventstream"


@dataclass(frozen=True)
class Streamed:
    """A stream in pieces: those before the usage, those with it, and those after it."""

    before: list[bytes]
    usage: list[bytes]
    media_type: str = "text/event-stream"

    def whole(self) -> Wire:
        """All of it."""
        return Wire([*self.before, *self.usage], self.media_type)

    def without_usage(self, *, broken: bool) -> Wire:
        """It ends before its usage: the connection breaks, or is closed as if all were there."""
        return Wire(self.before, self.media_type, broken=broken)


def streamed(answer: Json) -> Streamed | None:
    """The stream of an answer; `None` where the place, or PydanticAI's model of it, does not stream."""
    path, body = unquote(answer["path"]), readable(answer["response"])
    for end, convert in _CONVERSIONS.items():
        if path.endswith(end):
            return convert(body, answer["host"] + path)
    return None


def _sse(data: Json, event: str | None = None) -> bytes:
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


def _chat(body: Json, place: str) -> Streamed:
    """Chat Completions: deltas, the finish reason, then the usage, in a chunk without choices."""
    (choice,) = body["choices"]
    chunk = {key: value for key, value in body.items() if key != "usage"} | {
        "object": "chat.completion.chunk"
    }
    message = choice["message"]
    calls = [call | {"index": index} for index, call in enumerate(message.get("tool_calls") or [])]
    delta = message | ({"tool_calls": calls} if calls else {})

    def of(delta: Json, finish: str | None = None, **more: object) -> bytes:
        return _sse(chunk | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]} | more)

    before = [of({"role": "assistant", "content": ""}), of(delta)]
    finish, done = choice.get("finish_reason"), b"data: [DONE]\n\n"
    if "groq" in place:  # its own object, beside the finish reason
        own = {"x_groq": {"id": "x", "usage": body["usage"]}, "usage": body["usage"]}
        return Streamed(before, [of({}, finish, **own), done])
    if "mistral" in place:
        return Streamed(before, [of({"content": ""}, finish, usage=body["usage"]), done])
    return Streamed([*before, of({}, finish)], [_sse(chunk | {"choices": [], "usage": body["usage"]}), done])


def _responses(body: Json, place: str) -> Streamed:
    """Responses: each item in events of its own, and the whole response in the last one."""
    started = body | {"status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": started}]
    for index, item in enumerate(body["output"]):
        at = {"output_index": index}
        events.append({"type": "response.output_item.added", "item": item | {"status": "in_progress"}} | at)
        if item["type"] == "message":
            events += _text_events(item, at)
        events.append({"type": "response.output_item.done", "item": item} | at)
    last = {"type": "response.completed", "response": body}
    numbered = [event | {"sequence_number": number} for number, event in enumerate([*events, last])]
    pieces = [_sse(event, event["type"]) for event in numbered]
    return Streamed(pieces[:-1], pieces[-1:])


def _text_events(item: Json, at: Json) -> Iterator[dict[str, Any]]:
    for number, part in enumerate(item["content"]):
        here = {"item_id": item["id"], "content_index": number, **at}
        yield {"type": "response.content_part.added", "part": part | {"text": ""}} | here
        yield {"type": "response.output_text.delta", "delta": part["text"], "logprobs": []} | here
        yield {"type": "response.output_text.done", "text": part["text"], "logprobs": []} | here
        yield {"type": "response.content_part.done", "part": part} | here


def _anthropic_events(body: Json) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The input in the first event, the totals in the last but one."""
    told_last = ("iterations", "pydantic_ai_gateway")
    first = {key: value for key, value in body["usage"].items() if key not in told_last} | {
        "output_tokens": 1
    }
    message = body | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": first}
    before: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    for index, block in enumerate(body["content"]):
        deltas = list(_deltas(block))
        empty = block | {key: "" for key in ("text", "thinking", "signature") if key in block}
        if block["type"] in ("tool_use", "server_tool_use"):
            empty |= {"input": {}}
        before.append({"type": "content_block_start", "index": index, "content_block": empty})
        before += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        before.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": body["stop_reason"], "stop_sequence": body["stop_sequence"]}
    last = {"type": "message_delta", "delta": delta, "usage": body["usage"]}
    return before, [last, {"type": "message_stop"}]


def _deltas(block: Json) -> Iterator[dict[str, Any]]:
    if "text" in block:
        yield {"type": "text_delta", "text": block["text"]}
    if "thinking" in block:
        yield {"type": "thinking_delta", "thinking": block["thinking"]}
        yield {"type": "signature_delta", "signature": block.get("signature", "x")}
    if block["type"] in ("tool_use", "server_tool_use"):
        yield {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}


def _anthropic(body: Json, place: str) -> Streamed:
    before, usage = _anthropic_events(body)
    return Streamed([_sse(e, e["type"]) for e in before], [_sse(e, e["type"]) for e in usage])


def _anthropic_on_bedrock(body: Json, place: str) -> Streamed:
    """The same events, each in an event of AWS's own."""
    before, usage = _anthropic_events(body)

    def wrap(event: Json) -> bytes:
        return _aws_event("chunk", {"bytes": base64.b64encode(json.dumps(event).encode()).decode()})

    return Streamed([wrap(e) for e in before], [wrap(e) for e in usage], EVENT_STREAM)


def _gemini(body: Json, place: str) -> Streamed:
    """The prompt's tokens in each chunk, the totals and the finish reason in the last one."""
    if "candidates" not in body:
        return Streamed([], [_sse(body)])
    usage = {
        key: value for key, value in body["usageMetadata"].items() if key.startswith(("prompt", "traffic"))
    }
    first = dict(body["candidates"][0])
    first.pop("finishReason", None)
    last = body["candidates"][0] | {"content": {"parts": [{"text": ""}], "role": "model"}}
    return Streamed(
        [_sse(body | {"candidates": [first], "usageMetadata": usage})], [_sse(body | {"candidates": [last]})]
    )


def _converse(body: Json, place: str) -> Streamed:
    """Bedrock: the usage in an event after the last one of the message."""
    before = [_aws_event("messageStart", {"role": "assistant"})]
    for index, block in enumerate(body["output"]["message"]["content"]):
        for name, event in _converse_events(block):
            before.append(_aws_event(name, event | {"contentBlockIndex": index}))
    before.append(_aws_event("messageStop", {"stopReason": body["stopReason"]}))
    metadata = {"usage": body["usage"], "metrics": body["metrics"]}
    return Streamed(before, [_aws_event("metadata", metadata)], EVENT_STREAM)


def _converse_events(block: Json) -> Iterator[tuple[str, dict[str, Any]]]:
    if use := block.get("toolUse"):
        start = {"name": use["name"], "toolUseId": use["toolUseId"]}
        yield "contentBlockStart", {"start": {"toolUse": start}}
        yield "contentBlockDelta", {"delta": {"toolUse": {"input": json.dumps(use["input"])}}}
    elif "text" in block:
        yield "contentBlockDelta", {"delta": {"text": block["text"]}}
    else:
        thought = block["reasoningContent"]
        for key, value in (thought.get("reasoningText") or thought).items():
            yield "contentBlockDelta", {"delta": {"reasoningContent": {key: value}}}
    yield "contentBlockStop", {}


def _aws_event(name: str, payload: Json) -> bytes:
    """A message of the binary event streams of AWS: lengths and checksums around headers and payload."""
    headers = b"".join(
        _aws_header(key, value)
        for key, value in {
            ":event-type": name,
            ":content-type": "application/json",
            ":message-type": "event",
        }.items()
    )
    data = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(data), len(headers))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + data
    return message + struct.pack(">I", zlib.crc32(message))


def _aws_header(key: str, value: str) -> bytes:
    return struct.pack(">B", len(key)) + key.encode() + struct.pack(">BH", 7, len(value)) + value.encode()


_CONVERSIONS: dict[str, Callable[[Json, str], Streamed]] = {
    "/chat/completions": _chat,
    "/responses": _responses,
    "/v1/messages": _anthropic,
    "/invoke": _anthropic_on_bedrock,
    ":generateContent": _gemini,
    "/converse": _converse,
}
