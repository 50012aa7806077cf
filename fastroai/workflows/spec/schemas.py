"""JSON Schemas of a spec: those that steps declare, and those that its contracts come to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pydantic import JsonValue

from fastroai.documents.yaml_text import Way
from fastroai.errors import MissingExtraError
from fastroai.workflows.spec.document import ContractSpec, FieldSpec
from fastroai.workflows.spec.fields import FIELD_TYPES
from fastroai.workflows.spec.problems import Problems, cut
from fastroai.workflows.spec.references import Known

if TYPE_CHECKING:
    import jsonschema_rs

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
"""The version of JSON Schema that holds where a schema names none."""
_TYPES: Final = (*FIELD_TYPES, "null")
_MOST_ERRORS: Final = 50
_MOST_PATTERN_BYTES: Final = 1_000_000
"""Memory that a compiled pattern may take."""


def fields_schema(fields: Mapping[str, FieldSpec]) -> dict[str, JsonValue]:
    """Return the JSON Schema of an object with these fields.

    Other fields are allowed beside them. One that is not required may be missing, or null.
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


def compiled(schema: Mapping[str, JsonValue]) -> jsonschema_rs.Validator:
    """Return what checks values by a schema. It fetches nothing, and its patterns take linear time.

    Raises:
        MissingExtraError: jsonschema-rs is not installed (the extra `workflows`).
        jsonschema_rs.ValidationError: It is no JSON Schema.
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
    """Note everything that keeps a mapping from being a JSON Schema."""
    wrong = list(_wrong(schema, way))
    for where, message in wrong:
        problems.add(message, where)
    if not wrong:
        jsonschema_rs = _library()
        try:
            compiled(schema)
        except jsonschema_rs.ValidationError as error:
            where = (*way, *error.instance_path)
            problems.add(f"output_schema: {_short(error.message)}{_remedy(where)}", where)


def _wrong(schema: Mapping[str, JsonValue], way: Way) -> Iterator[tuple[Way, str]]:
    """What the schema of schemas says of it."""
    said = schema.get("$schema", DIALECT)
    try:
        meta = compiled({"$ref": said})
    except _library().ValidationError:
        yield (*way, "$schema"), f"output_schema: $schema is {cut(str(said))!r}; expected {DIALECT}"
        return
    for count, error in enumerate(meta.iter_errors(schema)):
        if count == _MOST_ERRORS:
            return
        where = (*way, *error.instance_path)
        if where[-1] == "type":
            expected = f"expected one of {', '.join(_TYPES)}, or a list of them"
            yield where, f"output_schema: type is {_short(repr(error.instance))}; {expected}"
        else:
            yield where, f"output_schema: {_short(error.message)}{_remedy(where)}"


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
