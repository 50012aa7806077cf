"""The shape of a pipeline as it is on record: `{"name", "steps": {id: {"needs", "runs", …}}, …}`."""

from __future__ import annotations

import hashlib
import json
import re
from ast import literal_eval
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from pydantic import JsonValue

from fastroai.places import attempt_around, quoted, step_name

MachineKind: TypeAlias = Literal["pipeline", "graph", "workflow", "rows"]
"""The machines that say what comes next in a run. A flow is a pipeline of one step to its machine."""


def fingerprint(definition: JsonValue) -> str:
    """Return a short text that is the same for equal definitions, and for no others."""
    return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()[:32]


def kind_of(definition: JsonValue) -> MachineKind:
    """Return which machine runs this definition."""
    kind = definition.get("kind") if isinstance(definition, dict) else None
    match kind:
        case "graph" | "workflow" | "rows":
            return kind
        case _:
            return "pipeline"


def word_for(definition: JsonValue) -> str:
    """Return the word for a kind of run in texts for people. A flow is defined as a pipeline of one step."""
    return "flow" if is_flow(definition) else kind_of(definition)


def is_flow(definition: JsonValue) -> bool:
    """Return whether a definition is that of a flow, which has no steps but its body."""
    return isinstance(definition, dict) and definition.get("kind") == "flow"


def version_of(definition: JsonValue) -> str | None:
    """Return the version that its author gave a definition, if any."""
    version = definition.get("version") if isinstance(definition, dict) else None
    return version if isinstance(version, str) else None


def steps_in(definition: JsonValue) -> Mapping[str, JsonValue]:
    """Return the steps of a definition, by id."""
    steps = definition.get("steps") if isinstance(definition, dict) else None
    return steps if isinstance(steps, dict) else {}


def pause_nodes_in(definition: JsonValue) -> Collection[str]:
    """Return the nodes of a graph whose output is the answer of a person."""
    pauses = definition.get("pause_nodes") if isinstance(definition, dict) else None
    return {*map(str, pauses)} if isinstance(pauses, list) else set()


def needs_of(definition: JsonValue, step_id: str) -> tuple[str, ...]:
    """Return the direct dependencies of a step."""
    step = steps_in(definition).get(step_id)
    needs = step.get("needs") if isinstance(step, dict) else None
    return tuple(map(str, needs)) if isinstance(needs, list) else ()


@dataclass(frozen=True, slots=True)
class Way:
    """A way from a step to another one that a definition names: an edge of a graph, a route of a workflow."""

    target: str
    when: str
    condition: str | None
    is_fallback: bool


GATE_WAYS: Final = frozenset({"on_approve", "on_revise", "on_kill"})
"""The ways that lead on from a gate of a workflow."""


def ways_from(definition: JsonValue, step_id: str) -> tuple[Way, ...]:
    """Return the ways that lead on from a step. In pipelines, steps name those that they need instead."""
    step = steps_in(definition).get(step_id)
    edges = step.get("edges") if isinstance(step, dict) else None
    found = [_WAY.fullmatch(str(edge)) for edge in edges] if isinstance(edges, list) else []
    return tuple(
        Way(str(literal_eval(way["target"])), way["when"], way["condition"], way["fallback"] is not None)
        for way in found
        if way is not None
    )


def steps_before(definition: JsonValue) -> Mapping[str, Sequence[str]]:
    """Return, for each step, the steps that it needs, and those from which a way leads to it."""
    before = {step_id: [*needs_of(definition, step_id)] for step_id in steps_in(definition)}
    for step_id in before:
        for way in ways_from(definition, step_id):
            before[way.target].append(step_id)
    return before


_TEXT: Final = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_WAY: Final = re.compile(
    rf"(?P<when>\w+)(?: (?P<condition>.*))? to (?P<target>{_TEXT})(?P<fallback> \(fallback\))?", re.DOTALL
)
"""An edge as the definitions of graphs and workflows have it."""


def definition_at(definition: JsonValue, place: str) -> JsonValue:
    """Return the definition of the pipeline around a step; `None` if it is not on record."""
    around = attempt_around(place)
    if around is None:
        return definition
    step = steps_in(definition_at(definition, around)).get(step_name(around))
    return nested_definition(step, place.rpartition("/")[0].removeprefix(f"{around}/"))


def nested_definition(step: JsonValue, pipeline: str) -> JsonValue:
    """Return the definition of a pipeline that a step runs.

    `pipeline` is its name, perhaps after the names of the routers that lead to it.
    """
    found = step.get("runs") if isinstance(step, dict) else None
    for part in pipeline.split("/"):
        found = _named(found, part.partition("#")[0])
    return found


def _named(definition: JsonValue, name: str) -> JsonValue:
    """Return the definition with a quoted name: this one, or one to which its routers lead.

    A pipeline of that name comes before a router of that name.
    """
    routers: list[JsonValue] = []
    waiting = [definition]
    while waiting:
        one = waiting.pop(0)
        routes = one.get("routes") if isinstance(one, dict) else None
        if _quoted_name(one) == name:
            if not isinstance(routes, dict):
                return one
            routers.append(one)
        if isinstance(routes, dict):
            waiting.extend(routes.values())
    return routers[0] if routers else None


def _quoted_name(definition: JsonValue) -> str | None:
    return quoted(str(definition.get("name"))) if isinstance(definition, dict) else None
