"""Changes between two definitions, which are the shapes of pipelines, graphs and routers as plain data.

A change is compatible with a run if it touches only steps and nodes that the run has not reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from pydantic import JsonValue

from fastroai.places import attempt_around, split_attempt, step_name
from fastroai.runtime.fact_base import Fact
from fastroai.runtime.facts import DecidedAfter, StepFailed, StepFinished, StepStarted

_POLICIES: Final = ("entry", "on_branch_failure", "on_conflict", "reducers", "conversation")
_COMPARED: Final = frozenset(
    {"name", "kind", "steps", "routes", "output_step", "terminals", "pause_nodes", "spec", *_POLICIES}
    | {"needs", "on_error", "runs", "reads", "writes", "edges"}
)
_Names: TypeAlias = tuple[str, ...]
"""Names of a step: for each step around it, its id and the name of the part that it runs; then the own id."""


@dataclass(frozen=True, slots=True)
class Change:
    """A difference between two definitions."""

    text: str
    is_reached: bool | None = None
    """Whether the run has reached the step that changed; `None` if the change is about the whole."""

    def __str__(self) -> str:
        if self.is_reached is None:
            return self.text
        return f"{self.text}; the run has {'' if self.is_reached else 'not '}reached it"


@dataclass(slots=True)
class Progress:
    """The progress of a run: the steps and nodes that it has reached, and those that are over."""

    reached: set[_Names] = field(default_factory=set)
    over: set[_Names] = field(default_factory=set)

    @classmethod
    def of(cls, entries: Iterable[Fact]) -> Progress:
        """Read the progress from a log."""
        progress = cls()
        for entry in entries:
            is_over = isinstance(entry, StepFinished | StepFailed | DecidedAfter)
            if is_over or isinstance(entry, StepStarted):
                names = _names(entry.where)
                progress.reached.add(names)
                if is_over:
                    progress.over.add(names)
        return progress


def _names(place: str) -> _Names:
    """Return the names of a place, such as `("write", "one", "check")` for `write@1/desk/one/check`.

    Of several parts between two steps, only the innermost counts.
    """
    names = [step_name(place)]
    around = attempt_around(place)
    while around is not None:
        part = place.rpartition("/")[0]
        place = split_attempt(around)[0]
        names[:0] = [step_name(place), step_name(part)]
        around = attempt_around(place)
    return tuple(names)


def changes(before: JsonValue, now: JsonValue, progress: Progress | None = None) -> tuple[Change, ...]:
    """Return the changes from one definition to the other; none if the shapes are the same.

    A different version is no change.
    """
    return tuple(_Comparison(progress or Progress()).changes(before, now, "", ()))


def shape_of(definition: JsonValue) -> JsonValue:
    """Return the parts of a definition that are compared.

    The version is not among them, nor is what a later FastroAI adds to the definition of the same pipeline.
    """
    if not isinstance(definition, dict):
        return definition
    shape: dict[str, JsonValue] = {}
    for name in _COMPARED & definition.keys():
        part = definition[name]
        if name in ("steps", "routes") and isinstance(part, dict):
            part = {one: shape_of(inner) for one, inner in part.items()}
        shape[name] = shape_of(part) if name == "runs" else part
    return shape


class _Comparison:
    """Compares definitions for a run."""

    def __init__(self, progress: Progress) -> None:
        self._reached, self._over = progress.reached, progress.over

    def changes(self, before: Any, now: Any, where: str, around: _Names) -> Iterator[Change]:
        """Yield the changes of a pipeline, graph or router; `around` is the step that runs it."""
        if not isinstance(before, dict) or not isinstance(now, dict):
            if before != now:
                text = f"{where}it runs {_name(now)} (was {_name(before)})"
                yield Change(text, around in self._reached)
            return
        inside = (*around, str(now.get("name"))) if around else ()
        if before.get("name") != now.get("name"):
            text = f"{where}the name is {now.get('name')!r} (was {before.get('name')!r})"
            yield Change(text, around in self._reached if around else None)
        yield from self._outputs(before.get("output_step"), now.get("output_step"), where, inside)
        for policy in _POLICIES:
            if before.get(policy) != now.get(policy):
                yield Change(f"{where}{policy} is {now.get(policy)!r} (was {before.get(policy)!r})")
        for nodes, known in (("terminals", self._over), ("pause_nodes", self._reached)):
            was, is_now = before.get(nodes) or [], now.get(nodes) or []
            if was != is_now:
                in_order = [node for node in was if node in is_now] == [
                    node for node in is_now if node in was
                ]
                touched = not in_order or any((*inside, node) in known for node in {*was} ^ {*is_now})
                yield Change(f"{where}{nodes} is {is_now!r} (was {was!r})", touched)
        yield from self._steps(before.get("steps") or {}, now.get("steps") or {}, where, inside)
        yield from self._routes(before.get("routes") or {}, now.get("routes") or {}, where, around)

    def _outputs(self, before: Any, now: Any, where: str, inside: _Names) -> Iterator[Change]:
        """Yield a change of the output step. It is reached only if the run has reached both steps.

        So a step may be added or removed at the end, and the output move with it.
        """
        if before != now:
            both = (*inside, before) in self._reached and (*inside, now) in self._reached
            yield Change(f"{where}the output is that of {now!r} (was {before!r})", both)

    def _routes(
        self, before: Mapping[str, Any], now: Mapping[str, Any], where: str, around: _Names
    ) -> Iterator[Change]:
        for name, part in before.items():
            if name not in now:
                taken = (*around, str(part.get("name")) if isinstance(part, dict) else "")
                reached = any(one[: len(taken)] == taken for one in self._reached)
                yield Change(f"{where}route {name!r} was removed", reached)
        for name, part in now.items():
            if name not in before:
                yield Change(f"{where}route {name!r} is new", False)
            else:
                yield from self.changes(before[name], part, f"{where}{name}: ", around)

    def _steps(
        self, before: Mapping[str, Any], now: Mapping[str, Any], where: str, inside: _Names
    ) -> Iterator[Change]:
        for step_id in before:
            if step_id not in now:
                reached = (*inside, step_id) in self._reached
                yield Change(f"{where}step {step_id!r} was removed", reached)
        for step_id, step in now.items():
            if step_id not in before:
                yield Change(f"{where}step {step_id!r} is new", (*inside, step_id) in self._reached)
            else:
                yield from self._step(step_id, before[step_id], step, where, (*inside, step_id))

    def _step(
        self, step_id: str, before: Mapping[str, Any], now: Mapping[str, Any], where: str, names: _Names
    ) -> Iterator[Change]:
        reached, over = names in self._reached, names in self._over
        if sorted(before["needs"]) != sorted(now["needs"]):
            needed = _list(before["needs"])
            yield Change(f"{where}step {step_id!r} needs {_list(now['needs'])} (needed {needed})", reached)
        if before.get("on_error") != now.get("on_error"):
            was = before.get("on_error")
            yield Change(
                f"{where}step {step_id!r} has on_error={now.get('on_error')!r} (had {was!r})", reached
            )
        for what in ("reads", "writes"):
            if before.get(what) != now.get(what):
                was = _list(before.get(what) or ())
                text = f"{where}node {step_id!r} {what} {_list(now.get(what) or ())} (it was {was})"
                yield Change(text, reached)
        edges_before, edges_now = before.get("edges") or (), now.get("edges") or ()
        for edge in edges_before:
            if edge not in edges_now:
                yield Change(f"{where}the edge of {step_id!r}, {edge}, was removed", over)
        for edge in edges_now:
            if edge not in edges_before:
                yield Change(f"{where}the edge of {step_id!r}, {edge}, is new", over)
        if sorted(edges_before) == sorted(edges_now) and edges_before != edges_now:
            yield Change(f"{where}the edges of {step_id!r} have another order", over)
        yield from self.changes(before["runs"], now["runs"], f"{where}{step_id}: ", names)


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "nothing"


def _name(definition: Any) -> str:
    return repr(definition.get("name")) if isinstance(definition, dict) else "no pipeline"
