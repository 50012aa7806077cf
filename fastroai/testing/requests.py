"""Requests to the server, in a form that does not depend on the protocol."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from fastroai.testing.replies import ToolCall

ProtocolName: TypeAlias = Literal["openai-responses", "openai-chat", "anthropic"]

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object from outside. `Any` ends in the protocol modules, which read the object."""


@dataclass(frozen=True)
class Message:
    """A message of the user (`user`) or the model (`assistant`) in a request.

    `text` has all its text. Parts without text, such as images and tool calls, are left out.
    """

    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True)
class ToolResult:
    """The result of a tool call, as the request gives it to the model.

    `call_id` is the id of the tool call, and `text` the result as text.
    """

    name: str
    """The name of the tool; empty if the conversation has no such call."""
    call_id: str
    text: str


@dataclass(frozen=True, eq=False)
class Tool:
    """A function tool that the request offers to the model. Tools that run at the provider are left out."""

    name: str
    description: str
    schema: JsonObject
    """JSON Schema of the arguments."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ServedRequest:
    """One request to the model server, in a form that does not depend on the protocol.

    The functions that you give to `ModelServer.rule` get it, to choose or to make the reply. `messages`,
    `tool_calls` and `tool_results` are those of the whole conversation, in order. `body` is the decoded JSON
    of the request, and `raw_body` its bytes.
    """

    protocol: ProtocolName
    model: str
    system: str
    """All system and developer text, one paragraph each."""
    messages: tuple[Message, ...]
    tool_calls: tuple[ToolCall, ...]
    """The calls that the model has made in this conversation so far."""
    tool_results: tuple[ToolResult, ...]
    tools: tuple[Tool, ...]
    tool_choice: Literal["auto", "required", "none"]
    allowed_tools: frozenset[str] | None
    """The names of the tools that the model may choose; `None` allows all tools."""
    output_schema: JsonObject | None
    """JSON Schema that the text of the answer must fit; `None`: any text."""
    stream: bool
    include_usage: bool
    """Whether a stream has to end with its usage: Chat Completions reports it only on demand."""
    max_tokens: int | None
    service_tier: str | None
    headers: Mapping[str, str]
    """Headers of the request, with names in lower case."""
    body: JsonObject
    raw_body: bytes

    @property
    def prompt(self) -> str:
        """The text of the last message of the user; empty if there is none."""
        return next((message.text for message in reversed(self.messages) if message.role == "user"), "")

    @property
    def output_tool(self) -> Tool | None:
        """The tool by whose call PydanticAI takes the structured output; `None` if there is none.

        The protocols do not mark output tools. Of the tools that the model may choose, it is the first whose
        name begins with `final_result`; otherwise, if the request demands a call, it is the last one.
        """
        if self.tool_choice == "none":
            return None
        names = self.allowed_tools
        callable_tools = [tool for tool in self.tools if names is None or tool.name in names]
        named = [tool for tool in callable_tools if tool.name.startswith("final_result")]
        if named:
            return named[0]
        return callable_tools[-1] if callable_tools and self.tool_choice == "required" else None
