"""JSON Schemas and hashes of types, and the reasons why a type has none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Hashable, Iterable
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field, Json, JsonValue

from fastroai.functions import hash_of, schema_of
from fastroai.functions.declaring.schemas import DIALECT
from fastroai.functions.errors import CompileError


class Address(BaseModel):
    city: str


class Person(BaseModel):
    name: Annotated[str, Field(min_length=1)]
    born: date | None = None
    tags: set[str] = {"b", "a", "c"}
    addresses: list[Address] = []


def test_a_schema_is_of_the_2020_dialect_and_requires_what_has_no_default() -> None:
    schema = schema_of(Person)
    assert schema["$schema"] == DIALECT
    assert schema["required"] == ["name"]
    Draft202012Validator.check_schema(schema)


def test_fields_are_named_as_a_model_has_to_write_them() -> None:
    class Aliased(BaseModel):
        body: str = Field(alias="Body")

    assert list(schema_of(Aliased)["properties"]) == ["Body"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "annotation", [str, list[int], int | None, Literal["a", "b"], dict[str, Person], JsonValue]
)
def test_types_without_fields_have_schemas_too(annotation: Any) -> None:
    Draft202012Validator.check_schema(schema_of(annotation))


def test_bytes_are_base64() -> None:
    assert schema_of(bytes)["format"] == "base64url"
    assert schema_of(list[bytes])["items"] == {"type": "string", "format": "base64url"}


class NoSchema:
    pass


class Holder(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    call: Callable[[], int]
    anything: list[Any]
    parts: dict[str, list]  # type: ignore[type-arg]
    instance: NoSchema
    kind: type[int]
    once: Iterable[int]
    text: Json  # type: ignore[type-arg]
    nested: Nested
    hashable: Hashable
    good: int


class Nested(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    deep: NoSchema | None = None


ANYTHING = (
    "it accepts anything (Any, object, or a list or dict without element types); name a type, or "
    "pydantic.JsonValue for any JSON"
)


def test_every_field_without_a_schema_is_named_with_the_reason() -> None:
    with pytest.raises(CompileError) as caught:
        schema_of(Holder)
    assert caught.value.problems == (
        "call: a function has no JSON Schema",
        f"anything[...]: {ANYTHING}",
        f"parts[...][...]: {ANYTHING}",
        "instance: NoSchema has no JSON Schema in pydantic",
        "kind: a class has no JSON Schema",
        "once: it can be read only once; write list[...]",
        f"text: {ANYTHING}",
        "nested.deep: NoSchema has no JSON Schema in pydantic",
        f"hashable: {ANYTHING}",
    )


@pytest.mark.parametrize("annotation", [Any, object, NoSchema, Callable[[], int], list[Any], tuple[int, Any]])
def test_a_type_that_says_nothing_is_refused(annotation: Any) -> None:
    with pytest.raises(CompileError):
        schema_of(annotation)


def made(fields: dict[str, Any], name: str = "Made") -> type[BaseModel]:
    return type(name, (BaseModel,), {"__annotations__": fields, "__module__": __name__})


def test_the_hash_has_12_digits_and_does_not_change_with_the_order_of_fields() -> None:
    one, other = made({"a": int, "b": str}), made({"b": str, "a": int})
    assert hash_of(one) == hash_of(other)
    assert len(hash_of(one)) == 12
    assert int(hash_of(one), 16) >= 0


@pytest.mark.parametrize(
    "fields",
    [
        {"a": int},
        {"a": int, "b": str, "c": str},
        {"a": int, "x": str},
        {"a": float, "b": str},
        {"a": int | None, "b": str},
        {"a": Annotated[int, Field(ge=0)], "b": str},
        {"a": Annotated[int, Field(description="how many")], "b": str},
        {"a": int, "b": Literal["x"]},
        {"a": int, "b": Annotated[str, Field(default="x")]},
        {"a": int, "b": list[str]},
    ],
)
def test_the_hash_changes_with_every_field_type_and_limit(fields: dict[str, Any]) -> None:
    assert hash_of(made(fields)) != hash_of(made({"a": int, "b": str}))


@pytest.mark.slow
def test_the_hash_is_the_same_in_every_process() -> None:
    code = (
        "from datetime import date\nfrom pydantic import BaseModel\nfrom fastroai.functions import hash_of\n"
        "class T(BaseModel):\n  tags: set[str] = {'b', 'a', 'c', 'd', 'e'}\n  born: date | None = None\n"
        "  more: set[str] | None = {'b', 'a', 'c', 'd', 'e'}\n"
        "  deep: dict[str, set[str]] = {'b': {'b', 'a', 'c', 'd', 'e'}}\n"
        "print(hash_of(T))"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(hashes) == 1
