"""The shape of a pipeline as it is on record: `{"name", "steps": {id: {"needs", "runs", …}}, …}`."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from fastroai.store.places import attempt_around, quoted, step_name


def steps_in(definition: JsonValue) -> Mapping[str, JsonValue]:
    """The steps of a definition, by id."""
    steps = definition.get("steps") if isinstance(definition, dict) else None
    return steps if isinstance(steps, dict) else {}


def needs_of(definition: JsonValue, step_id: str) -> tuple[str, ...]:
    """The direct dependencies of a step."""
    step = steps_in(definition).get(step_id)
    needs = step.get("needs") if isinstance(step, dict) else None
    return tuple(map(str, needs)) if isinstance(needs, list) else ()


def definition_at(definition: JsonValue, place: str) -> JsonValue:
    """The definition of the pipeline that a step is in; `None` where it is not on record."""
    around = attempt_around(place)
    if around is None:
        return definition
    step = steps_in(definition_at(definition, around)).get(step_name(around))
    return nested_definition(step, place.rpartition("/")[0].removeprefix(f"{around}/"))


def nested_definition(step: JsonValue, pipeline: str) -> JsonValue:
    """The definition of a pipeline that a step runs: `pipeline` is its name, after that of its router."""
    found = step.get("runs") if isinstance(step, dict) else None
    names = [part.partition("#")[0] for part in pipeline.split("/")]
    if _quoted_name(found) != names[0]:
        return None
    for name in names[1:]:
        routes = found.get("routes") if isinstance(found, dict) else None
        choices = routes.values() if isinstance(routes, dict) else ()
        found = next((route for route in choices if _quoted_name(route) == name), None)
    return found


def _quoted_name(definition: JsonValue) -> str | None:
    return quoted(str(definition.get("name"))) if isinstance(definition, dict) else None
