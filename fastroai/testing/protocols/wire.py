"""The base of all protocols: it reads requests, and writes answers, streams and errors."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from fastroai.testing.replies import ToolCall
from fastroai.testing.requests import JsonObject, Message, ProtocolName, ServedRequest, Tool, ToolResult
from fastroai.testing.served_answers import Answer


class BadRequestError(Exception):
    """A request does not fit the protocol. The message says what is wrong."""


@dataclass(frozen=True)
class ServerEvent:
    """One server-sent event."""

    data: JsonObject | str
    name: str | None = None
    content: bool = False
    """Whether the event has a piece of text or of arguments."""

    def encode(self) -> bytes:
        """Return the event as bytes: https://html.spec.whatwg.org/multipage/server-sent-events.html"""
        data = self.data if isinstance(self.data, str) else json.dumps(self.data, separators=(",", ":"))
        return (f"event: {self.name}\n" if self.name else "").encode() + f"data: {data}\n\n".encode()


class Wire(ABC):
    """A protocol that the server speaks."""

    name: ClassVar[ProtocolName]
    path: ClassVar[str]
    request_id_header: ClassVar[str]
    id_prefix: ClassVar[str]
    """Prefix of the id of an answer."""

    def parse(self, headers: Mapping[str, str], raw_body: bytes) -> ServedRequest:
        """Read a request.

        Raises:
            BadRequestError: if the request does not fit this protocol.
        """
        try:
            body = json.loads(raw_body)
        except ValueError as error:
            raise BadRequestError(f"the body is not JSON: {error}") from error
        if not isinstance(body, dict) or not isinstance(body.get("model"), str):
            raise BadRequestError("expected a JSON object with 'model'")
        try:
            conversation = self._conversation(body)
            return ServedRequest(
                protocol=self.name,
                model=body["model"],
                system="\n\n".join(conversation.system),
                messages=tuple(conversation.messages),
                tool_calls=tuple(conversation.tool_calls),
                tool_results=tuple(conversation.tool_results),
                tools=conversation.tools,
                tool_choice=conversation.tool_choice[0],
                allowed_tools=conversation.tool_choice[1],
                output_schema=conversation.output_schema,
                stream=bool(body.get("stream")),
                include_usage=conversation.include_usage,
                max_tokens=conversation.max_tokens,
                service_tier=body.get("service_tier"),
                headers=headers,
                body=body,
                raw_body=raw_body,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadRequestError(f"the body is not a request of {self.name}: {error!r}") from error

    @abstractmethod
    def _conversation(self, body: JsonObject) -> "Conversation": ...

    @abstractmethod
    def body(self, answer: Answer) -> JsonObject:
        """Return the answer as one JSON object."""

    @abstractmethod
    def events(self, answer: Answer) -> Iterator[ServerEvent]:
        """Yield the answer as the events of a stream."""

    @abstractmethod
    def error(self, status: int, message: str, request_id: str) -> JsonObject:
        """Return an error as a JSON object."""


ToolChoice: TypeAlias = tuple[Literal["auto", "required", "none"], frozenset[str] | None]
"""Whether a tool must be called, and the tools that the model may choose, by name; `None` allows all."""


@dataclass
class Conversation:
    """The demands of a request on the answer, and its conversation so far, gathered while it is read."""

    tools: tuple[Tool, ...]
    tool_choice: ToolChoice
    output_schema: JsonObject | None
    max_tokens: int | None
    include_usage: bool = True
    system: list[str] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    tool_calls: list[ToolCall] = field(default_factory=list)
    tool_results: list[ToolResult] = field(default_factory=list)

    def say(self, role: str, content: Any) -> None:
        """Add a message by its role in the protocol."""
        text = text_of(content)
        if role in ("system", "developer"):
            self.system.append(text)
        elif role in ("user", "assistant"):
            self.messages.append(Message("assistant" if role == "assistant" else "user", text))
        else:
            raise ValueError(f"unknown role {role!r}")

    def call(self, call_id: str, name: str, arguments: Mapping[str, object] | str) -> None:
        """Add a tool call of the model."""
        self.tool_calls.append(ToolCall(name, arguments, call_id))

    def result(self, call_id: str, content: Any) -> None:
        """Add the result of a tool."""
        name = next((call.name for call in self.tool_calls if call.id == call_id), "")
        self.tool_results.append(ToolResult(name, call_id, text_of(content)))


def text_of(content: Any) -> str:
    """Return the text of a content: text, a list of blocks, or nothing. Blocks without text are left out."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(block["text"] for block in content if isinstance(block.get("text"), str))


OPENAI_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


class OpenAIWire(Wire):
    """What both protocols of OpenAI have in common. Chat Completions nests what Responses does not."""

    request_id_header = "x-request-id"

    def error(self, status: int, message: str, request_id: str) -> JsonObject:
        """Return an error."""
        kind = OPENAI_ERROR_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
        code = "rate_limit_exceeded" if status == 429 else None
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def openai_tools(tools: Sequence[JsonObject] | None) -> tuple[Tool, ...]:
    """Return the function tools among the tools of both protocols of OpenAI."""
    functions = [tool.get("function", tool) for tool in tools or () if tool["type"] == "function"]
    return tuple(
        Tool(function["name"], function.get("description") or "", function.get("parameters") or {})
        for function in functions
    )


def openai_output_schema(asked: JsonObject) -> JsonObject | None:
    """Return the schema of a format in both protocols of OpenAI."""
    if asked.get("type") == "json_schema":
        schema: JsonObject = asked.get("json_schema", asked)["schema"]
        return schema
    return {"type": "object"} if asked.get("type") == "json_object" else None


def openai_tool_choice(choice: Any) -> ToolChoice:
    """Return the tool choice of both protocols of OpenAI."""
    if not isinstance(choice, dict):
        return (choice if choice in ("required", "none") else "auto"), None
    if choice.get("type") != "allowed_tools":
        return "required", frozenset([_name(choice)])
    allowed = choice.get("allowed_tools", choice)
    mode: Literal["auto", "required"] = "required" if allowed["mode"] == "required" else "auto"
    return mode, frozenset(_name(tool) for tool in allowed["tools"])


def _name(tool: JsonObject) -> str:
    name: str = tool.get("function", tool)["name"]
    return name
