"""What expressions read of values with annotations, and what their types lack."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict, PastDate, PrivateAttr, computed_field
from typing_extensions import TypeAliasType, TypedDict

from fastroai.functions.expression_types import ExpressionTypes

T = TypeVar("T")


class Model(BaseModel):
    name: str
    alias_of: Annotated[int | None, "metadata"] = None
    _private: int = PrivateAttr(0)

    @computed_field
    def computed(self) -> int:
        return 1

    @property
    def shout(self) -> str:
        return self.name.upper()


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str


class Around(BaseModel):
    one: Model
    maybe: Model | None = None
    either: Model | int = 1
    several: list[Model] = []
    by_name: dict[str, Model] = {}
    pair: tuple[str, Model] = ("", Model(name=""))
    many: tuple[Model, ...] = ()


@dataclass
class Data:
    x: int

    def __post_init__(self) -> None:
        self.twice = self.x * 2

    @cached_property
    def thrice(self) -> int:
        return self.x * 3


class Plain:
    y: int

    def __init__(self) -> None:
        self.z = 1


class Dynamic:
    def __getattr__(self, name: str) -> int:
        return 1


class Named(NamedTuple):
    left: int


class Keyed(TypedDict):
    confidence: float


class Box(BaseModel, Generic[T]):
    content: T


@dataclass
class PlainBox(Generic[T]):
    content: T


Renamed = NewType("Renamed", Model)
Alias = TypeAliasType("Alias", Model)


def problems(expression: str, of: Any) -> list[str]:
    """What is wrong with an expression over `r`."""
    types = ExpressionTypes({"r": of})
    types.of(ast.parse(expression, mode="eval").body)
    return types.problems


@pytest.mark.parametrize(
    ("expression", "of"),
    [
        ("r.name and r.computed and r.shout and r._private and r.model_dump()", Model),
        ("r.whatever", Open),
        ("r.one.name and r.maybe.name and r.either.name", Around),
        ("r.several[0].name and r.several[-1].name and r.several[:2][0].name and r.pair[:1].x", Around),
        ("r.several.count(1) and r.by_name['a'].name and r.by_name.get('a').x", Around),
        ("r.pair[1].name and r.many[7].name", Around),
        ("all(r.name for r in r.several) and any(r.x for r in [1])", Around),
        ("[a.x for a, b in r.by_name.items()]", Around),
        ("{k: v.name for k, v in r.by_name.items()} and {one.name: 1 for one in r.several}", Around),
        ("max(r.several, key=lambda r: r.x).y", Around),
        ("(n := r.one).name and n.name", Around),
        ("r.x and r.twice and r.thrice", Data),
        ("r.y and r.z", Plain),
        ("r.whatever", Dynamic),
        ("r.left and r[0] and r._asdict()", Named),
        ("r['confidence'] > 1 and r.get('x') and r.keys()", Keyed),
        ("r[key]", Keyed),
        ("r.upper()[0].lower() and r[1:].lower()", str),
        ("r.upper()", Literal["a", "b"]),
        ("r.bit_length()", bool),
        ("r.whatever", Any),
        ("r.whatever", T),
        ("r.content.bit_length()", Box[int]),
        ("r.content.whatever", PlainBox[int]),
        ("r.name", Renamed),
        ("r.name", Alias),
        ("r.name", Annotated[Model, "metadata"]),
        ("r[0].name", list[Model]),
        ("r.sort()", Sequence[Model]),
        ("r.year", PastDate),
        ("other.whatever and f(r.name, key=r.name)", Model),
    ],
)
def test_no_problem(expression: str, of: Any) -> None:
    assert problems(expression, of) == []


@pytest.mark.parametrize(
    ("expression", "of", "problem"),
    [
        ("r.nam", Model, "Model has no 'nam'; it has 'name', 'alias_of'. Did you mean 'name'?"),
        ("r.alias_of.x", Model, "int | NoneType has no 'x'."),
        ("r.one.nam", Around, "Model has no 'nam'"),
        ("r.maybe.nam", Around, "Model | NoneType has no 'nam'"),
        ("r.either.nam", Around, "Model | int has no 'nam'"),
        ("r.several[0].nam", Around, "Model has no 'nam'"),
        ("r.several[:2].nam", Around, "has no 'nam'"),
        ("r.several.nam", Around, "has no 'nam'"),
        ("r.by_name['a'].nam", Around, "Model has no 'nam'"),
        ("r.pair[1].nam", Around, "Model has no 'nam'"),
        ("r.pair[0].nam", Around, "str has no 'nam'"),
        ("r.many[7].nam", Around, "Model has no 'nam'"),
        ("all(one.nam for one in r.several)", Around, "Model has no 'nam'"),
        ("[r.one for r in r.several]", Around, "Model has no 'one'"),
        ("(n := r.one).name and n.nam", Around, "Model has no 'nam'"),
        ("f(r.nam)", Model, "Model has no 'nam'"),
        ("f(key=r.nam)", Model, "Model has no 'nam'"),
        ("f'{r.nam}'", Model, "Model has no 'nam'"),
        ("r.nam if r.name else 1", Model, "Model has no 'nam'"),
        ("(lambda x: r.nam)(1)", Model, "Model has no 'nam'"),
        ("r.w", Data, "Data has no 'w'; it has 'x'."),
        ("r.w", Plain, "Plain has no 'w'; it has 'y'."),
        ("r['confidenc']", Keyed, "Keyed has no key 'confidenc'; it has 'confidence'. Did you mean"),
        ("r.confidence", Keyed, "Keyed has no 'confidence'."),
        ("r[1:].uper()", str, "str has no 'uper'."),
        ("r.uper()", Literal["a"], "str has no 'uper'."),
        ("r.content.whatever", Box[int], "int has no 'whatever'."),
        ("r.nam", Renamed, "Model has no 'nam'"),
        ("r.nam", Alias, "Model has no 'nam'"),
        ("r.nam", Annotated[Model, "metadata"], "Model has no 'nam'"),
        ("r.x", None, "NoneType has no 'x'"),
    ],
)
def test_an_attribute_that_the_type_lacks(expression: str, of: Any, problem: str) -> None:
    [found] = problems(expression, of)
    assert problem in found
