from __future__ import annotations

import enum
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NewType, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel
from typing_extensions import TypeAliasType, TypedDict

from fastroai.graphs.machine.fields import declared_fields

T = TypeVar("T")


class Verdict(BaseModel):
    category: str
    confidence: float


class Sure(Verdict):
    because: str = ""


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    known: str


@dataclass
class Pair(Generic[T]):
    left: T
    right: T


class Order(TypedDict):
    total: int


class Colour(enum.Enum):
    RED = "red"


Named = NewType("Named", Verdict)
Aliased = TypeAliasType("Aliased", Verdict | Order)


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (Verdict, {"category", "confidence"}),
        (Sure, {"category", "confidence", "because"}),
        (Pair, {"left", "right"}),
        (Pair[int], {"left", "right"}),
        (Order, {"total"}),
        (Verdict | Order, {"category", "confidence", "total"}),
        (Verdict | None, {"category", "confidence"}),
        (Annotated[Verdict, Field(description="x")], {"category", "confidence"}),
        (Named, {"category", "confidence"}),
        (Aliased, {"category", "confidence", "total"}),
        (Verdict | str, {"category", "confidence"}),
        (Literal["billing", "other"], set()),
        (str, set()),
        (bool, set()),
        (Decimal, set()),
        (list[Verdict], set()),
        (tuple[int, ...], set()),
        (Colour, set()),
    ],
)
def test_fields_of_declared_types_are_known(annotation: Any, expected: set[str]) -> None:
    assert declared_fields(annotation) == expected


@pytest.mark.parametrize(
    "annotation", [None, Any, object, dict, dict[str, int], Open, RootModel[int], Verdict | dict[str, int], T]
)
def test_of_others_nobody_knows(annotation: Any) -> None:
    assert declared_fields(annotation) is None
