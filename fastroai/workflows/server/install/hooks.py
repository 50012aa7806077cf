"""The hooks of clients: a client runs them at events, and describes the event as JSON on standard input."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from fastroai.errors import ConfigurationError, nearest_hint
from fastroai.workflows.server.install.memory import Memory

if TYPE_CHECKING:
    from pydantic import JsonValue  # not at run time: a client waits for each hook

MAX_BYTES: Final = 10_000_000
"""Maximum number of bytes in the description of an event; results of tools can be large."""

_DEEPEST: Final = 8
"""Maximum number of levels of a result in which the answer of a tool is looked for."""

_OF_THE_SERVER: Final = "fastroai_"
_STEP_DONE: Final = "fastroai_step_done"

_Event: TypeAlias = "Mapping[str, JsonValue]"


def answered(hook: str, client: str, said: bytes, now: datetime) -> str:
    """Carry out a hook, and return the text to print for the client; empty if there is none.

    Args:
        hook: `session-start`, `stop` or `tool-failure`.
        client: The name of the client.
        said: The client's description of the event, in JSON.
        now: The time of the event.

    Raises:
        ConfigurationError: there is no such hook, or the event or the memory file is not readable.
    """
    perform = _HOOKS.get(hook)
    if perform is None:
        raise ConfigurationError("hook", hook, f"one of {', '.join(_HOOKS)}.{nearest_hint(hook, _HOOKS)}")
    event = _event(said)
    memory = Memory.around(_folder(event))
    return "" if memory is None else perform(memory, client, event, now)


def _session_start(memory: Memory, client: str, event: _Event, now: datetime) -> str:
    told = memory.told()
    if not told:
        return ""
    if client == "cursor":
        return json.dumps({"additional_context": told})
    return json.dumps({"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": told}})


def _stop(memory: Memory, client: str, event: _Event, now: datetime) -> str:
    last = _text(event, "last_assistant_message", "prompt_response", "text")
    if last.strip():
        session = _text(event, "session_id", "sessionId", "conversation_id")
        memory.add("sessions", ("session", session), f"{client}: {last}", now)
    return ""


def _tool_failure(memory: Memory, client: str, event: _Event, now: datetime) -> str:
    if event.get("is_interrupt") is True:
        return ""
    tool = _text(event, "tool_name")
    given = _unpacked(event.get("tool_input"))
    response = next((event[one] for one in _RESPONSES if one in event), None)
    error = _text(event, "error", "error_message") or _error_of(response)
    # Some clients tell answers with the status `error` as failures of the tool, with the answer in the text.
    answer = (_answer(response) or _answer(error)) if _OF_THE_SERVER in tool else None
    if answer is not None:
        if tool.endswith(_STEP_DONE):
            _note_answer(memory, answer, given, now)
        return ""
    if error:
        command = given.get("command") if isinstance(given, dict) else None
        did = f"{tool}: {command}" if isinstance(command, str) else tool
        memory.add("failed checks", ("tool", did), f"{did[:200]}: {error}", now)
    return ""


def _note_answer(memory: Memory, answer: dict[str, JsonValue], given: JsonValue, now: datetime) -> None:
    """Note a check that a result has failed; remove the note when a result passes."""
    asked = given if isinstance(given, dict) else {}
    flow, step = (str(asked.get(name) or answer.get(name)) for name in ("flow_id", "step_id"))
    while isinstance(inner := answer.get("child_step"), dict):
        answer = inner
    violations = answer.get("violations")
    if isinstance(violations, list) and violations:
        wrong = "; ".join(map(str, violations))
        memory.add("failed checks", (flow, step), f"step {step} of flow {flow}: {wrong}", now)
    elif answer.get("status") not in ("error", "failed"):
        memory.drop("failed checks", (flow, step))


_RESPONSES: Final = ("tool_response", "result_json", "tool_output")
_HOOKS: Final[Mapping[str, Callable[[Memory, str, _Event, datetime], str]]] = {
    "session-start": _session_start,
    "stop": _stop,
    "tool-failure": _tool_failure,
}


# --- events ---


def _event(said: bytes) -> _Event:
    if len(said) > MAX_BYTES:
        raise ConfigurationError("event", f"{len(said):,} bytes", f"at most {MAX_BYTES:,} bytes of JSON")
    try:
        event = json.loads(said)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError("event", said[:100], f"JSON ({error})") from error
    if not isinstance(event, dict):
        raise ConfigurationError("event", said[:100], "a JSON object")
    return event


def _folder(event: _Event) -> Path:
    roots = event.get("workspace_roots")
    first = roots[0] if isinstance(roots, list) and roots else None
    named = first if isinstance(first, str) else _text(event, "cwd")
    return Path(named) if named and "\0" not in named and Path(named).is_dir() else Path.cwd()


def _text(event: _Event, *names: str) -> str:
    return next((text for name in names if isinstance(text := event.get(name), str) and text), "")


def _unpacked(value: JsonValue) -> JsonValue:
    """Return the value of JSON in a text; return other values unchanged."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            unpacked: JsonValue = json.loads(value)
        except (ValueError, RecursionError):
            return value
        return unpacked
    return value


def _answer(value: JsonValue, depth: int = 0) -> dict[str, JsonValue] | None:
    """Return the answer of our server, which each client wraps in its own way; `None` if there is none."""
    value = _unpacked(value)
    if depth > _DEEPEST or not isinstance(value, dict | list):
        return None
    if isinstance(value, dict) and isinstance(value.get("status"), str):
        return value
    inside = value.values() if isinstance(value, dict) else value
    return next((found for one in inside if (found := _answer(one, depth + 1)) is not None), None)


def _error_of(response: JsonValue) -> str:
    error = response.get("error") if isinstance(response, dict) else None
    if isinstance(error, dict):
        error = error.get("message")
    return error if isinstance(error, str) else ""
