"""OpenAI Chat Completions: https://platform.openai.com/docs/api-reference/chat."""

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
from fastroai.testing.served_answers import Answer


class Chat(OpenAIWire):
    """The protocol of `POST /v1/chat/completions`."""

    name = "openai-chat"
    path = "/v1/chat/completions"
    id_prefix = "chatcmpl-"

    def _conversation(self, body: JsonObject) -> Conversation:
        conversation = Conversation(
            tools=openai_tools(body.get("tools")),
            tool_choice=openai_tool_choice(body.get("tool_choice")),
            output_schema=openai_output_schema(body.get("response_format") or {}),
            max_tokens=body.get("max_completion_tokens") or body.get("max_tokens"),
            include_usage=bool((body.get("stream_options") or {}).get("include_usage")),
        )
        for message in body["messages"]:
            if message["role"] == "tool":
                conversation.result(message["tool_call_id"], message["content"])
                continue
            if message.get("content"):
                conversation.say(message["role"], message["content"])
            for call in message.get("tool_calls") or ():
                conversation.call(call["id"], call["function"]["name"], call["function"]["arguments"])
        return conversation

    def body(self, answer: Answer) -> JsonObject:
        """Return a completion."""
        message: JsonObject = {"role": "assistant", "content": answer.text or None, "refusal": None}
        if answer.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in answer.calls
            ]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish_reason}
        body = _completion(answer, "chat.completion") | {"choices": [choice]}
        return body if answer.shown_usage is None else body | {"usage": _usage(answer.shown_usage)}

    def events(self, answer: Answer) -> Iterator[ServerEvent]:
        """Yield the chunks of a completion, and the mark of their end."""
        usage = answer.shown_usage if answer.request.include_usage else None
        chunk = _completion(answer, "chat.completion.chunk")
        if answer.request.include_usage:
            chunk["usage"] = None  # in every chunk but the last one

        def event(
            delta: JsonObject, finish_reason: str | None = None, *, content: bool = False
        ) -> ServerEvent:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
            return ServerEvent(chunk | {"choices": [choice]}, content=content)

        yield event({"role": "assistant", "content": None if answer.calls and not answer.text else ""})
        for piece in answer.pieces(answer.text):
            yield event({"content": piece}, content=True)
        for index, call in enumerate(answer.calls):
            opening = {"index": index, "id": call.id, "type": "function"}
            yield event({"tool_calls": [opening | {"function": {"name": call.name, "arguments": ""}}]})
            for piece in answer.pieces(call.arguments):
                delta = {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
                yield event(delta, content=True)
        yield event({}, answer.finish_reason)
        if usage is not None:
            yield ServerEvent(chunk | {"choices": [], "usage": _usage(usage)})
        yield ServerEvent("[DONE]")


def _completion(answer: Answer, kind: str) -> JsonObject:
    """Return the fields that a completion and each of its chunks have in common."""
    tier = answer.service_tier
    return {
        "id": f"{Chat.id_prefix}{answer.id}",
        "object": kind,
        "created": answer.created,
        "model": answer.model,
        "service_tier": "default" if tier in (None, "auto") else tier,
    }


def _usage(usage: Usage) -> JsonObject:
    return {
        "prompt_tokens": usage.input_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
            "audio_tokens": usage.input_audio_tokens,
        },
        "completion_tokens": usage.output_tokens,
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": usage.output_audio_tokens,
        },
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
