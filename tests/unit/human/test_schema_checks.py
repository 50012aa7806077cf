"""What the inbox finds wrong with an answer is what the declared type finds wrong with it."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_ai.tools import DeferredToolApprovalResult

from fastroai.human.schema_checks import problems_of


class Line(BaseModel):
    text: Annotated[str, Field(min_length=2, max_length=4, pattern="^[a-z]")]
    amount: Annotated[float, Field(gt=0, le=10)] = 1.0


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    lines: Annotated[list[Line], Field(min_length=1)]
    kind: Literal["new", "old"]
    note: str | None = None
    before: Order | None = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: dict[str, int]


TYPES: list[Any] = [
    bool,
    int,
    float,
    str,
    None,
    list[int],
    tuple[int, str],
    dict[str, bool],
    int | None,
    Literal["yes", "no"],
    Annotated[int, Field(ge=2, lt=5)],
    Line,
    Order,
    Annotated[Cat | Dog, Field(discriminator="kind")],
    bool | DeferredToolApprovalResult,  # whose tags have defaults, and are needed all the same
]
VALUES: list[Any] = [
    *(True, False, 0, 1, 2, 5, 1.5, -1.0, "", "yes", "true", None),
    *([], [1], [1, "a"], [1, "a", 2], [True], {}, {"a": True}, {"a": 1}),
    *({"text": "ab"}, {"text": "a"}, {"text": "abcde"}, {"text": "Ab"}, {"text": "ab", "amount": 0}),
    {"text": "ab", "amount": 10, "more": 1},
    {"kind": "new", "lines": [{"text": "ab"}]},
    {"kind": "new", "lines": []},
    *({"message": "no"}, {"kind": "tool-denied"}, {"kind": "tool-denied", "message": 1}, {"kind": 1}),
    {"kind": "tool-approved", "override_args": {"a": 1}},
    {"kind": "newer", "lines": [{"text": "ab"}]},
    {"kind": "new", "lines": [{"text": "ab"}], "more": 1},
    {"kind": "new", "lines": [{"text": "ab"}, {"text": 1}]},
    {"kind": "new", "lines": [{"text": "ab"}], "before": {"kind": "old", "lines": [{"text": "ab"}]}},
    {"kind": "new", "lines": [{"text": "ab"}], "before": {"kind": "old"}},
    *({"kind": "cat", "lives": 9}, {"kind": "dog", "tricks": {"roll": 1}}, {"kind": "dog", "lives": 9}),
]


@pytest.mark.parametrize("declared", TYPES, ids=str)
def test_a_value_has_problems_exactly_if_its_type_refuses_it(declared: Any) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(declared)
    schema = adapter.json_schema()
    for value in VALUES:
        try:
            adapter.validate_json(json.dumps(value), strict=True)
        except ValidationError:
            assert problems_of(value, schema), value
        else:
            assert problems_of(value, schema) == (), value


def test_problems_say_where_they_are() -> None:
    schema = TypeAdapter(Order).json_schema()
    wrong = {"kind": "new", "lines": [{"text": "ab"}, {"text": 1}], "more": 2}
    assert problems_of(wrong, schema) == (
        "lines[1].text is of the type integer, not string",
        "more is not expected",
    )
    assert problems_of({"lines": [{}]}, schema) == ("kind is missing", "lines[0].text is missing")


def test_keywords_that_are_not_known_are_passed_over() -> None:
    assert problems_of("never", {"type": "string", "format": "date"}) == ()
