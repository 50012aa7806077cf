"""Workflows as data: a spec, the calls that drive it, and what each has to answer.

    title: A result that does not pass is done again
    spec: |
      version: "0.2"
      ...
    inputs: {topic: tides}          # of `plan`, which is the first call
    planned: {status: execute_step} # what it answers
    calls:
      - step_done: {step_id: draft, result: {text: ""}}
        answers: {status: ensure_failed, violations: ["~ is false"]}
      - wait: 60                    # seconds pass
      - gate_resolve: {flow: review, step_id: ask, outcome: approve}

An expected mapping names some fields of an answer, and all must be so; a list is expected as a whole. A text
that begins with `~ ` has to be a part of the one that is there, and `absent` is for fields that are left out.
`flow` is the inner flow that a call is about, by its step.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[1] / "workflows" / "scenarios"

Answer = Mapping[str, Any]
Do = Callable[[str, Mapping[str, Any]], Awaitable[Answer]]
"""Makes a call, by its name and its arguments, `flow_id` among them, and returns its answer as JSON."""


@dataclass(frozen=True)
class Call:
    """A call, and what is expected of it."""

    name: str
    arguments: Mapping[str, Any]
    answers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Scenario:
    """A spec with its calls."""

    name: str
    title: str
    spec: str
    flow: str | None
    inputs: Mapping[str, Any]
    planned: Mapping[str, Any]
    calls: tuple[Call, ...]
    files: Mapping[str, str]
    """Files of the workspace, by their paths."""

    @property
    def waits(self) -> bool:
        """Whether time has to pass in it."""
        return any(call.name == "wait" for call in self.calls)


@cache
def scenarios() -> tuple[Scenario, ...]:
    """Every scenario in the folder, read once."""
    return tuple(loaded(path) for path in sorted(FOLDER.glob("*.yaml")))


def loaded(path: Path) -> Scenario:
    """Read a scenario."""
    data = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
    unknown = data.keys() - {"title", "spec", "flow", "inputs", "planned", "calls", "files"}
    assert not unknown, f"{path.name}: {unknown}"
    return Scenario(
        name=path.stem,
        title=data["title"],
        spec=data["spec"],
        flow=data.get("flow"),
        inputs=data.get("inputs", {}),
        planned=data.get("planned", {}),
        calls=tuple(map(_call, data.get("calls", ()))),
        files=data.get("files", {}),
    )


def _call(given: dict[str, Any]) -> Call:
    answers = given.pop("answers", {})
    [(name, arguments)] = given.items()
    return Call(name, {"seconds": arguments} if name == "wait" else arguments or {}, answers)


class Clock:
    """Time that passes when a scenario says so."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self.now += seconds


def workspace(scenario: Scenario, folder: Path) -> Path:
    """The workspace of a scenario, with its files."""
    root = folder / "workspace"
    root.mkdir()
    for name, text in scenario.files.items():
        (root / name).write_text(text, encoding="utf-8")
    return root


async def run_scenario(scenario: Scenario, do: Do, pass_time: Callable[[float], None] | None = None) -> str:
    """Make the calls, and compare each answer with what is expected. Return the id of the flow."""
    plan = {"spec": scenario.spec, "flow": scenario.flow, "inputs": dict(scenario.inputs)}
    answer = await do("plan", plan)
    check(answer, scenario.planned, f"{scenario.name}: plan")
    flow_id = str(answer.get("flow_id", ""))
    for number, call in enumerate(scenario.calls, 1):
        if call.name == "wait":
            assert pass_time is not None, "time cannot pass here"
            pass_time(call.arguments["seconds"])
            continue
        arguments = dict(call.arguments)
        inner = arguments.pop("flow", None)
        arguments.setdefault("flow_id", f"{flow_id}/{inner}" if inner else flow_id)
        answer = await do(call.name, arguments)
        check(answer, call.answers, f"{scenario.name}: call {number}, {call.name}")
    return flow_id


def check(given: Any, expected: Any, where: str) -> None:
    """Compare an answer with what is expected of it."""
    if isinstance(expected, dict):
        assert isinstance(given, Mapping), f"{where}: {given!r} is no object"
        for name, value in expected.items():
            if value == "absent":
                assert name not in given, f"{where}.{name} is there: {given[name]!r}"
            else:
                assert name in given, f"{where}.{name} is missing in {given!r}"
                check(given[name], value, f"{where}.{name}")
    elif isinstance(expected, list):
        assert isinstance(given, list | tuple), f"{where}: {given!r} is no list"
        assert len(given) == len(expected), f"{where}: {given!r} has {len(given)} items, not {len(expected)}"
        for number, (one, value) in enumerate(zip(given, expected, strict=True)):
            check(one, value, f"{where}[{number}]")
    elif isinstance(expected, str) and expected.startswith("~ "):
        assert isinstance(given, str), f"{where}: {given!r} is no text"
        assert expected[2:] in given, f"{where}: {given!r} does not have {expected[2:]!r}"
    else:
        assert given == expected, f"{where}: {given!r}, not {expected!r}"
