"""Reads pydantic's core schemas: the schemas inside of a schema, each with its place in a value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, TypeAlias

Schema: TypeAlias = Mapping[str, Any]
"""A core schema. The type that pydantic exports for them is a union of fifty TypedDicts."""


class At(Enum):
    """The place of a part in a value, if it has neither a name nor an index."""

    SAME = "the value itself"
    EACH = "each item, or each value of a dict"
    KEYS = "the keys of a dict"


Place: TypeAlias = At | str | int

_FIELDS: Final = frozenset({"model-fields", "typed-dict"})
_NO_PARTS: Final = frozenset({"serialization", "metadata", "config", "definitions", "default", "function"})
_ITEMS: Final = frozenset({"list", "set", "frozenset", "generator"})


def definitions_of(schema: Schema) -> dict[str, Schema]:
    """Return the schemas that a schema refers to, by reference."""
    if schema["type"] != "definitions":
        return {}
    return {one["ref"]: one for one in schema["definitions"]}


def parts_of(schema: Schema) -> Iterator[tuple[Place, Schema]]:
    """Yield the schemas inside of a schema. References are not followed."""
    match schema["type"]:
        case kind if kind in _FIELDS:
            for name, field in schema["fields"].items():
                yield name, field["schema"]
            if "extras_schema" in schema:
                yield At.EACH, schema["extras_schema"]
        case "dataclass-args" | "arguments":
            for field in schema.get("fields") or schema.get("arguments_schema", ()):
                yield field["name"], field["schema"]
        case "named-tuple":
            for index, field in enumerate(schema["fields"]):
                yield index, field["schema"]
        case "tuple":
            variadic = schema.get("variadic_item_index", len(schema["items_schema"]))
            for index, item in enumerate(schema["items_schema"]):
                yield index if index < variadic else At.EACH, item
        case kind if kind in _ITEMS:
            if "items_schema" in schema:
                yield At.EACH, schema["items_schema"]
        case "dict":
            if "keys_schema" in schema:
                yield At.KEYS, schema["keys_schema"]
            if "values_schema" in schema:
                yield At.EACH, schema["values_schema"]
        case "tagged-union":
            for choice in schema["choices"].values():
                yield At.SAME, choice
        case "json-or-python" if schema["json_schema"]["type"] == "any":
            return  # any JSON
        case _:
            yield from ((At.SAME, part) for part in _wrapped(schema))


def all_parts(schema: Schema, definitions: Mapping[str, Schema]) -> Iterator[Schema]:
    """Yield a schema with all that is in it, at any depth. References are followed once."""
    waiting, seen = [schema], set[str]()
    while waiting:
        one = waiting.pop()
        yield one
        waiting.extend(part for _, part in parts_of(one))
        if (ref := one.get("schema_ref")) is not None and ref not in seen:
            seen.add(ref)
            waiting.append(definitions[ref])


def computed_fields(schema: Schema) -> Mapping[str, Schema]:
    """Return the schemas of computed fields of a model or dataclass, by the field's name."""
    return {field["property_name"]: field["return_schema"] for field in schema.get("computed_fields", ())}


def aliases_of(schema: Schema) -> Iterator[tuple[str, str, bool]]:
    """Yield the other names by which fields are read, with the field's name and if it is deeper inside."""
    fields = schema.get("fields", ()) if schema["type"] in (*_FIELDS, "dataclass-args") else ()
    named = fields.items() if isinstance(fields, Mapping) else ((one["name"], one) for one in fields)
    for name, field in named:
        for path in _paths_of(field.get("validation_alias", [])):
            yield str(path[0]), name, len(path) > 1


def _paths_of(alias: str | list[Any]) -> Sequence[Sequence[str | int]]:
    """Return the paths to a field. An alias is a name, one path, or a list of paths."""
    if isinstance(alias, str):
        return [[alias]]
    return alias if alias and isinstance(alias[0], list) else [alias] if alias else []


def unknown_fields_beside(schema: Schema) -> frozenset[str] | None:
    """Return the fields of a model or TypedDict that also takes other fields of any type; else `None`."""
    if (schema.get("config") or {}).get("extra_fields_behavior") != "allow":
        return None
    fields = schema
    while fields["type"] not in _FIELDS:
        if not isinstance(inner := fields.get("schema"), dict):
            return None
        fields = inner
    return None if "extras_schema" in fields else frozenset((*fields["fields"], *computed_fields(fields)))


def _wrapped(schema: Schema) -> Iterator[Schema]:
    """Yield the schemas in one that checks, converts or offers a choice. They are of the same value."""
    for key, inside in schema.items():
        if key in _NO_PARTS:
            continue
        for one in inside if isinstance(inside, list) else [inside]:
            part = one[0] if isinstance(one, tuple) and one else one  # a choice with a label
            if isinstance(part, dict) and isinstance(part.get("type"), str):
                yield part
