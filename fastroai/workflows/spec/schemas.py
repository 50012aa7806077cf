"""JSON Schemas of a spec: those that steps declare, and those that are made of its contracts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from pydantic import JsonValue

from fastroai.documents.yaml_text import Way
from fastroai.errors import MissingExtraError
from fastroai.workflows.spec.document import ACCUMULATED_FIELDS, ContractSpec, FieldSpec
from fastroai.workflows.spec.fields import FIELD_TYPES
from fastroai.workflows.spec.limits import MAX_SCHEMA_VALUES, MAX_VIOLATIONS
from fastroai.workflows.spec.order import ordered
from fastroai.workflows.spec.problems import Problems, cut
from fastroai.workflows.spec.references import Known

if TYPE_CHECKING:
    import jsonschema_rs

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
"""The version of JSON Schema that holds if a schema names none."""
_DIALECTS: Final = (
    DIALECT,
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema",
)
_TYPES: Final = (*FIELD_TYPES, "null")
_LOCAL: Final = re.compile(r"#(/[^%]*)?")
"""Matches a reference to a part of the same schema."""
_DEFINITIONS: Final = ("$defs", "definitions")
_SCHEMAS_BY_NAME: Final = ("properties", "patternProperties", "dependentSchemas")
_PLAIN_DATA: Final = ("const", "enum", "default", "examples")
_FOREIGN: Final = ("$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor", "$recursiveAnchor")
_MOST_PATTERN_BYTES: Final = 1_000_000
"""Maximum number of bytes that a compiled pattern may take in memory."""


def fields_schema(fields: Mapping[str, FieldSpec]) -> dict[str, JsonValue]:
    """Return the JSON Schema of an object with these fields.

    Other fields are allowed, too. A field that is not required may be missing, or null.
    """
    required: list[JsonValue] = [name for name, field in fields.items() if field.required]
    properties: dict[str, JsonValue] = {name: _field_schema(field) for name, field in fields.items()}
    return {"type": "object", "properties": properties, "required": required}


def contract_schema(contract: ContractSpec) -> dict[str, JsonValue]:
    """Return the JSON Schema of a contract, with its name as the title."""
    return {"title": contract.name, **fields_schema(contract.fields)}


def _field_schema(field: FieldSpec) -> dict[str, JsonValue]:
    schema: dict[str, JsonValue] = {"type": field.type if field.required else [field.type, "null"]}
    if field.values is not None:
        schema["enum"] = [*field.values] if field.required else [*field.values, None]
    if field.description:
        schema["description"] = field.description
    if field.has_default:
        schema["default"] = field.default
    return schema


def gathered_schema(schema: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a schema that also allows the fields that a loop adds to the result."""
    declared = schema.get("properties")
    added = {name: _field_schema(field) for name, field in ACCUMULATED_FIELDS.items()}
    return {**schema, "properties": {**added, **(declared if isinstance(declared, dict) else {})}}


def compiled(schema: Mapping[str, JsonValue]) -> jsonschema_rs.Validator:
    """Return a validator for a schema. It fetches nothing, and its patterns take linear time.

    Raises:
        MissingExtraError: jsonschema-rs is not installed (the extra `workflows`).
        jsonschema_rs.ValidationError: The mapping is not a JSON Schema.
    """
    library = _library()
    patterns = library.RegexOptions(size_limit=_MOST_PATTERN_BYTES, dfa_size_limit=_MOST_PATTERN_BYTES)
    validator: jsonschema_rs.Validator = library.validator_for(
        dict(schema), pattern_options=patterns, offline=True
    )
    return validator


def _library() -> Any:
    try:
        import jsonschema_rs
    except ImportError as error:
        raise MissingExtraError("output_schema", "workflows", "jsonschema-rs") from error
    return jsonschema_rs


def read_schema(schema: Mapping[str, JsonValue], way: Way, problems: Problems) -> None:
    """Note every problem that keeps a mapping from being a JSON Schema that takes a bounded time."""
    wrong = [*_wrong(schema), *_unbounded(schema)]
    for where, message in wrong:
        problems.add(f"output_schema: {message}", (*way, *where))
    if not wrong:
        library = _library()
        try:
            compiled(schema)
        except library.ValidationError as error:
            where = tuple(error.instance_path)
            problems.add(f"output_schema: {_short(error.message)}{_remedy(where)}", (*way, *where))


def _wrong(schema: Mapping[str, JsonValue]) -> Iterator[tuple[Way, str]]:
    """Yield the problems of a schema that the meta-schema finds."""
    said = schema.get("$schema", DIALECT)
    if not isinstance(said, str) or said.removesuffix("#") not in _DIALECTS:
        yield ("$schema",), f"$schema is {cut(str(said))!r}; expected {DIALECT}"
        return
    for error in islice(_meta(said).iter_errors(schema), MAX_VIOLATIONS):
        where = tuple(error.instance_path)
        if where[-1:] == ("type",):
            expected = f"expected one of {', '.join(_TYPES)}, or a list of them"
            yield where, f"type is {_short(repr(error.instance))}; {expected}"
        else:
            yield where, f"{_short(error.message)}{_remedy(where)}"


