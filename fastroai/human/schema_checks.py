"""Checks JSON against a JSON Schema, as far as it can be without the code that declares the type.

It knows the keywords that pydantic writes for types, models and limits, and ignores others (formats, such as
dates). The step that asked checks the answer in full, by its type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import JsonValue

_LIMITS: Final[Mapping[str, tuple[str, Callable[[Any, Any], bool]]]] = {
    "minimum": ("at least", lambda value, limit: value >= limit),
    "exclusiveMinimum": ("more than", lambda value, limit: value > limit),
    "maximum": ("at most", lambda value, limit: value <= limit),
    "exclusiveMaximum": ("less than", lambda value, limit: value < limit),
}
_LENGTHS: Final = {
    "string": ("minLength", "maxLength", "characters"),
    "array": ("minItems", "maxItems", "items"),
    "object": ("minProperties", "maxProperties", "fields"),
}


def problems_of(value: JsonValue, schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the problems of a value, each with its place in the value; empty if the value fits."""
    return tuple(_problems(value, schema, "", schema.get("$defs", {})))


def _problems(value: JsonValue, schema: Any, where: str, known: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(schema, dict):
        if schema is False:
            yield f"{where or 'it'} is not expected"
        return
    if isinstance(ref := schema.get("$ref"), str):
        yield from _problems(value, known.get(ref.rpartition("/")[2], True), where, known)
    for part in schema.get("allOf", ()):
        yield from _problems(value, part, where, known)
    if isinstance(tag := schema.get("discriminator"), dict):
        yield from _tagged_problems(value, tag, where, known)
    elif choices := schema.get("anyOf") or schema.get("oneOf"):
        yield from _choice_problems(value, choices, where, known)
    if "const" in schema and not _is_equal(value, schema["const"]):
        yield f"{where or 'it'} is not {schema['const']!r}"
    if "enum" in schema and not any(_is_equal(value, one) for one in schema["enum"]):
        yield f"{where or 'it'} is none of {', '.join(map(repr, schema['enum']))}"
    kind = _kind_of(value)
    expected = schema.get("type")
    wanted = expected if isinstance(expected, list) else [expected]
    if expected is not None and kind not in wanted and not (kind == "integer" and "number" in wanted):
        yield f"{where or 'it'} is of the type {kind}, not {' or '.join(map(str, wanted))}"
        return
    yield from _limit_problems(value, kind, schema, where)
    if isinstance(value, dict):
        yield from _object_problems(value, schema, where, known)
    if isinstance(value, list):
        first = schema.get("prefixItems", ())
        for index, item in enumerate(value):
            of_item = first[index] if index < len(first) else schema.get("items", True)
            yield from _problems(item, of_item, f"{where}[{index}]", known)


def _choice_problems(
    value: JsonValue, choices: Sequence[Any], where: str, known: Mapping[str, Any]
) -> Iterator[str]:
    found = [tuple(_problems(value, one, where, known)) for one in choices]
    if all(found):
        yield " or ".join(dict.fromkeys(problems[0] for problems in found))


def _tagged_problems(
    value: JsonValue, tag: Mapping[str, Any], where: str, known: Mapping[str, Any]
) -> Iterator[str]:
    """Check a union by the field `propertyName`, which tells the type and is needed even with a default."""
    name, mapping = tag["propertyName"], tag["mapping"]
    if not isinstance(value, dict):
        yield f"{where or 'it'} is of the type {_kind_of(value)}, not object"
    elif name not in value:
        yield f"{_inside(where, name)} is missing: {' or '.join(map(repr, mapping))}"
    elif not isinstance(said := value[name], str) or said not in mapping:
        yield f"{_inside(where, name)} is none of {', '.join(map(repr, mapping))}"
    else:
        yield from _problems(value, {"$ref": mapping[said]}, where, known)


def _limit_problems(value: Any, kind: str, schema: Mapping[str, Any], where: str) -> Iterator[str]:
    if kind in ("integer", "number"):
        for keyword, (words, fits) in _LIMITS.items():
            if keyword in schema and not fits(value, schema[keyword]):
                yield f"{where or 'it'} is not {words} {schema[keyword]}"
    if kind in _LENGTHS:
        least, most, what = _LENGTHS[kind]
        if not schema.get(least, 0) <= len(value) <= schema.get(most, len(value)):
            yield f"{where or 'it'} has {len(value)} {what}, which is too few or too many"
    if kind == "string" and "pattern" in schema and re.search(schema["pattern"], value) is None:
        yield f"{where or 'it'} does not match {schema['pattern']!r}"


def _object_problems(
    value: Mapping[str, JsonValue], schema: Mapping[str, Any], where: str, known: Mapping[str, Any]
) -> Iterator[str]:
    fields = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{_inside(where, name)} is missing"
    for name, item in value.items():
        of_item = fields.get(name, schema.get("additionalProperties", True))
        yield from _problems(item, of_item, _inside(where, name), known)


def _inside(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _is_equal(value: JsonValue, other: JsonValue) -> bool:
    """Return whether two values are the same in JSON, where `True` is not `1`."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _kind_of(value: JsonValue) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"
