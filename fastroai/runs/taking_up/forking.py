"""The facts that a fork keeps of the other run: those before a point."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from pydantic import JsonValue

from fastroai.errors import ConfigurationError, nearest_hint
from fastroai.places import attempt_around, outwards, quoted, split_attempt, step_name, without_attempts
from fastroai.runs.running.machine import Unit, unit_of
from fastroai.runtime.fact_base import Fact, PlanFact
from fastroai.runtime.facts import (
    OnceDone,
    OnceFailed,
    OnceStarted,
    RunResumed,
    SpendingRecorded,
    StepFinished,
    StepRetried,
    StepStarted,
)
from fastroai.store.record.definitions import definition_at, kind_of, needs_of, steps_in
from fastroai.store.record.memo import Memo


def check_step(option: str, step_id: str, definition: JsonValue) -> None:
    """Check that a step or node has this id. Raises `ConfigurationError`."""
    if step_id not in (known := steps_in(definition)):
        kind, step = ("graph", "node") if kind_of(definition) == "graph" else ("pipeline", "step")
        expected = f"the id of a {step} of this {kind}: {', '.join(map(repr, known))}."
        raise ConfigurationError(option, step_id, f"{expected}{nearest_hint(str(step_id), known)}")


# --- pipelines: the outputs of steps that do not run again ---


def kept_by_pipeline(
    recorded: Memo, definition: JsonValue, at: str | None, replaced: Mapping[str, StepFinished]
) -> list[Fact]:
    """Return the outputs that a fork keeps: those of steps that do not run again, and the `replaced` ones.

    `replaced` has them by the places of their steps. `at` is a step, or the place of a step inside of steps
    that run pipelines and routers. Those outer steps go on where they were: their attempts, and their side
    effects of `ctx.once`, are kept, too.

    Raises:
        ConfigurationError: there is no such step, it is in a graph, or the run has not come to that place.
    """
    if at is None and not replaced:
        raise ConfigurationError("at", at, "the step from which the new run differs, or outputs=")
    new = {step_name(place) for place in replaced}
    if at is None:
        again = _after("", definition, new, new) | replaced.keys()
        return [*_kept(recorded, definition, again, set()), *replaced.values()]
    place = _place(recorded, definition, at)
    again, around = set[str](), set[str]()
    inner: str | None = place
    while inner is not None:
        part, step_id = inner.rpartition("/")[0], step_name(inner)
        shape, other = definition_at(definition, inner), set[str]() if part else new
        if kind_of(shape) == "graph":
            raise ConfigurationError("at", at, "a step that is in no graph, or the step that runs the graph")
        again |= _after(f"{part}/" if part else "", shape, {step_id, *other}, other)
        if inner == place:
            again.add(place)
        else:
            around.add(inner)
        outer = attempt_around(inner)
        inner = None if outer is None else split_attempt(outer)[0]
    return [*_kept(recorded, definition, again | replaced.keys(), around), *replaced.values()]


def _place(recorded: Memo, definition: JsonValue, at: str) -> str:
    """Return the place of a step, as it is on record."""
    if "/" not in at or at in steps_in(definition):
        check_step("at", at, definition)
        return quoted(at)
    started = (entry.place for entry in recorded.entries if isinstance(entry, StepStarted))
    places = {without_attempts(place): place for place in started}
    place = places.get(without_attempts(at))
    if place is None:
        known = [name for name, one in places.items() if kind_of(definition_at(definition, one)) != "graph"]
        expected = f"the path of a step that the run has reached: {', '.join(map(repr, known)) or 'none'}."
        raise ConfigurationError("at", at, f"{expected}{nearest_hint(at, known)}")
    return place


def _after(prefix: str, definition: JsonValue, of: Collection[str], kept: Collection[str]) -> set[str]:
    """Return the places of all steps that need the steps `of`, directly or not, except the steps `kept`."""
    dependents: dict[str, list[str]] = {}
    for step_id in steps_in(definition):
        for need in needs_of(definition, step_id):
            dependents.setdefault(need, []).append(step_id)
    waiting, again = [*of], set[str]()
    while waiting:
        for after in dependents.get(waiting.pop(), ()):
            if after not in again and after not in kept:
                again.add(after)
                waiting.append(after)
    return {f"{prefix}{quoted(step_id)}" for step_id in again}


def _kept(
    recorded: Memo, definition: JsonValue, again: Collection[str], around: Collection[str]
) -> Iterator[Fact]:
    """Yield outputs of places that do not run `again`, and facts of the places `around`, which go on."""
    known, going_on = {quoted(step_id) for step_id in steps_in(definition)}, {*map(without_attempts, around)}
    finished = [one for one in recorded.entries if isinstance(one, StepFinished)]
    conversations = {one.place: one for one in finished if one.conversation is not None}
    for place, entry in {**conversations, **recorded.outputs}.items():
        top = split_attempt(place.partition("/")[0])[0]
        if top in known and place not in around and not any(outer in again for outer in outwards(place)):
            yield entry
    for one in recorded.entries:
        if isinstance(one, StepRetried | OnceStarted | OnceDone | OnceFailed) and (
            one.place in around or one.place in going_on
        ):
            yield one


# --- graphs: the path up to a visit ---


def kept_by_graph(
    recorded: Memo, definition: JsonValue, at: str | None, replaced: Mapping[str, StepFinished]
) -> list[Fact]:
    """Return the facts that decided how the run went on, before a visit began or up to the output of one.

    Raises:
        ConfigurationError: there is no such visit.
    """
    if len(replaced) > 1:
        expected = "the output of one node, after which the new run goes on"
        raise ConfigurationError("outputs", [*replaced], expected)
    if (at is None) == (not replaced):
        expected = "the step before which the new run differs; or outputs= with the output of one step"
        raise ConfigurationError("at", at, expected)
    if at is not None:
        cut = _position(recorded, definition, "at", at, StepStarted)
        return _path(recorded, cut)
    ((name, output),) = replaced.items()
    cut = _position(recorded, definition, "outputs", name, StepFinished)
    before = recorded.entries[cut]
    assert isinstance(before, StepFinished)
    kept = replace(before, output=output.output, conversation=output.conversation)
    return [*_path(recorded, cut), kept]


def _path(recorded: Memo, cut: int) -> list[Fact]:
    """Return the facts that decided the way up to a position, without costs, which the other run has paid."""
    taken = (one for one in recorded.entries[1:cut] if isinstance(one, PlanFact | RunResumed))
    return [one for one in taken if not isinstance(one, SpendingRecorded)]


def _position(
    recorded: Memo,
    definition: JsonValue,
    option: str,
    visit: str,
    what: type[StepStarted] | type[StepFinished],
) -> int:
    """Return the index of the entry that a visit has begun or finished: `draft#2`, or the last to `draft`."""
    wanted = unit_named(visit, definition)
    found: dict[Unit, int] = {}
    for index, entry in enumerate(recorded.entries):
        if isinstance(entry, what) and not entry.part.place:
            unit = unit_of(entry)
            if what is StepFinished or unit not in found:  # a visit that was interrupted begins again
                found[unit] = index
    known = [unit for unit in found if unit == wanted or (wanted[1] == 0 and unit[0] == wanted[0])]
    if not known:
        check_step(option, wanted[0], definition)
        path = ", ".join(f"{node}#{number}" for node, number in found) or "nothing"
        verb = "has come to" if what is StepStarted else "has an output of"
        raise ConfigurationError(option, visit, f"a step of the run, which {verb} {path}")
    return found[max(known, key=lambda unit: unit[1])]


def unit_named(visit: str, definition: JsonValue) -> Unit:
    """Return a visit as a node and a number; the number 0 means the last visit."""
    node, mark, number = visit.rpartition("#")
    if visit not in steps_in(definition) and mark and number.isdecimal():
        return node, int(number)
    return visit, 0
