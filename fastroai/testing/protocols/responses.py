"""OpenAI Responses: https://platform.openai.com/docs/api-reference/responses."""

from collections.abc import Iterator

from fastroai.testing.protocols.wire import (
    Conversation,
    OpenAIWire,
    ServerEvent,
    openai_output_schema,
    openai_tool_choice,
    openai_tools,
)
from fastroai.testing.replies import Usage
from fastroai.testing.requests import JsonObject
from fastroai.testing.served_answers import Answer, Call

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


class Responses(OpenAIWire):
    """The protocol of `POST /v1/responses`."""

    name = "openai-responses"
    path = "/v1/responses"
    id_prefix = "resp_"

    def _conversation(self, body: JsonObject) -> Conversation:
        conversation = Conversation(
            tools=openai_tools(body.get("tools")),
            tool_choice=openai_tool_choice(body.get("tool_choice")),
            output_schema=openai_output_schema((body.get("text") or {}).get("format") or {}),
            max_tokens=body.get("max_output_tokens"),
        )
        if body.get("instructions"):
            conversation.say("system", body["instructions"])
        items = body["input"]
        for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
            match item.get("type", "message"):
                case "message":
                    conversation.say(item["role"], item["content"])
                case "function_call":
                    conversation.call(item["call_id"], item["name"], item["arguments"])
                case "function_call_output":
                    conversation.result(item["call_id"], item["output"])
        return conversation

    def body(self, answer: Answer) -> JsonObject:
        """Return the object of a response that has ended."""
        reason = _INCOMPLETE.get(answer.finish_reason or "")
        return _response(answer) | {
            "status": None if answer.finish_reason is None else "incomplete" if reason else "completed",
            "incomplete_details": {"reason": reason} if reason else None,
            "output": list(_output(answer)),
            "usage": _usage(answer.shown_usage),
        }

    def events(self, answer: Answer) -> Iterator[ServerEvent]:
        """Yield the events of a response, numbered in their order."""
        for number, event in enumerate(self._events(answer)):
            assert isinstance(event.data, dict)
            data = {"type": event.name, "sequence_number": number} | event.data
            yield ServerEvent(data, event.name, content=event.content)

    def _events(self, answer: Answer) -> Iterator[ServerEvent]:
        opening = _response(answer) | {"status": "in_progress", "output": [], "usage": None}
        yield ServerEvent({"response": opening}, "response.created")
        yield ServerEvent({"response": opening}, "response.in_progress")
        for index, item in enumerate(_output(answer)):
            at = {"output_index": index, "item_id": item["id"]}
            begun: JsonObject = {"content": []} if item["type"] == "message" else {"arguments": ""}
            begun = item | begun | {"status": "in_progress"}
            yield ServerEvent({"output_index": index, "item": begun}, "response.output_item.added")
            yield from (
                _text_events(answer, at) if item["type"] == "message" else _call_events(answer, item, at)
            )
            yield ServerEvent({"output_index": index, "item": item}, "response.output_item.done")
        body = self.body(answer)
        end = "response.incomplete" if body["incomplete_details"] else "response.completed"
        yield ServerEvent({"response": body}, end)


def _response(answer: Answer) -> JsonObject:
    """Return the fields that the object of a response has from its beginning to its end."""
    tier = answer.service_tier
    return {
        "id": f"{Responses.id_prefix}{answer.id}",
        "object": "response",
        "created_at": answer.created,
        "model": answer.model,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": answer.request.max_tokens,
        "metadata": {},
        "parallel_tool_calls": answer.request.body.get("parallel_tool_calls", True),
        "service_tier": "default" if tier in (None, "auto") else tier,
        "tool_choice": answer.request.body.get("tool_choice", "auto"),
        "tools": answer.request.body.get("tools", []),
    }


def _output(answer: Answer) -> Iterator[JsonObject]:
    if answer.text or not answer.calls:
        yield {
            "id": f"msg_{answer.id}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [_text_part(answer.text)],
        }
    for number, call in enumerate(answer.calls):
        yield _function_call(f"fc_{answer.id}{number}", call)


def _text_part(text: str) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _function_call(item_id: str, call: Call) -> JsonObject:
    return {
        "id": item_id,
        "type": "function_call",
        "status": "completed",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
    }


def _text_events(answer: Answer, at: JsonObject) -> Iterator[ServerEvent]:
    at = at | {"content_index": 0}
    yield ServerEvent(at | {"part": _text_part("")}, "response.content_part.added")
    for piece in answer.pieces(answer.text):
        yield ServerEvent(at | {"delta": piece, "logprobs": []}, "response.output_text.delta", content=True)
    yield ServerEvent(at | {"text": answer.text, "logprobs": []}, "response.output_text.done")
    yield ServerEvent(at | {"part": _text_part(answer.text)}, "response.content_part.done")


def _call_events(answer: Answer, item: JsonObject, at: JsonObject) -> Iterator[ServerEvent]:
    for piece in answer.pieces(item["arguments"]):
        yield ServerEvent(at | {"delta": piece}, "response.function_call_arguments.delta", content=True)
    done = at | {"name": item["name"], "arguments": item["arguments"]}
    yield ServerEvent(done, "response.function_call_arguments.done")


def _usage(usage: Usage | None) -> JsonObject | None:
    if usage is None:
        return None
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
