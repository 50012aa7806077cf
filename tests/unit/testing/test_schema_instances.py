import datetime as dt
import json
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv6Network
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import AnyUrl, BaseModel, Field, Json, TypeAdapter, ValidationError, conlist, create_model
from support.examples import examples

from fastroai.testing.schema_instances import NoInstanceError, smallest_instance, unfit_instance


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=1, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Tree(BaseModel):
    value: int
    left: "Tree | None"
    children: list["Tree"]


class Everything(BaseModel):
    text: str = Field(min_length=3)
    number: float = Field(gt=0, lt=0.1)
    whole: int = Field(ge=7, multiple_of=5)
    flag: bool
    nothing: None
    anything: Any
    colour: Colour
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    maybe: Cat | None
    tags: conlist(str, min_length=2)  # type: ignore[valid-type]
    unique: Annotated[set[int], Field(min_length=3)]
    names: Annotated[set[str], Field(min_length=2)]
    colours: Annotated[set[Colour], Field(min_length=2)]
    pair: tuple[int, Cat]
    scores: Annotated[dict[str, int], Field(min_length=2)]
    money: Decimal = Field(ge=5)
    when: dt.datetime
    day: dt.date
    moment: dt.time
    span: dt.timedelta
    key: UUID
    address: IPv4Address
    network: IPv6Network
    link: AnyUrl
    raw: bytes
    nested: Json[list[Cat]]
    code: str = Field(pattern=r"^[A-Z]{2}$", min_length=2)
    digits: str = Field(pattern=r"^\d+$")
    tree: Tree
    optional: str = "left out"


def test_the_smallest_instance_of_everything_that_pydantic_describes_is_valid() -> None:
    instance = smallest_instance(Everything.model_json_schema())

    filled = Everything.model_validate_json(json.dumps(instance))

    assert "optional" not in filled.model_fields_set
    assert filled.tags == ["", ""]
    assert filled.tree == Tree(value=0, left=None, children=[])


def test_the_same_schema_gets_the_same_instance_every_time() -> None:
    schema = Everything.model_json_schema()

    assert smallest_instance(schema) == smallest_instance(schema)


@given(
    low=st.integers(-1000, 1000),
    width=st.integers(0, 50),
    step=st.integers(1, 30),
    length=st.integers(0, 20),
    items=st.integers(0, 6),
    distinct=st.booleans(),
    optional=st.booleans(),
)
@settings(max_examples=examples(38))
def test_an_instance_satisfies_whatever_bounds_a_model_has(
    low: int, width: int, step: int, length: int, items: int, distinct: bool, optional: bool
) -> None:
    assume(any(number % step == 0 for number in range(low, low + width + 1)))
    kind = set[int] if distinct else list[int]
    model = create_model(
        "Bounded",
        whole=(int, Field(ge=low, le=low + width, multiple_of=step)),
        open=(float, Field(gt=low, lt=low + width + 1)),
        text=(str, Field(min_length=length, max_length=length + width)),
        many=(kind, Field(min_length=items)),
        maybe=(Cat | None if optional else Cat, ...),
    )

    model.model_validate_json(json.dumps(smallest_instance(model.model_json_schema())))


@given(st.floats(-1e6, 1e6), st.floats(1e-9, 10))
@settings(deadline=None)
def test_a_number_between_close_bounds_is_found(low: float, width: float) -> None:
    assume(low + width > low)
    adapter = TypeAdapter(Annotated[float, Field(ge=low, lt=low + width)])

    adapter.validate_python(smallest_instance(adapter.json_schema()))


def test_of_several_alternatives_the_shortest_is_taken() -> None:
    schema = TypeAdapter(Everything | Cat | int).json_schema()

    assert smallest_instance(schema) == 0
    assert smallest_instance({"type": ["string", "null", "integer"]}) == 0


def test_schemas_in_all_of_are_taken_together() -> None:
    schema = {
        "$defs": {"A": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}},
        "allOf": [
            {"$ref": "#/$defs/A"},
            {"properties": {"b": {"const": "x"}}, "required": ["b"]},
        ],
    }

    assert smallest_instance(schema) == {"a": 0, "b": "x"}


