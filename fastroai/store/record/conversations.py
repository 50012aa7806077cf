"""The conversations of agents with models, read from the facts of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from textwrap import indent
from typing import TypeAlias

from pydantic import JsonValue

from fastroai.runtime.fact_base import Fact
from fastroai.runtime.facts import RequestEnded, RequestSent
from fastroai.store.record.payloads import is_sealed, masked

_Key: TypeAlias = tuple[str, str, int, tuple[str, ...]]
"""A conversation: its place, call, attempt and tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConversation:
    """What an agent and a model said to each other in one attempt at an agent call.

    `str` of it is its text, for people.
    """

    place: str
    """The attempt at the step or function that made the call, such as `write@1`."""
    call: str
    """The agent call in that attempt: its number, or its name."""
    attempt: int
    """Number of the attempt at the call."""
    tools: tuple[str, ...]
    """The calls of tools inside which the call was made, outermost first: the name of each, and a hash."""
    agent: str | None
    """The name of the agent; `None` for a plain agent without one."""
    history: int
    """Number of messages that the agent was given from before. They are not part of `messages`."""
    messages: tuple[dict[str, JsonValue], ...]
    """The messages in order, as JSON that PydanticAI's `ModelMessagesTypeAdapter.validate_python` reads.

    The instructions are in the first message, and again when they change. Images and files that were sent
    have their kind and size in place of their data. Empty if messages are not on record or are sealed.
    """
    is_sealed: bool = False
    """Whether messages went through a codec, and the trace was read without it."""

    @property
    def said(self) -> tuple[tuple[str, str], ...]:
        """Who said what, in order, as text: the `user`, the `model`, `tool look_up`, …"""
        return tuple(line for message in self.messages for line in _lines(message))

    def __str__(self) -> str:
        named = f"agent {self.agent!r}" if self.agent else "an agent"
        again = "" if self.attempt == 1 else f", attempt {self.attempt}"
        call = f", call {self.call}" if self.call else ""
        inside = f", in tool {self.tools[-1].rpartition(':')[0] or self.tools[-1]}" if self.tools else ""
        lines = [f"{self.place}: {named}{call}{again}{inside}"]
        if self.history:
            lines.append(f"(goes on from {self.history} earlier message{'s'[self.history == 1 :]})")
        lines += (f"{who}: {_indented(what)}" for who, what in self.said)
        if self.is_sealed:
            lines.append("(sealed)")
        return "\n  ".join(lines)


def conversations_in(entries: Iterable[Fact]) -> tuple[AgentConversation, ...]:
    """Return the conversations in facts as traces have them, in the order in which they began."""
    found: dict[_Key, AgentConversation] = {}
    unanswered: dict[_Key, int] = {}
    """The `history` of the last request, while it has no response: it is sent again."""
    sent_in: dict[str, _Key] = {}
    for entry in entries:
        if isinstance(entry, RequestSent):
            request = entry.request
            key = request.place, masked(request.call), request.attempt, tuple(map(masked, request.tools))
            sent_in[entry.id] = key
            if key not in found:
                place, call, attempt, tools = key
                found[key] = AgentConversation(
                    place=place,
                    call=call,
                    attempt=attempt,
                    tools=tools,
                    agent=entry.record.agent,
                    history=entry.history,
                    messages=(),
                )
            if entry.messages is not None and entry.history != unanswered.get(key):
                found[key] = _with(found[key], entry.messages)
                unanswered[key] = entry.history
        elif isinstance(entry, RequestEnded) and entry.response is not None and entry.id in sent_in:
            key = sent_in[entry.id]
            unanswered.pop(key, None)
            response = entry.response
            found[key] = _with(found[key], response if is_sealed(response) else [response])
    return tuple(found.values())


def _with(conversation: AgentConversation, told: JsonValue) -> AgentConversation:
    """Return a conversation with more messages, given as JSON."""
    if is_sealed(told):
        return replace(conversation, is_sealed=True)
    more = [one for one in told if isinstance(one, dict)] if isinstance(told, list) else ()
    return replace(conversation, messages=(*conversation.messages, *more))


def _lines(message: dict[str, JsonValue]) -> Iterator[tuple[str, str]]:
    """Yield who says what in a message."""
    if instructions := message.get("instructions"):
        yield "instructions", _text(instructions)
    parts = message.get("parts")
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict):
            yield _said(part)


def _said(part: dict[str, JsonValue]) -> tuple[str, str]:
    content, tool = part.get("content"), part.get("tool_name")
    match part.get("part_kind"):
        case "system-prompt":
            return "system", _text(content)
        case "user-prompt":
            return "user", _text(content)
        case "tool-return" | "builtin-tool-return":
            return f"tool {tool}", _text(content)
        case "retry-prompt":
            return "try again" if tool is None else f"tool {tool}, try again", _text(content)
        case "text":
            return "model", _text(content)
        case "thinking":
            return "model thinks", _text(content)
        case "tool-call" | "builtin-tool-call":
            return "model", f"calls {tool}({_text(part.get('args') or '')})"
        case kind:
            known = {name: value for name, value in part.items() if name not in ("part_kind", "timestamp")}
            return str(kind), _text(known)


def _text(content: JsonValue) -> str:
    if isinstance(content, list) and all(isinstance(one, str) for one in content):
        return "\n".join(map(str, content))
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _indented(text: str) -> str:
    return indent(text, "    ").lstrip(" ")
