"""Fields of contracts and inputs: their types, and which values fit them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, cast, get_args

from pydantic import JsonValue

from fastroai.documents.parts import told
from fastroai.documents.yaml_text import Way
from fastroai.workflows.spec.document import ContractSpec, FieldSpec, FieldType
from fastroai.workflows.spec.parts import FieldPart
from fastroai.workflows.spec.problems import Problems, cut

FIELD_TYPES: Final[tuple[FieldType, ...]] = get_args(FieldType)

_PYTHON_TYPES: Final[Mapping[FieldType, tuple[type, ...]]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def fits(value: JsonValue, of: FieldSpec) -> bool:
    """Return whether a value has the type of a field, and is one of its values if they are limited."""
    return _has_type(value, of.type) and (of.values is None or _is_among(value, of.values))


def _has_type(value: JsonValue, of: FieldType) -> bool:
    if isinstance(value, bool):
        return of == "boolean"
    if of == "integer" and isinstance(value, float):
        return value.is_integer()  # as JSON Schema has it: 3.0 is an integer
    return isinstance(value, _PYTHON_TYPES[of])


def _is_among(value: JsonValue, values: tuple[JsonValue, ...]) -> bool:
    # In Python, True is 1; in JSON it is not.
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in values)


def accepts(target: FieldType, source: FieldType) -> bool:
    """Return whether a value of type `source` can be given to a field of type `target`."""
    return target == source or (target, source) == ("number", "integer")


def read_contracts(
    parts: Mapping[str, Mapping[str, FieldPart]] | None, problems: Problems
) -> dict[str, ContractSpec]:
    """Return the contracts of a spec."""
    contracts = {}
    for name, fields in (parts or {}).items():
        way: Way = ("contracts", name)
        for field_name, part in fields.items():
            if "default" in part.model_fields_set:
                message = f"field {cut(field_name)!r} has a default; only inputs have one"
                problems.add(message, (*way, field_name, "default"), of_key=True)
        contracts[name] = ContractSpec(name=name, fields=read_fields(fields, way, problems))
    return contracts


def read_fields(parts: Mapping[str, FieldPart] | None, way: Way, problems: Problems) -> dict[str, FieldSpec]:
    """Return fields by name, without those of an unknown type."""
    fields = {}
    for name, part in (parts or {}).items():
        if problems.choice((*way, name, "type"), part.type, FIELD_TYPES):
            fields[name] = _field(part, (*way, name), problems)
    return fields


def _field(part: FieldPart, way: Way, problems: Problems) -> FieldSpec:
    has_default = "default" in part.model_fields_set
    said = FieldSpec(type=cast("FieldType", part.type))
    if part.values is not None and not part.values:
        problems.add("values is an empty list; expected the values that are allowed", (*way, "values"))
    for index, value in enumerate(part.values or ()):
        if not fits(value, said):
            message = f"values[{index}] is {told(value)}, which is not of type {part.type}"
            problems.add(message, (*way, "values", index))
    field = FieldSpec(
        type=said.type,
        values=None if part.values is None else tuple(part.values),
        required=not has_default if part.required is None else part.required,
        default=part.default,
        has_default=has_default,
        description=part.description or "",
    )
    if has_default and not fits(part.default, field):
        problems.add(f"default is {told(part.default)}; expected {expected(field)}", (*way, "default"))
    return field


def completed(
    of_flow: FieldSpec, part: FieldPart, said: FieldSpec, way: Way, problems: Problems
) -> FieldSpec:
    """Return an input of a flow, with what the workflow says of it in place of what the flow says."""
    field = of_flow
    if part.model_fields_set & {"required", "default"}:
        field = replace(field, required=said.required, default=said.default, has_default=said.has_default)
    if part.values is not None:
        field = replace(field, values=said.values)
    if part.description is not None:
        field = replace(field, description=said.description)
    if field != said and field.has_default and not fits(field.default, field):
        problems.add(f"its default is {told(field.default)}; expected {expected(field)}", way)
    return field


def expected(field: FieldSpec) -> str:
    """Return a description of the values that a field allows."""
    if field.values is None:
        return f"a value of type {field.type}"
    return f"one of {cut(', '.join(map(repr, field.values)))}"
