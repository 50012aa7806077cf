"""What the server was asked, in no protocol any more."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from fastroai.testing.replies import ToolCall

ProtocolName: TypeAlias = Literal["openai-responses", "openai-chat", "anthropic"]

JsonObject: TypeAlias = dict[str, Any]
"""An object of somebody's JSON: `Any` ends in the protocol modules, which read it."""


@dataclass(frozen=True)
class Message:
    """Something that the user or the model said."""

    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True)
class ToolResult:
    """What a tool returned to the model."""

    name: str
    """Of the tool; empty if the conversation has no such call."""
    call_id: str
    text: str


@dataclass(frozen=True, eq=False)
class Tool:
    """A function tool that the request offers."""

    name: str
    description: str
    schema: JsonObject
    """JSON Schema of the arguments."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ServedRequest:
    """One request for an answer of a model: what rules read."""

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
    """The names among which the request wants the model to choose; `None`: all."""
    output_schema: JsonObject | None
    """JSON Schema of the text that the request demands; `None`: any text."""
    stream: bool
    include_usage: bool
    """Whether a stream is to end with its usage: Chat Completions tells it only when asked to."""
    max_tokens: int | None
    service_tier: str | None
    headers: Mapping[str, str]
    """With names in lower case."""
    body: JsonObject
    raw_body: bytes

    @property
    def prompt(self) -> str:
        """The last thing that the user said."""
        return next((message.text for message in reversed(self.messages) if message.role == "user"), "")

    @property
    def output_tool(self) -> Tool | None:
        """The tool whose call is the structured output, if there is one.

        The protocols do not tell output tools from others, so this knows PydanticAI: they are named
        `final_result…`; or, where a call is demanded, the last tool is one.
        """
        if self.tool_choice == "none":
            return None
        names = self.allowed_tools
        callable_tools = [tool for tool in self.tools if names is None or tool.name in names]
        named = [tool for tool in callable_tools if tool.name.startswith("final_result")]
        if named:
            return named[0]
        return callable_tools[-1] if callable_tools and self.tool_choice == "required" else None
