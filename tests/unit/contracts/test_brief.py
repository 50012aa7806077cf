"""Values in messages: short, in one line, and never a reason for another error."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel, Field

from fastroai.contracts.brief import brief


class Colour(Enum):
    RED = 1


class Item(BaseModel):
    name: str = "cup"
    hidden: str = Field("secret", repr=False)


class Order(BaseModel):
    items: list[Item] = [Item()] * 9
    first: Item = Item()


class Wide(BaseModel):
    a: int = 1
    b: int = 2
    c: int = 3
    d: int = 4
    e: int = 5
    f: int = 6
    g: int = 7


@dataclass
class Point:
    x: int
    label: str = field(default="l", repr=False)


@dataclass
class Masked:
    secret: str

    def __repr__(self) -> str:
        return "Masked(***)"


class Plain:
    pass


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError


class Lines:
    def __repr__(self) -> str:
        return "first\n   second"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.42, "0.42"),
        ("a  b\n", "'a  b\\n'"),
        (Decimal("0.10"), "Decimal('0.10')"),
        (Colour.RED, "<Colour.RED: 1>"),
        (None, "None"),
        ([1, 2, 3, 4], "[1, 2, 3, ...]"),
        (Item(), "Item(name='cup')"),
        (Order(), "Order(items=[Item(...), Item(...), Item(...), ...], first=Item(name='cup'))"),
        (Wide(), "Wide(a=1, b=2, c=3, d=4, e=5, f=6, ...)"),
        (Point(1), "Point(x=1)"),
        (Masked("secret"), "Masked(***)"),
        (Plain(), "<Plain>"),
        ([Broken()], "[<Broken>]"),
        (Lines(), "first second"),
        (10**9_000, "<an integer of 29,898 bits>"),
        (b"a" * 1_000, f"{b'a' * 60!r}..."),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_is_told_in_one_line(value: object, shown: str) -> None:
    assert brief(value) == shown


@pytest.mark.parametrize(
    "value",
    ["x" * 10**6, [["x" * 99] * 99] * 99, {"k" * 99: Wide()}, 10**5_000, [[[[]]]]],
    ids=["text", "lists", "dict", "number", "depth"],
)
def test_a_value_is_short_whatever_it_has_inside(value: Any) -> None:
    assert len(brief(value)) <= 203


def test_of_a_large_model_only_that_is_read_which_is_shown() -> None:
    read = 0

    class Counted:
        def __repr__(self) -> str:
            nonlocal read
            read += 1
            return "counted"

    class Large(BaseModel, arbitrary_types_allowed=True):
        items: list[Counted]

    brief(Large(items=[Counted() for _ in range(10_000)]))
    assert read == 3
