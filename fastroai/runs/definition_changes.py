"""The shape of a pipeline as plain data, kept with its runs, and what has changed between two of them.

What counts is what decides which steps run after which: ids, edges, the output, and what a failure stops.
Prompts, code, time limits, retries and budgets may change between two parts of a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from fastroai.pipelines.nesting import Executable, NestedStep
from fastroai.steps import BaseStep


def define(
    name: str,
    steps: Mapping[str, BaseStep[Any, Any]],
    dependencies: Mapping[str, Sequence[str]],
    output_step: str,
    on_error: Mapping[str, str],
) -> dict[str, JsonValue]:
    """The shape of a pipeline."""
    return {
        "name": name,
        "steps": {
            step_id: {
                "needs": list(dependencies[step_id]),
                "on_error": on_error[step_id],
                "runs": _nested(step),
            }
            for step_id, step in steps.items()
        },
        "output_step": output_step,
    }


def _nested(step: BaseStep[Any, Any]) -> JsonValue:
    if not isinstance(step, NestedStep):
        return None
    inner: Executable[Any] = step.inner
    return inner.definition


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
    if before["on_error"] != now["on_error"]:
        yield f"{where}step {step_id!r} has on_error={now['on_error']!r} (had {before['on_error']!r})"
    yield from _changes(before["runs"], now["runs"], f"{where}{step_id}: ")


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "nothing"


def _name(definition: Any) -> str:
    return repr(definition.get("name")) if isinstance(definition, dict) else "no pipeline"
