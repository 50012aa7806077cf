"""References to values of other parts of a flow: `$.input.x` and `$.steps.id.output.field`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from fastroai.documents.parts import shown
from fastroai.documents.yaml_text import Way
from fastroai.workflows.spec.document import FieldSpec, FieldType, Reference
from fastroai.workflows.spec.problems import Problems, cut, listed

ID: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
"""The form of names of contracts, functions, flows and steps."""
_PART: Final = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\[([0-9]{1,9})\]")
_FORMS: Final = "$.input.name or $.steps.id.output, with fields after it"
_PARTS_OF: Final[Mapping[FieldType, tuple[type, str]]] = {
    "object": (str, "fields, as in .name"),
    "array": (int, "items, as in [0]"),
}
"""The parts of values that have any: the type of their keys, and what they are for people."""
_NESTED: Final = re.compile(r"\$\.(input|steps)\b")


@dataclass(frozen=True, slots=True)
class Known:
    """The fields that a value is known to have. It may have other fields too, unless it is `closed`."""

    fields: Mapping[str, FieldSpec | None]
    """Fields by name; `None` if only the name is known."""
    closed: bool = True


@dataclass(frozen=True, slots=True)
class Sources:
    """The inputs and outputs that a part of a flow can refer to."""

    inputs: Mapping[str, FieldSpec]
    outputs: Mapping[str, Known]
    """Known fields of outputs, by step."""
    gates: frozenset[str] = frozenset()
    """The steps that are gates, which have no output."""

    def field(self, reference: Reference, way: Way, problems: Problems) -> FieldSpec | None:
        """Return the field that a reference reads, if it is known. Note names that do not exist."""
        return self.at(reference.step_id, reference.path, way, problems, cut(reference.text))

    def declares(self, reference: Reference) -> bool:
        """Return whether the first field that a reference reads is declared."""
        if reference.step_id is None:
            return True
        known = self.outputs.get(reference.step_id)
        return known is not None and reference.path[:1] != () and reference.path[0] in known.fields

    def at(
        self, step: str | None, path: Way, way: Way, problems: Problems, text: str, offset: int = 0
    ) -> FieldSpec | None:
        """Return the field that a path reads in an input (step `None`) or an output, as `field` does."""
        if step is None:
            return field_at(Known(self.inputs), path, "input", way, problems, text, offset)
        if step not in self.outputs:
            message = f"{text}: step {cut(step)!r} does not exist; known: {listed(self.outputs)}."
            problems.add(message, way, name=step, allowed=self.outputs, offset=offset)
            return None
        if step in self.gates:
            message = f"{text}: step {cut(step)!r} is a gate, which has no output; to run after it, name it "
            problems.add(f"{message}in depends_on", way, offset=offset)
            return None
        return field_at(self.outputs[step], path, "field", way, problems, text, offset)


def field_at(
    known: Known, path: Way, what: str, way: Way, problems: Problems, text: str, offset: int = 0
) -> FieldSpec | None:
    """Return the field at a path, if it is known. Note a name that does not exist."""
    if not path or (not known.closed and path[0] not in known.fields):
        return None
    name = path[0]
    if name not in known.fields:
        there = f"known: {listed(known.fields)}." if known.fields else "there is none."
        message = f"{text}: {what} {cut(str(name))!r} does not exist; {there}"
        problems.add(message, way, name=str(name), allowed=known.fields, offset=offset)
        return None
    field = known.fields[str(name)]
    if len(path) == 1 or field is None:
        return field if len(path) == 1 else None
    parts = _PARTS_OF.get(field.type)
    if parts is None:
        message = f"{text}: {cut(str(name))!r} is of type {field.type}, which has no parts"
        problems.add(message, way, offset=offset)
    elif not isinstance(path[1], parts[0]):
        message = f"{text}: {cut(str(name))!r} is of type {field.type}, whose parts are {parts[1]}"
        problems.add(message, way, offset=offset)
    return None


def read_bindings(
    inputs: Mapping[str, JsonValue] | None, way: Way, problems: Problems
) -> dict[str, Reference | JsonValue]:
    """Return the inputs of a step: references and literals, without invalid references."""
    bindings: dict[str, Reference | JsonValue] = {}
    for name, value in (inputs or {}).items():
        if isinstance(value, str) and is_reference(value):
            reference = read_reference(value, (*way, name), problems)
            if reference is not None:
                bindings[name] = reference
        else:
            bindings[name] = value
            _check_literal(value, (*way, name), problems)
    return bindings


def _check_literal(value: JsonValue, way: Way, problems: Problems) -> None:
    for inner, text in _texts(value, way):
        if _NESTED.match(text):
            where = shown(inner[len(way) - 1 :])
            message = (
                f"{where} is a reference inside a value; a reference must be the whole value of an input"
            )
            problems.add(message, inner)


def _texts(value: JsonValue, way: Way) -> list[tuple[Way, str]]:
    """Return the texts in a literal, with their places. The literal is at most as deep as a spec can be."""
    if isinstance(value, dict):
        return [found for key, inner in value.items() for found in _texts(inner, (*way, key))]
    if isinstance(value, list):
        return [found for index, inner in enumerate(value) for found in _texts(inner, (*way, index))]
    return [(way, value)] if isinstance(value, str) else []


def is_reference(text: str) -> bool:
    """Return whether a text is meant as a reference, well formed or not."""
    return text.startswith("$.")


def read_reference(text: str, way: Way, problems: Problems) -> Reference | None:
    """Parse a reference. If it is not well formed, note a problem and return `None`."""
    path = _path(text)
    if path is not None:
        match path:
            case ["input", str(), *_]:
                return Reference(text=text, step_id=None, path=tuple(path[1:]))
            case ["steps", str() as step, "output", *rest]:
                return Reference(text=text, step_id=step, path=tuple(rest))
            case _:
                pass
    problems.add(f"{way[-1]} is {cut(text)!r}, which is no reference; expected {_FORMS}", way)
    return None


def _path(text: str) -> list[str | int] | None:
    path: list[str | int] = []
    position = 1
    while position < len(text):
        found = _PART.match(text, position)
        if found is None:
            return None
        path.append(found[1] if found[1] is not None else int(found[2]))
        position = found.end()
    return path