@pytest.mark.parametrize(
    ("schema", "instance"),
    [
        ({}, None),
        ({"properties": {"a": {}}, "required": ["a"]}, {"a": None}),
        ({"items": {"type": "integer"}, "minItems": 1}, [0]),
        ({"minimum": 3}, 3),
        ({"type": "number", "maximum": -2.5}, -2.5),
        ({"type": "integer", "multipleOf": 1.5, "minimum": 1}, 3),
        ({"type": "array", "items": True, "minItems": 1}, [None]),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 1, "uniqueItems": True}, [False]),
        ({"type": "string", "format": "unheard-of"}, ""),
    ],
)
def test_a_bare_schema_gets_the_value_nearest_to_nothing(schema: dict[str, Any], instance: object) -> None:
    assert smallest_instance(schema) == instance


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "string", "pattern": "^(?=a)b$"}, "pattern '.*'"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "no number fits"),
        ({"$ref": "#/$defs/Missing"}, "points to nothing"),
        ({"$defs": {"A": {"$ref": "#/$defs/A"}}, "$ref": "#/$defs/A"}, "without an end"),
        ({"$defs": {"A": 5}, "$ref": "#/$defs/A"}, "points to 5, which is not a schema"),
        ({"enum": []}, "not a valid JSON Schema"),
        ({"anyOf": []}, "no alternatives"),
        (
            {"type": "array", "minItems": 3, "uniqueItems": True, "items": {"type": "boolean"}},
            "no 3 different instances",
        ),
        (
            {
                "$defs": {
                    "A": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "required": ["a"]}
                },
                "$ref": "#/$defs/A",
            },
            "'#/\\$defs/A' contains itself",
        ),
    ],
)
def test_a_schema_that_nothing_is_known_to_fit_says_so(schema: dict[str, Any], problem: str) -> None:
    with pytest.raises(NoInstanceError, match=problem):
        smallest_instance(schema)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "array", "minItems": 10**9, "items": {"type": "string"}}, "100,000 values"),
        ({"type": "array", "minItems": 10**9, "uniqueItems": True, "items": {"type": "string"}}, "values"),
        ({"type": "object", "minProperties": 10**9}, "values"),
        ({"type": "string", "minLength": 10**12}, "a text of more than 1,000,000 characters"),
        ({"anyOf": [{"type": "string", "minLength": 10**12}, {"type": "null"}]}, "characters"),
    ],
)
def test_a_schema_whose_instances_would_fill_all_memory_is_refused(
    schema: dict[str, Any], problem: str
) -> None:
    with pytest.raises(NoInstanceError, match=problem):
        smallest_instance(schema)


def test_arrays_in_arrays_are_bounded_together() -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(5):
        schema = {"type": "array", "minItems": 100, "items": schema}
    with pytest.raises(NoInstanceError, match="100,000 values"):
        smallest_instance(schema)


def test_a_schema_that_is_nested_too_deeply_says_so() -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(1000):
        schema = {"type": "array", "minItems": 1, "items": schema}

    with pytest.raises(NoInstanceError, match="nested too deeply"):
        smallest_instance(schema)


def test_a_reference_may_name_a_definition_with_a_slash() -> None:
    schema = {"$defs": {"a/b~c": {"const": 5}}, "$ref": "#/$defs/a~1b~0c"}

    assert smallest_instance(schema) == 5


@pytest.mark.parametrize("model", [Everything, Cat, Dog, Tree])
def test_an_unfit_instance_is_json_that_the_model_refuses(model: type[BaseModel]) -> None:
    unfit = unfit_instance(model.model_json_schema())

    with pytest.raises(ValidationError) as caught:
        model.model_validate_json(json.dumps(unfit))
    required = sum(field.is_required() for field in model.model_fields.values())
    assert caught.value.error_count() >= required - 1  # a field of type Any takes what comes


class Optionals(BaseModel):
    counts: dict[str, Any] | None = None


class AnyOfMany(BaseModel):
    value: str | list[int] | dict[str, int] | None = None


class NeedsAnything(BaseModel):
    value: Any


class OneWord(BaseModel):
    word: Literal["a", 1] = "a"


@pytest.mark.parametrize(
    "kind", [Optionals, AnyOfMany, NeedsAnything, OneWord, dict[str, bool], dict[str, int]]
)
def test_an_unfit_instance_has_a_type_that_no_alternative_allows(kind: Any) -> None:
    adapter = TypeAdapter(kind)
    unfit = unfit_instance(adapter.json_schema())

    with pytest.raises(ValidationError):
        adapter.validate_json(json.dumps(unfit))


class Free(BaseModel):
    anything: Any = None


@pytest.mark.parametrize("kind", [Free, dict[str, Any]])
def test_a_schema_that_every_object_fits_has_no_unfit_instance(kind: Any) -> None:
    with pytest.raises(NoInstanceError, match="every object fits"):
        unfit_instance(TypeAdapter(kind).json_schema())
