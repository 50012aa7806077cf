"""Values as JSON and back, through their declared types."""

import math
import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, SecretStr, field_serializer
from pydantic_core import from_json, to_json
from typing_extensions import TypedDict

from fastroai.errors import ValueNotStorable
from fastroai.steps import ConversationState, ConversationStatus
from fastroai.store.record.values import value_from_json, value_to_json

T = TypeVar("T")


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Shape(Enum):
    PAIR = (1, 2)


class Level(IntEnum):
    LOW = 1


class Mood(StrEnum):
    GOOD = "good"


class Order(BaseModel):
    id: int
    due: datetime
    prices: dict[str, Decimal] = {}


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    due: date
    tags: tuple[str, ...]
    mood: Mood


class Box(BaseModel, Generic[T]):
    held: T


class Names(RootModel[list[str]]):
    pass


@dataclass
class Point:
    x: float
    y: float = math.nan


@dataclass(eq=False)
class Plain:
    names: list[str]
    points: list[Point] = field(default_factory=list)


class Cell:
    """Known to pydantic only through `Held`."""


class Pair(NamedTuple):
    left: int
    right: str


class Row(TypedDict, total=False):
    name: str
    when: date


ORDER = Order(id=1, due=datetime(2026, 1, 2, 3, 4, 5, 6, UTC), prices={"a": Decimal("0.10")})

TYPED: list[tuple[object, Any]] = [
    (ORDER, Order),
    ([ORDER, ORDER], list[Order]),
    (Strict(due=date(2026, 1, 2), tags=("a", "b"), mood=Mood.GOOD), Strict),
    (Box[Order](held=ORDER), Box[Order]),
    (Box[int | str](held="1"), Box[int | str]),
    (Names(["a"]), Names),
    (Point(1, 2), Point),
    ({"name": "x", "when": date(2026, 1, 2)}, Row),
    (Pair(1, "x"), Pair),
    (Colour.RED, Colour),
    ({Colour.RED: Level.LOW}, dict[Colour, Level]),
    (Mood.GOOD, Mood),
    (datetime(2026, 1, 2), datetime),
    (time(1, 2, 3, 4), time),
    (timedelta(days=-3, microseconds=7), timedelta),
    (Decimal("1.10"), Decimal),
    ((1, "a"), tuple[int, str]),
    ({1, 2}, set[int]),
    (frozenset({"a"}), frozenset[str]),
    (b"text \xc3\xa9", bytes),
    (UUID(int=7), UUID),
    (Path("a/b"), Path),
    (None, int | None),
    ({3: ["x"]}, dict[int, list[str]]),
    (ConversationState(ConversationStatus.INCOMPLETE, ORDER, {"a": 1}), ConversationState[Order]),
    (ConversationState(ConversationStatus.COMPLETE, ["plain"]), ConversationState),
    (10**40, int),
]


@pytest.mark.parametrize(("value", "declared"), TYPED, ids=[str(declared) for _, declared in TYPED])
def test_a_value_of_its_declared_type_comes_back_as_it_was(value: object, declared: Any) -> None:
    stored = from_json(to_json(value_to_json(value, declared, "the value"), inf_nan_mode="constants"))
    back = value_from_json(stored, declared)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("value", [None, True, 0, -1.5, 10**40, "é\0\n", [], {}, {"a": [{"b": None}]}])
def test_plain_json_needs_no_declared_type(value: object) -> None:
    assert value_from_json(value_to_json(value, None, "it"), None) == value


@pytest.mark.parametrize(
    ("value", "declared"),
    [
        (math.nan, None),
        (math.nan, float),
        (Point(1.0), Point),
        (Plain(["a"], [Point(1.0)]), Plain),
        ([Point(1.0), Point(2.0, 3.0)], list[Point]),
        ({"a": (math.nan, 1.0)}, dict[str, tuple[float, ...]]),
        (Box[float](held=math.nan), Box[float]),
    ],
)
def test_what_is_not_equal_to_itself_comes_back_too(value: object, declared: Any) -> None:
    back = value_from_json(value_to_json(value, declared, "it"), declared)
    assert type(back) is type(value)
    assert repr(back).replace(hex(id(back)), "") == repr(value).replace(hex(id(value)), "")


