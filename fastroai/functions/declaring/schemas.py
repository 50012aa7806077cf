"""JSON Schemas of contracts, their hashes, and the reasons why a type has none."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import ConfigDict, JsonValue, PydanticInvalidForJsonSchema, PydanticUserError, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import PydanticOmit, core_schema

from fastroai.contracts.annotations import Annotation
from fastroai.functions.declaring.core_schemas import At, Place, Schema, definitions_of, parts_of
from fastroai.functions.errors import CompileError
from fastroai.store.record.declarations import with_sorted_defaults

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

BYTES_AS_BASE64: Final = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

_HASH_DIGITS: Final = 12


def adapter_for(annotation: Annotation) -> TypeAdapter[Any]:
    """Return an adapter that checks values of a type, and makes JSON of them, with bytes as base64.

    Raises:
        pydantic.errors.PydanticUserError: pydantic has no way to check the type.
    """
    try:
        return TypeAdapter(annotation, config=BYTES_AS_BASE64)
    except PydanticUserError as error:
        if error.code != "type-adapter-config-unused":
            raise
        return TypeAdapter(annotation)  # a model, dataclass or TypedDict has a config of its own


def schema_of(annotation: Annotation) -> dict[str, JsonValue]:
    """Return the JSON Schema (draft 2020-12) of a contract, or of any type that contracts can contain.

    It describes the answers that a model gives: `required` are the fields without a default.

        schema_of(Sentiment)["properties"]

    Raises:
        CompileError: the type, or a part of it, has no JSON Schema, or accepts anything: `Any`, `object`, a
            `list` or `dict` without element types. For any JSON, write `pydantic.JsonValue`.
    """
    try:
        adapter = adapter_for(annotation)
    except PydanticUserError as error:
        raise CompileError(_title(annotation), (said_by(error),)) from error
    problems = tuple(problems_of(adapter.core_schema))
    if problems:
        raise CompileError(_title(annotation), problems)
    return {"$schema": DIALECT, **adapter.json_schema(schema_generator=_Generator)}


def hash_of(annotation: Annotation) -> str:
    """Return 12 hex digits that change with every field, type, limit and description of a contract.

    They are a hash of the JSON Schema in canonical form, so neither the process nor the order of fields
    matters. Any type for which `schema_of` has a JSON Schema can be given.

    Raises:
        CompileError: the type, or a part of it, has no JSON Schema, or accepts anything.
    """
    return digest(_canonical(with_sorted_defaults(schema_of(annotation))))


def digest(value: JsonValue) -> str:
    """Return a hash of a value, 12 hex digits. The order of keys does not matter."""
    return hashlib.sha256(canonical_text(value)).hexdigest()[:_HASH_DIGITS]


def digest_of_texts(one: str, other: str) -> str:
    """Return a hash of two texts, 12 hex digits. Their order matters."""
    both = f"{len(one)}:{one}{other}".encode(errors="surrogatepass")
    # Python's own BLAKE2: OpenSSL, where SHA-256 comes from, takes longer to begin than to hash a prompt.
    return hashlib.blake2b(both, digest_size=_HASH_DIGITS // 2).hexdigest()


_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def canonical_text(value: JsonValue) -> bytes:
    """Return the canonical JSON of a value: the order of keys does not matter."""
    return _CANONICAL.encode(value).encode()


def problems_of(schema: Schema, name: str = "") -> Iterator[str]:
    """Yield the parts of a type that have no JSON Schema, with the reasons.

    `name` is the name of the value, if it has one.
    """
    for path, reason in _unsupported(schema, definitions_of(schema), name, frozenset()):
        yield f"{path}: {reason}" if path else reason


def circles_of(schema: Schema, name: str = "") -> Iterator[str]:
    """Yield the parts of a type that refer back to a type around them."""
    for path in _circles(schema, definitions_of(schema), name, frozenset()):
        yield f"{path}: it refers back to a type around it, and a contract must not be circular"


def said_by(error: Exception) -> str:
    """Return the first sentence of an error of pydantic."""
    return str(error).partition("\n")[0].partition(". Set ")[0]


class _Generator(GenerateJsonSchema):
    """Makes JSON Schemas, and refuses types that accept anything."""

    ignored_warning_kinds = frozenset({"skipped-choice", "non-serializable-default"})  # type: ignore[assignment]

    def any_schema(self, schema: core_schema.AnySchema) -> JsonSchemaValue:
        raise PydanticInvalidForJsonSchema(
            "it accepts anything (Any, object, or a list or dict without element types); name a type, "
            "or pydantic.JsonValue for any JSON"
        )

    def is_subclass_schema(self, schema: core_schema.IsSubclassSchema) -> JsonSchemaValue:
        raise PydanticInvalidForJsonSchema("a class has no JSON Schema")

    def callable_schema(self, schema: core_schema.CallableSchema) -> JsonSchemaValue:
        raise PydanticInvalidForJsonSchema("a function has no JSON Schema")

    def is_instance_schema(self, schema: core_schema.IsInstanceSchema) -> JsonSchemaValue:
        raise PydanticInvalidForJsonSchema(f"{schema['cls'].__name__} has no JSON Schema in pydantic")

    def generator_schema(self, schema: core_schema.GeneratorSchema) -> JsonSchemaValue:
        raise PydanticInvalidForJsonSchema("it can be read only once; write list[...]")

    def json_or_python_schema(self, schema: core_schema.JsonOrPythonSchema) -> JsonSchemaValue:
        inner = schema["json_schema"]
        return {} if inner["type"] == "any" else self.generate_inner(inner)  # pydantic.JsonValue


def _unsupported(
    schema: Schema, definitions: Mapping[str, Schema], path: str, around: frozenset[str]
) -> Iterator[tuple[str, str]]:
    """Yield the innermost places without a JSON Schema, each with the reason."""
    reason = _why_unsupported(schema, definitions)
    if reason is None:
        return
    deeper: dict[str, str] = {}
    for place, part, inside in _parts(schema, definitions, around):
        for where, why in _unsupported(part, definitions, _joined(path, place), inside):
            deeper.setdefault(where, why)
    yield from deeper.items() or [(path, reason)]


def _why_unsupported(schema: Schema, definitions: Mapping[str, Schema]) -> str | None:
    whole: Any = schema
    if schema["type"] != "definitions":
        every: Any = list(definitions.values())
        whole = core_schema.definitions_schema(whole, every)
    try:
        _Generator().generate(whole, mode="validation")
    except PydanticInvalidForJsonSchema as error:
        return error.message
    except PydanticOmit:
        return "it has no JSON Schema"
    except PydanticUserError as error:
        return said_by(error)
    return None


def _circles(
    schema: Schema, definitions: Mapping[str, Schema], path: str, around: frozenset[str]
) -> Iterator[str]:
    for place, part, inside in _parts(schema, definitions, around):
        if part.get("schema_ref") in inside:
            yield _joined(path, place)
        else:
            yield from _circles(part, definitions, _joined(path, place), inside)


def _parts(
    schema: Schema, definitions: Mapping[str, Schema], around: frozenset[str]
) -> Iterator[tuple[Place, Schema, frozenset[str]]]:
    """Yield the parts of a schema, with the definitions around each. References are followed once."""
    ref = schema.get("schema_ref")
    if ref is not None:
        if ref not in around:
            yield At.SAME, definitions[ref], around | {ref}
    elif schema["type"] == "definitions":
        yield At.SAME, schema["schema"], around
    else:
        yield from ((place, part, around) for place, part in parts_of(schema))


def _joined(path: str, place: Place) -> str:
    match place:
        case At.SAME:
            return path
        case At.KEYS | At.EACH:
            return f"{path}[...]"
        case int():
            return f"{path}[{place}]"
        case str():
            return f"{path}.{place}" if path else place


def _canonical(schema: JsonValue) -> JsonValue:
    """Return a schema with its lists of required fields sorted, because their order means nothing."""
    if isinstance(schema, list):
        return [_canonical(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _canonical(part) for key, part in schema.items()}
    if isinstance(names := made.get("required"), list):
        made["required"] = sorted(names, key=canonical_text)
    return made


def _title(annotation: Annotation) -> str:
    return f"type {annotation.__name__ if isinstance(annotation, type) else annotation!r}"
