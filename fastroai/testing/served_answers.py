"""Answers made from replies: content in its final place, usage counted, ids given.

**The server's own count** is used if a reply has no `usage`: a token is four bytes of UTF-8, rounded up.
Input is everything that the request says to the model: system text, messages, tool calls, tool results, the
tools with their schemas, and the output schema; at least 1. Output is the text, and names and arguments of
the tool calls. Neither can exceed the bytes of the request or of the answer. As with a provider, `max_tokens`
ends an answer that is longer; a reply with its own usage is sent unchanged.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from uuid import uuid4

from pydantic_core import to_json

from fastroai.testing.replies import FinishReason, Reply, Usage
from fastroai.testing.requests import JsonObject, ServedRequest
from fastroai.testing.rules import NoReplyError
from fastroai.testing.schema_instances import NoInstanceError, unfit_instance

_BYTES_PER_TOKEN = 4


@dataclass(frozen=True)
class Call:
    """A tool call in the form in which it is sent."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Answer:
    """The answer to one request, with all that a protocol needs to write it."""

    request: ServedRequest
    id: str
    created: int
    """Time when the answer was made, in seconds since 1970."""
    model: str
    service_tier: str | None
    text: str
    calls: tuple[Call, ...]
    usage: Usage
    shown_usage: Usage | None
    """The usage that the answer reports; `None`: the answer reports none."""
    finish_reason: FinishReason | None
    """Why the answer ended; `None`: the answer does not say it."""
    chunk_size: int

    def pieces(self, text: str) -> Iterator[str]:
        """Yield a text in the pieces that a stream sends."""
        for start in range(0, len(text), self.chunk_size):
            yield text[start : start + self.chunk_size]


def make_answer(request: ServedRequest, reply: Reply) -> Answer:
    """Return the answer that gives `reply` to `request`.

    Raises:
        NoReplyError: if the protocol of the request cannot express the reply.
    """
    fault = reply.fault.kind if reply.fault else None
    token = uuid4().hex
    text, calls = _content(request, reply, wrong_schema=fault == "wrong_schema")
    calls = tuple(replace(call, id=call.id or f"call_{token[:20]}{n}") for n, call in enumerate(calls))

    usage, cut_short = reply.usage, False
    if usage is None:
        within, calls_within = _within(request.max_tokens, text, calls)
        cut_short = (within, calls_within) != (text, calls)
        text, calls = within, calls_within
        usage = Usage(_count_input(request), _count(*_said(text, calls)))
    if (usage.input_audio_tokens or usage.output_audio_tokens) and request.protocol != "openai-chat":
        raise NoReplyError(
            f"the usage of a reply has audio tokens, which {request.protocol} cannot report; openai-chat can"
        )
    return Answer(
        request=request,
        id=token,
        created=int(time.time()),
        model=reply.model or request.model,
        service_tier=reply.service_tier or request.service_tier,
        text=text,
        calls=calls,
        usage=usage,
        shown_usage=None if fault == "missing_usage" else usage,
        finish_reason=None
        if fault == "missing_finish_reason"
        else reply.finish_reason or ("length" if cut_short else "tool_calls" if calls else "stop"),
        chunk_size=reply.chunk_size,
    )


def _content(request: ServedRequest, reply: Reply, *, wrong_schema: bool) -> tuple[str, tuple[Call, ...]]:
    """Return the text and the calls of an answer, with structured data where the request wants it."""
    calls = tuple(
        Call(
            call.id or "",
            call.name,
            call.arguments if isinstance(call.arguments, str) else _json(call.arguments),
        )
        for call in reply.tool_calls
    )
    data, tool = reply.data, request.output_tool
    schema = tool.schema if tool else request.output_schema
    if wrong_schema:
        if schema is None:
            raise NoReplyError(
                "Fault.wrong_schema() needs a request that demands structured output; this one does not"
            )
        try:
            data, calls = unfit_instance(schema), ()
        except NoInstanceError as error:
            raise NoReplyError(f"Fault.wrong_schema() cannot answer this request: {error}") from error
    if data is None:
        return reply.text, calls
    text = _json({"response": data} if schema and not wrong_schema and _is_wrapper(schema, data) else data)
    return ("", (*calls, Call("", tool.name, text))) if tool else (text, calls)


def _is_wrapper(schema: JsonObject, data: object) -> bool:
    """Return whether `schema` is the object in which PydanticAI wraps an output that is not an object."""
    return list(schema.get("properties", {})) == ["response"] and not (
        isinstance(data, dict) and "response" in data
    )


def _within(max_tokens: int | None, text: str, calls: tuple[Call, ...]) -> tuple[str, tuple[Call, ...]]:
    """Return the beginning of an answer, cut off at `max_tokens`."""
    if max_tokens is None:
        return text, calls
    left = max_tokens * _BYTES_PER_TOKEN
    text = _first_bytes(text, left)
    left -= _size(text)
    kept: list[Call] = []
    for call in calls:
        left -= _size(call.name)
        if left < 0:
            break
        kept.append(replace(call, arguments=_first_bytes(call.arguments, left)))
        left -= _size(call.arguments)
    return text, tuple(kept)


def _count_input(request: ServedRequest) -> int:
    return max(
        1,
        _count(
            request.system,
            *(message.text for message in request.messages),
            *(part for call in request.tool_calls for part in (call.name, _as_text(call.arguments))),
            *(result.text for result in request.tool_results),
            *(
                part
                for tool in request.tools
                for part in (tool.name, tool.description, _as_text(tool.schema))
            ),
            _as_text(request.output_schema or ""),
        ),
    )


def _said(text: str, calls: tuple[Call, ...]) -> Iterator[str]:
    yield text
    for call in calls:
        yield call.name
        yield call.arguments


def _count(*texts: str) -> int:
    return -(-sum(map(_size, texts)) // _BYTES_PER_TOKEN)


def _size(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def _first_bytes(text: str, size: int) -> str:
    return text.encode(errors="surrogatepass")[:size].decode(errors="ignore")


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _json(value: object) -> str:
    return to_json(value).decode()
