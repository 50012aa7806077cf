"""JSON Schemas of steps and of contracts."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pytest

from fastroai.errors import MissingExtraError
from fastroai.workflows.errors import WorkflowValidationError
from fastroai.workflows.spec.document import ContractSpec, FieldSpec
from fastroai.workflows.spec.reading import load_spec
from fastroai.workflows.spec.schemas import compiled, contract_schema


def problems(schema: Any) -> list[str]:
    """What is wrong with a schema, from the place where it begins in the document."""
    text = json.dumps(schema)
    head = "version: '0.2'\nflows: {main: {steps: [{id: a, intent: b, output_schema:\n"
    try:
        load_spec(f"{head}{text}}}]}}}}\n")
    except WorkflowValidationError as error:
        return [f"{one.line}:{one.column} {one.message}" for one in error.problems]
    return []


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": ["object", "null"], "properties": {"$ref": {"type": "string"}, "$id": {"type": "string"}}},
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "definitions": {"a": {}},
            "$ref": "#/definitions/a",
        },
        {"enum": [{"$ref": "http://x"}], "const": {"$dynamicRef": "x"}},
        {"$defs": {"a/b": {"type": "string"}}, "items": {"$ref": "#/$defs/a~1b"}, "pattern": "^a+$"},
        {"allOf": [{"$ref": "#/allOf/1"}, {"type": "string"}]},
    ],
)
def test_schemas_are_taken(schema: Any) -> None:
    assert problems(schema) == []


def test_what_is_no_schema_is_told_at_its_place() -> None:
    assert problems({"properties": {"a": {"type": "strng"}, "b": {"minimum": "x"}}}) == [
        "3:31 output_schema: type is 'strng'; expected one of string, number, integer, boolean, array, "
        "object, null, or a list of them",
        '3:58 output_schema: "x" is not of type "number"',
    ]
    assert problems({"required": "a"}) == ['3:14 output_schema: "a" is not of type "array"']
    assert (
        "$schema is 'http://nope'; expected https://json-schema.org"
        in problems({"$schema": "http://nope"})[0]
    )


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(MissingExtraError, match="workflows"):
        problems({"type": "object"})


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "(", "a{1000}{1000}"])
def test_patterns_take_linear_time_or_are_refused(pattern: str) -> None:
    (told,) = problems({"properties": {"a": {"pattern": pattern}}})
    assert "patterns have no look-around and no back-references" in told


def test_patterns_that_are_slow_elsewhere_are_fast() -> None:
    validator = compiled({"pattern": "^(a+)+$"})
    started = time.process_time()
    assert not validator.is_valid("a" * 100_000 + "b")
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            {"$ref": "http://localhost:1/x"},
            "$ref 'http://localhost:1/x' is not supported; refer to the $defs",
        ),
        ({"$ref": "file:///etc/passwd"}, "is not supported"),
        ({"$ref": "other.json"}, "is not supported"),
        ({"items": {"$dynamicRef": "#a"}}, "$dynamicRef is not supported"),
        ({"items": {"$id": "x"}}, "$id is not supported"),
        ({"$anchor": "x"}, "$anchor is not supported"),
        ({"$ref": "#/$defs/none"}, "$ref '#/$defs/none' leads nowhere"),
        ({"properties": {"a": {"$ref": "#"}}}, "$ref '#' leads in a circle; a schema may not be recursive"),
        (
            {"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"},
            "'#/$defs/a' leads in a circle",
        ),
    ],
)
def test_references_stay_in_the_schema_and_end(schema: Any, message: str) -> None:
    (told,) = problems(schema)
    assert message in told


def test_schemas_that_are_huge_when_written_out_are_refused() -> None:
    defs: dict[str, Any] = {"d0": {"type": "string"}}
    for number in range(1, 40):
        defs[f"d{number}"] = {"anyOf": [{"$ref": f"#/$defs/d{number - 1}"}] * 2}
    started = time.process_time()
    (told,) = problems({"$defs": defs, "$ref": "#/$defs/d39"})
    assert "more than 5,000 values when its references are written out" in told
    assert time.process_time() - started < 1


def test_a_contract_is_an_object_with_its_fields_and_others() -> None:
    fields = {
        "kind": FieldSpec(type="string", values=("a", "b"), description="What it is"),
        "note": FieldSpec(type="string", required=False, values=("x",)),
    }
    schema = contract_schema(ContractSpec(name="Out", fields=fields))
    assert schema == {
        "title": "Out",
        "type": "object",
        "properties": {
            "kind": {"type": "string", "enum": ["a", "b"], "description": "What it is"},
            "note": {"type": ["string", "null"], "enum": ["x", None]},
        },
        "required": ["kind"],
    }
    valid = compiled(schema).is_valid
    assert valid({"kind": "a", "other": 1})
    assert valid({"kind": "a", "note": None})
    assert not valid({"kind": "c"})
    assert not valid({"note": "x"})
