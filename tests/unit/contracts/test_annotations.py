"""What annotations say, and what checks values of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Never, Protocol, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError, model_validator

from fastroai.contracts import adapter_of
from fastroai.contracts.annotations import Checker, checkable, checker_of, exact_class, says_something


class Order(BaseModel):
    total: int


class Revalidated(BaseModel):
    model_config = ConfigDict(revalidate_instances="always")
    total: int


class Watched(BaseModel):
    total: int

    @model_validator(mode="after")
    def look(self) -> Watched:
        return self


class Client:
    """A class that pydantic does not know."""


@dataclass
class Session:
    client: Client


class Closable(Protocol):
    def close(self) -> None: ...


@pytest.mark.parametrize("annotation", [Any, object, Never, TypeVar("T")])
def test_an_annotation_that_rules_nothing_out_says_nothing(annotation: Any) -> None:
    assert not says_something(annotation)


@pytest.mark.parametrize("annotation", [int, type(None), list[Any], Order, int | None])
def test_an_annotation_that_rules_something_out_says_something(annotation: Any) -> None:
    assert says_something(annotation)


def test_an_adapter_is_made_once() -> None:
    assert adapter_of(list[Order]) is adapter_of(list[Order])


def test_unions_that_are_equal_but_ordered_otherwise_have_adapters_of_their_own() -> None:
    left, right = adapter_of(float | int), adapter_of(int | float)
    assert left is not None
    assert right is not None
    assert (left.validate_python("1"), right.validate_python("1")) == (1.0, 1)
    assert type(left.validate_python("1")) is not type(right.validate_python("1"))


def test_an_annotation_without_a_hash_has_an_adapter_too() -> None:
    adapter = adapter_of(Annotated[int, {"unit": "euro"}])
    assert adapter is not None
    assert adapter.validate_python("3") == 3


@pytest.mark.parametrize("annotation", [Client, list[Client], dict[str, Client | None]])
def test_a_class_that_pydantic_does_not_know_is_asked_for_by_isinstance(annotation: Any) -> None:
    adapter = adapter_of(annotation)
    value = {list[Client]: [Client()], Client: Client()}.get(annotation, {"a": Client(), "b": None})
    assert adapter is not None
    assert adapter.validate_python(value) == value
    with pytest.raises(ValidationError, match="instance of Client"):
        adapter.validate_python(
            [1] if isinstance(value, list) else {"a": 1} if isinstance(value, dict) else 1
        )


@pytest.mark.parametrize("annotation", [Session, Iterable[int], Iterator[int], list[Iterable[int]], Closable])
def test_pydantic_has_no_adapter_that_leaves_values_what_they_are(annotation: Any) -> None:
    assert adapter_of(annotation) is None


@pytest.mark.parametrize(
    ("annotation", "fits", "does_not"),
    [
        (Session, Session(Client()), {"client": 1}),
        (Iterable[int], ["not looked at"], 3),
        (list[Iterable[int]], [1], 3),
    ],
)
def test_without_an_adapter_the_outer_class_is_asked_for(
    annotation: Any, fits: object, does_not: object
) -> None:
    checker = checker_of(annotation)
    assert checker is not None
    assert checker.validate_python(fits) is fits
    with pytest.raises(ValidationError):
        checker.validate_python(does_not)


@pytest.mark.parametrize("annotation", [Closable, list["Missing"], "Missing"])  # noqa: F821
def test_what_nobody_can_ask_for_is_not_checked(annotation: Any) -> None:
    checker = checker_of(annotation)
    assert checker is None or checker.validate_python([1]) == [1]
    assert checker is not None or checkable(annotation) is Any


@pytest.mark.parametrize("annotation", [int, str, bool, float, bytes, Order, Client, Session, RootModel[int]])
def test_an_instance_of_exactly_the_class_needs_no_check(annotation: Any) -> None:
    checker, adapter = Checker.of(annotation), checker_of(annotation)
    assert checker is not None
    assert checker.exact is annotation
    assert adapter is not None
    assert exact_class(annotation, adapter) is annotation  # what is said of plain classes is true of them


def test_plain_classes_are_checked_and_converted_as_any_others() -> None:
    checker = Checker.of(float)
    assert checker is not None
    assert checker.check(3, strict=None) == 3.0
    with pytest.raises(ValidationError):
        checker.check("no number", strict=None)


@pytest.mark.parametrize(
    "annotation",
    [list, list[int], int | None, Revalidated, Watched, Annotated[int, Field(gt=0)], dict[str, int]],
)
def test_an_instance_that_pydantic_would_look_into_does(annotation: Any) -> None:
    checker = checker_of(annotation)
    assert checker is not None
    assert exact_class(annotation, checker) is None
