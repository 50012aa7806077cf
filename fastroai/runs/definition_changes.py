"""What has changed between two definitions, which are the shapes of what is run, as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import JsonValue

_POLICIES: Final = (
    "entry",
    "terminals",
    "pause_nodes",
    "on_branch_failure",
    "on_conflict",
    "reducers",
    "conversation",
)


def changes(before: JsonValue, now: JsonValue, where: str = "") -> tuple[str, ...]:
    """What is different now, a line each; nothing where the shapes are the same."""
    return tuple(_changes(before, now, where))


def _changes(before: Any, now: Any, where: str) -> Iterator[str]:
    if not isinstance(before, dict) or not isinstance(now, dict):
        if before != now:
            yield f"{where}it runs {_name(now)} (was {_name(before)})"
        return
    if before.get("name") != now.get("name"):
        yield f"{where}the name is {now.get('name')!r} (was {before.get('name')!r})"
    if before.get("output_step") != now.get("output_step"):
        yield f"{where}the output is that of {now.get('output_step')!r} (was {before.get('output_step')!r})"
    for policy in _POLICIES:
        if before.get(policy) != now.get(policy):
            yield f"{where}{policy} is {now.get(policy)!r} (was {before.get(policy)!r})"
    for kind in ("steps", "routes"):
        yield from _part_changes(before.get(kind) or {}, now.get(kind) or {}, kind[:-1], where)


def _part_changes(before: Mapping[str, Any], now: Mapping[str, Any], kind: str, where: str) -> Iterator[str]:
    for name in before:
        if name not in now:
            yield f"{where}{kind} {name!r} was removed"
    for name, part in now.items():
        if name not in before:
            yield f"{where}{kind} {name!r} is new"
        elif kind == "route":
            yield from _changes(before[name], part, f"{where}{name}: ")
        else:
            yield from _step_changes(name, before[name], part, where)


def _step_changes(
    step_id: str, before: Mapping[str, Any], now: Mapping[str, Any], where: str
) -> Iterator[str]:
    if sorted(before["needs"]) != sorted(now["needs"]):
        yield f"{where}step {step_id!r} needs {_list(now['needs'])} (needed {_list(before['needs'])})"
    if before.get("on_error") != now.get("on_error"):
        yield f"{where}step {step_id!r} has on_error={now.get('on_error')!r} (had {before.get('on_error')!r})"
    for names in ("reads", "writes"):
        if before.get(names) != now.get(names):
            was = _list(before.get(names) or ())
            yield f"{where}node {step_id!r} {names} {_list(now.get(names) or ())} (it was {was})"
    edges_before, edges_now = before.get("edges") or (), now.get("edges") or ()
    for edge in edges_before:
        if edge not in edges_now:
            yield f"{where}the edge of {step_id!r}, {edge}, was removed"
    for edge in edges_now:
        if edge not in edges_before:
            yield f"{where}the edge of {step_id!r}, {edge}, is new"
    if sorted(edges_before) == sorted(edges_now) and edges_before != edges_now:
        yield f"{where}the edges of {step_id!r} have another order"
    yield from _changes(before["runs"], now["runs"], f"{where}{step_id}: ")


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "nothing"


def _name(definition: Any) -> str:
    return repr(definition.get("name")) if isinstance(definition, dict) else "no pipeline"
