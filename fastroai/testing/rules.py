"""Choosing the reply to a request: scripts first, then rules, then a default."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from fastroai.testing.replies import Fault, Reply, ToolCall
from fastroai.testing.requests import ServedRequest
from fastroai.testing.schema_instances import NoInstanceError, smallest_instance

When: TypeAlias = Callable[[ServedRequest], bool]
Answer: TypeAlias = Callable[[ServedRequest], Reply] | Reply


class NoReplyError(Exception):
    """A request has no reply. The message says why, and what to do."""


@dataclass(frozen=True)
class _Rule:
    when: When | None
    answer: Answer


class Rules:
    """The scripts, rules and pending faults of one server. They may be changed while it serves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Remove all scripts, rules and faults."""
        with self._lock:
            self._scripts: dict[str | None, deque[Reply]] = {}
            self._rules: list[_Rule] = []
            self._faults: deque[Fault] = deque()

    def add_script(self, replies: Sequence[Reply], model: str | None) -> None:
        """Queue replies, for one model or for any."""
        with self._lock:
            self._scripts.setdefault(model, deque()).extend(replies)

    def add_rule(self, when: When | None, answer: Answer) -> None:
        """Add a rule after the existing rules."""
        with self._lock:
            self._rules.append(_Rule(when, answer))

    def add_faults(self, count: int, fault: Fault) -> None:
        """Make the next requests fail."""
        with self._lock:
            self._faults.extend([fault] * count)

    def reply_to(self, request: ServedRequest) -> Reply:
        """Return the reply to a request, and take it out of its script.

        A request with a pending fault leaves the script as it is: its retry gets the reply.

        Raises:
            NoReplyError: for an exhausted script without rules, a rule that failed, or a demanded schema
                that the default reply cannot fill.
        """
        with self._lock:
            fault = self._faults.popleft() if self._faults else None
            if fault and fault.kind == "status":
                return Reply(fault=fault)
            scripts = [self._scripts[key] for key in (request.model, None) if key in self._scripts]
            script = next((script for script in scripts if script), None)
            exhausted = bool(scripts) and not script and not self._rules
            reply = None if script is None else script[0] if fault else script.popleft()
            rules = tuple(self._rules)
        if exhausted and not fault:
            raise NoReplyError(
                f"the script of the model server is exhausted: no reply is left for model {request.model!r}. "
                "Add replies with server.script(...), or a rule for the rest with server.rule(...)"
            )
        reply = reply or _reply_by_rule(rules, request) or _default_reply(request)
        return replace(reply, fault=fault) if fault else reply


def _reply_by_rule(rules: Sequence[_Rule], request: ServedRequest) -> Reply | None:
    for number, rule in enumerate(rules, start=1):
        # The user's code runs only here. The client has to get an answer whatever this code raises.
        try:
            if rule.when is not None and not rule.when(request):
                continue
            reply = rule.answer if isinstance(rule.answer, Reply) else rule.answer(request)
        except Exception as error:
            raise NoReplyError(f"rule {number} of the model server raised {error!r}") from error
        if not isinstance(reply, Reply):
            raise NoReplyError(f"rule {number} of the model server returned {reply!r}; expected a Reply")
        return reply
    return None


def _default_reply(request: ServedRequest) -> Reply:
    """Return an echo, or the smallest structured output that fits if one is demanded."""
    tool = request.output_tool
    schema = tool.schema if tool else request.output_schema
    if schema is None:
        return Reply(f"echo: {request.prompt}")
    try:
        instance = smallest_instance(schema)
    except NoInstanceError as error:
        raise NoReplyError(
            f"the default reply of the model server cannot fill the demanded schema: {error}. "
            "Script the reply, or add a rule"
        ) from error
    if tool:
        arguments = instance if isinstance(instance, dict) else {}
        return Reply(tool_calls=[ToolCall(tool.name, arguments)])
    return Reply(data=instance)
