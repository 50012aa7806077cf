"""What a contract accepts: each way to say names and types."""

from __future__ import annotations

import typing
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NotRequired

import pydantic.dataclasses
import pytest
from pydantic import AliasPath, BaseModel, Field, ValidationError
from typing_extensions import TypedDict

from fastroai.contracts.accepted import Accepted
from fastroai.errors import ConfigurationError


class Client:
    """A class that pydantic does not know."""


class Item(BaseModel):
    price: float


class AsModel(BaseModel):
    item: Item
    count: int = 1


class AsTypedDict(TypedDict):
    item: Item
    count: NotRequired[int]


@dataclass
class AsDataclass:
    item: Item
    count: int = 1
    made: int = field(default=7, init=False)

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError("fewer than nothing")


@pydantic.dataclasses.dataclass
class AsPydanticDataclass:
    item: Item
    count: int = 1


AS_MAPPING = {"item": Item, "count": NotRequired[int]}


class AsTypedDictOfPython(typing.TypedDict):
    item: Item
    count: NotRequired[int]


WAYS = [AsModel, AsTypedDict, AsTypedDictOfPython, AsDataclass, AsPydanticDataclass, AS_MAPPING]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("accepts", WAYS)
def test_each_way_says_names_and_which_of_them_must_be_there(accepts: Any, strict: bool) -> None:
    accepted = Accepted(accepts, strict=strict)
    assert accepted.names == ("item", "count")
    assert accepted.required == {"item"}


@pytest.mark.parametrize("accepts", WAYS)
def test_values_are_what_pydantic_makes_of_them(accepts: Any) -> None:
    assert Accepted(accepts).check({"item": {"price": "2.5"}, "count": "3"}) == {
        "item": Item(price=2.5),
        "count": 3,
    }


@pytest.mark.parametrize("accepts", WAYS)
def test_what_does_not_fit_is_refused_with_its_place(accepts: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        Accepted(accepts).check({"item": {"price": "free"}})
    assert [error["loc"] for error in caught.value.errors()] == [("item", "price")]


@pytest.mark.parametrize("accepts", WAYS)
def test_in_strict_mode_nothing_is_converted(accepts: Any) -> None:
    accepted = Accepted(accepts, strict=True)
    assert accepted.check({"item": Item(price=1), "count": 3})["count"] == 3
    with pytest.raises(ValidationError) as caught:
        accepted.check({"item": Item(price=1), "count": "3"})
    assert [(error["loc"], error["type"]) for error in caught.value.errors()] == [(("count",), "int_type")]


@pytest.mark.parametrize("accepts", [AsModel, AsDataclass, AsPydanticDataclass])
def test_a_field_with_a_default_has_it(accepts: Any) -> None:
    assert Accepted(accepts).check({"item": Item(price=1)}) == {"item": Item(price=1), "count": 1}


@pytest.mark.parametrize("accepts", [AsTypedDict, AsTypedDictOfPython, AS_MAPPING])
def test_what_need_not_be_there_is_left_out(accepts: Any) -> None:
    assert Accepted(accepts).check({"item": Item(price=1)}) == {"item": Item(price=1)}


@pytest.mark.parametrize("strict", [False, True])
def test_a_dataclass_checks_itself_too(strict: bool) -> None:
    with pytest.raises(ValidationError, match="fewer than nothing"):
        Accepted(AsDataclass, strict=strict).check({"item": Item(price=1), "count": -1})


def test_a_field_with_an_alias_is_read_by_it() -> None:
    class Aliased(BaseModel):
        item: int = Field(alias="the item")

    accepted = Accepted(Aliased)
    assert accepted.names == ("the item",)
    assert accepted.check({"the item": "3"}) == {"the item": 3}


def test_a_field_that_is_read_from_several_places_is_refused() -> None:
    class Deep(BaseModel):
        price: int = Field(validation_alias=AliasPath("item", "price"))

    with pytest.raises(ConfigurationError, match="without AliasPath and AliasChoices; give 'price'"):
        Accepted(Deep)


def test_classes_that_pydantic_does_not_know_are_asked_for_by_isinstance() -> None:
    accepted = Accepted({"client": Client, "names": Iterable[str], "rest": Any})
    names = iter("ab")
    values = {"client": Client(), "names": names, "rest": 1}
    assert accepted.check(values) == values
    assert list(names) == ["a", "b"]
    with pytest.raises(ValidationError) as caught:
        accepted.check({"client": 1, "names": 2, "rest": 1})
    assert [error["loc"] for error in caught.value.errors()] == [("client",), ("names",)]


@pytest.mark.parametrize(
    "wrong", [int, "Order", {"order": "Order"}, {1: int}, list[int], AsModel(item=Item(price=1))]
)
def test_what_says_no_names_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="a mapping from names to types"):
        Accepted(wrong)


def test_a_model_whose_names_are_not_defined_is_refused() -> None:
    class Later(BaseModel):
        order: Missing  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(ConfigurationError, match="with all its names defined"):
        Accepted(Later)