# --- what cannot be stored ---


class Excluded(BaseModel):
    kept: int
    left_out: str = Field(default="", exclude=True)


class Secret(BaseModel):
    key: SecretStr


class Private(BaseModel):
    _count: int = PrivateAttr(default=0)


class Sub(Order):
    more: str


class Mixed(BaseModel):
    it: date | str = Field(union_mode="left_to_right")


class Breaks(BaseModel):
    it: int

    @field_serializer("it")
    def broken(self, value: int) -> int:
        raise ZeroDivisionError


class NoEquality:
    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError


def private() -> Private:
    made = Private()
    made._count = 3
    return made


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def circle() -> dict[str, Any]:
    value: dict[str, Any] = {"a": []}
    value["a"].append(value)
    return value


REFUSED: list[tuple[object, Any, str]] = [
    (
        ORDER,
        None,
        "Order: without a declared type only plain JSON can be stored; declare the type of a result",
    ),
    ({"a": [1, ORDER]}, None, r"Order at a\[1\]: without"),
    ({"a": {"b": {1: 2}}}, None, "int at a.b key 1: without"),
    ((1, 2), None, "tuple: without"),
    (Mood.GOOD, None, "Mood: without"),
    (object(), object, "object"),
    (Cell(), Cell, "Unable to serialize unknown type"),
    (Shape.PAIR, Shape, "Input should be"),
    ([Decimal("NaN")], list[Decimal], "finite number"),
    ("\ud800", None, "str: .*surrogates not allowed"),
    ({"\ud800": 1}, None, "surrogates not allowed"),
    ("\ud800", str, "surrogates not allowed"),
    (b"\xff", bytes, "invalid utf-8"),
    (circle(), None, "Circular reference"),
    (nested(250), None, "nested too deeply"),
    (nested(195), None, "nested too deeply"),
    (nested(195), list[Any], "nested too deeply"),
    (nested(100_000), None, "nested too deeply"),
    (10**5000, None, "number out of range"),
    (Excluded(kept=1, left_out="x"), Excluded, "it would be another value. .* excluded"),
    (Secret(key=SecretStr("x")), Secret, "it would be another value"),
    ([Secret(key=SecretStr("x"))], list[Secret], "it would be another value"),
    (private(), Private, "it would be another value"),
    (Sub(id=1, due=ORDER.due, more="x"), Order, "^the value cannot be stored: Sub: .* of type Order"),
    ("text", int, r"int\)"),
    (Mixed.model_construct(it="2026-01-02"), Mixed, "str at it: .* it would be a value of type date"),
    ([10**5000], None, "number out of range"),
    (10**5000, int, "number out of range"),
    ({"when": ORDER.due}, dict[str, Any], "datetime at when: .* it would be a value of type str"),
    (Order.model_construct(id="x"), Order, "Expected `int`"),
    (Breaks(it=1), Breaks, "ZeroDivisionError"),
    ((1, 2), list[int], "list"),
]


@pytest.mark.parametrize(("value", "declared", "why"), REFUSED, ids=[why for _, _, why in REFUSED])
def test_what_would_not_come_back_is_refused_by_name(value: object, declared: Any, why: str) -> None:
    with pytest.raises(ValueNotStorable, match="^the value cannot be stored: ") as caught:
        value_to_json(value, declared, "the value")
    assert re.search(why, str(caught.value)), str(caught.value)


def test_what_is_in_a_value_several_times_is_no_circle() -> None:
    shared = {"a": [1]}
    assert value_to_json([shared, shared, shared["a"]], None, "it") == [shared, shared, [1]]


def test_a_field_that_cannot_be_stored_is_named() -> None:
    with pytest.raises(ValueNotStorable) as caught:
        value_to_json({"rows": [{"cell": Cell()}]}, None, "the output of step 'read'")
    assert (caught.value.what, caught.value.field, caught.value.type_name) == (
        "the output of step 'read'",
        "rows[0].cell",
        "Cell",
    )