@lru_cache(maxsize=8)
def _meta(dialect: str) -> jsonschema_rs.Validator:
    """Return the validator for schemas themselves: the meta-schema."""
    return compiled({"$schema": dialect, "$ref": dialect})


def _unbounded(schema: Mapping[str, JsonValue]) -> Iterator[tuple[Way, str]]:
    """Yield references that lead in circles or elsewhere, or that make a short schema a huge one."""
    refs: dict[str, list[str]] = {}
    own: dict[str, int] = {}
    at: dict[str, Way] = {}
    waiting = ["#"]
    for target in waiting:
        part = _target(schema, target)
        own[target], found, foreign = _weighed(part)
        base = _pointer(target)
        for way, keyword in foreign:
            message = f"{keyword} is not supported; refer to the $defs of the schema, as in '#/$defs/name'"
            yield (*base, *way), message
        refs[target] = []
        for way, to in found:
            if _target(schema, to) is None:
                yield (*base, *way), f"$ref {cut(to)!r} leads nowhere{_remedy(('$ref',))}"
                continue
            refs[target].append(to)
            if to not in at:
                at[to] = (*base, *way)
                if to != "#":
                    waiting.append(to)
    order, circles = ordered(waiting, refs)
    for circle in circles:
        yield at[circle[0]], f"$ref {cut(circle[0])!r} leads in a circle; a schema may not be recursive"
    weights: dict[str, int] = {}
    for target in order:
        weights[target] = own[target] + sum(weights[to] for to in refs[target])
    if weights.get("#", 0) > MAX_SCHEMA_VALUES:
        yield (), f"it has more than {MAX_SCHEMA_VALUES:,} values when its references are written out"


def _pointer(ref: str) -> Way:
    keys = ref.removeprefix("#").split("/")[1:]
    return tuple(key.replace("~1", "/").replace("~0", "~") for key in keys)


def _target(schema: Mapping[str, JsonValue], ref: str) -> JsonValue:
    """Return the part of a schema that a reference names; `None` if there is none."""
    at: JsonValue = dict(schema)
    for key in _pointer(ref):
        if isinstance(at, dict):
            at = at.get(str(key))
        elif isinstance(at, list) and str(key).isdecimal() and int(key) < len(at):
            at = at[int(key)]
        else:
            return None
    return at if isinstance(at, dict | bool) else None


def _weighed(schema: JsonValue) -> tuple[int, list[tuple[Way, str]], list[tuple[Way, str]]]:
    """Return how many values a schema has without its definitions, its references, and other references."""
    weight = 0
    refs: list[tuple[Way, str]] = []
    foreign: list[tuple[Way, str]] = []
    waiting: list[tuple[Way, JsonValue, bool]] = [((), schema, True)]
    while waiting:
        way, value, is_schema = waiting.pop()
        weight += 1
        if isinstance(value, list):
            waiting.extend(((*way, index), one, is_schema) for index, one in enumerate(value))
        if not isinstance(value, dict):
            continue
        for key, inner in value.items():
            if is_schema and key in _DEFINITIONS:
                continue
            if is_schema and key == "$ref" and isinstance(inner, str) and _LOCAL.fullmatch(inner):
                refs.append(((*way, key), inner))
            elif is_schema and (key in _FOREIGN or key == "$ref" or (key == "$id" and way)):
                foreign.append(((*way, key), key if key != "$ref" else f"$ref {cut(str(inner))!r}"))
            if is_schema and key in _SCHEMAS_BY_NAME and isinstance(inner, dict):
                weight += 1
                waiting.extend(((*way, key, name), one, True) for name, one in inner.items())
            else:
                waiting.append(((*way, key), inner, is_schema and key not in _PLAIN_DATA))
    return weight, refs, foreign


def _remedy(where: Way) -> str:
    if where[-1] == "pattern" or "patternProperties" in where[-2:]:
        return "; patterns have no look-around and no back-references, and a limited size"
    if where[-1] == "$ref":
        return "; nothing is fetched: refer to the $defs of the schema"
    return ""


def _short(message: str) -> str:
    return message if len(message) <= 300 else f"{message[:300]}…"


def known_fields(contract: ContractSpec | None, schema: Mapping[str, JsonValue] | None) -> Known:
    """Return the fields that results of a step are known to have, by its contract and its schema."""
    fields: dict[str, FieldSpec | None] = {}
    properties = (schema or {}).get("properties")
    if isinstance(properties, dict):
        for name, said in properties.items():
            kind = said.get("type") if isinstance(said, dict) else None
            fields[name] = next((FieldSpec(type=one) for one in FIELD_TYPES if one == kind), None)
    if contract is not None:
        fields |= contract.fields
    closed = contract is not None or (schema or {}).get("additionalProperties") is False
    return Known(fields, closed)
