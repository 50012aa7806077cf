"""Contracts: pydantic models, dataclasses and plain classes, and the declarations that cannot work."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable
from datetime import date
from enum import Enum
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import pydantic.dataclasses
import pytest
from pydantic import BaseModel, Field, RootModel, TypeAdapter, ValidationError
from typing_extensions import TypeAliasType, TypedDict

from fastroai.functions import contract, hash_of, opaque, schema_of
from fastroai.functions.declaring.contracts import is_contract, unregistered_in
from fastroai.functions.errors import CompileError

T = TypeVar("T")
RAW = b"\xff\xfe\x00"


@contract
class Part(BaseModel):
    name: str
    kind: Literal["bolt", "nut"] = "bolt"


@contract
class AsModel(BaseModel):
    raw: bytes
    day: date | None = None
    parts: list[Part] = []


@contract
@dataclasses.dataclass
class AsDataclass:
    raw: bytes
    day: date | None = None
    parts: list[Part] = dataclasses.field(default_factory=list)


@contract
@dataclasses.dataclass(frozen=True, slots=True)
class AsFrozen:
    raw: bytes
    day: date | None = None
    parts: list[Part] = dataclasses.field(default_factory=list)


@contract
@pydantic.dataclasses.dataclass
class AsChecked:
    raw: bytes
    day: date | None = None
    parts: list[Part] = Field(default_factory=list)


@contract
class AsPlain:
    raw: bytes
    day: date | None = None
    parts: list[Part] = Field(default_factory=list)


KINDS = [AsModel, AsDataclass, AsFrozen, AsChecked, AsPlain]


@pytest.mark.parametrize("cls", KINDS)
def test_all_kinds_of_class_have_base64_bytes_dates_and_nested_contracts(cls: type[AsModel]) -> None:
    adapter = TypeAdapter(cls)
    value = cls(raw=RAW, day=date(2026, 3, 1), parts=[Part(name="x")])
    written = adapter.dump_python(value, mode="json")
    assert base64.urlsafe_b64decode(written["raw"]) == RAW
    assert written["day"] == "2026-03-01"
    assert adapter.validate_json(adapter.dump_json(value)) == value
    assert is_contract(cls)


@pytest.mark.parametrize("cls", KINDS)
def test_all_kinds_of_class_have_the_same_schema(cls: type) -> None:
    schema = schema_of(cls) | {"title": ""}
    schema.pop("description", None)
    for properties in (schema["properties"],):
        properties["parts"].pop("default", None)  # type: ignore[index, call-overload, union-attr]
    expected = schema_of(AsModel) | {"title": ""}
    expected["properties"]["parts"].pop("default")  # type: ignore[index, call-overload, union-attr]
    assert schema == expected


def test_a_plain_class_becomes_a_dataclass_that_checks_its_fields() -> None:
    @contract
    class Score:
        value: Annotated[float, Field(ge=0, le=1)]
        reason: str = "none"

    assert Score(0.5) == Score(value=0.5, reason="none")
    with pytest.raises(ValidationError, match="less than or equal to 1"):
        Score(1.5)


def test_a_plain_subclass_of_a_contract_adds_its_fields() -> None:
    @contract
    class Longer(AsPlain):
        more: int = 0

    @contract
    class Wider(AsDataclass):
        more: int = 0

    for cls in (Longer, Wider):
        assert set(schema_of(cls)["properties"]) == {"raw", "day", "parts", "more"}  # type: ignore[arg-type]
        assert cls(RAW, more=2).more == 2


def test_a_contract_can_use_other_contracts_of_the_same_function() -> None:
    @contract
    class Inner(BaseModel):
        text: opaque[str]

    @contract
    class Outer:
        inner: Inner
        others: dict[str, Inner] | None = None

    assert schema_of(Outer)["required"] == ["inner"]
    assert Outer(inner={"text": "x"}).inner.text == "x"  # type: ignore[arg-type]


def test_a_contract_can_be_generic_a_root_model_or_a_subclass() -> None:
    @contract
    class Page(BaseModel, Generic[T]):
        items: list[T]

    @contract
    class Names(RootModel[list[str]]):
        pass

    class Unregistered(Part):
        pass

    assert is_contract(Page[int])
    with pytest.raises(CompileError, match="accepts anything"):
        schema_of(Page)
    assert schema_of(Names)["items"] == {"type": "string"}
    assert list(unregistered_in(Page[int])) == []
    assert list(unregistered_in(list[Unregistered] | None)) == [Unregistered]


class Loose(BaseModel):
    a: int


class LooseKeys(TypedDict):
    a: int


class LooseTuple(NamedTuple):
    a: int


@dataclasses.dataclass
class LooseData:
    a: int


Alias = TypeAliasType("Alias", list[Loose])


@pytest.mark.parametrize(
    ("annotation", "found"),
    [
        (int, []),
        (list[Part] | None, []),
        (date, []),
        (Loose, [Loose]),
        (dict[str, list[Loose | None]], [Loose]),
        (Annotated[LooseData, "x"], [LooseData]),
        (tuple[LooseKeys, LooseTuple], [LooseKeys, LooseTuple]),
        (Alias, [Loose]),
        (Literal["a"], []),
    ],
)
def test_classes_with_fields_that_are_no_contracts_are_found(annotation: Any, found: list[type]) -> None:
    assert list(unregistered_in(annotation)) == found


def problems(declare: Callable[[], object]) -> tuple[str, ...]:
    with pytest.raises(CompileError) as caught:
        declare()
    return caught.value.problems


def test_a_contract_without_fields_is_refused() -> None:
    class Model(BaseModel):
        pass

    class Plain:
        pass

    for cls in (Model, Plain):
        assert problems(lambda cls=cls: contract(cls)) == (  # type: ignore[misc]
            "it has no fields; a contract says what is expected, so it has at least one",
        )


def test_something_of_another_kind_is_refused() -> None:
    class Color(Enum):
        RED = "red"

    for other in ("Sentiment", Color, LooseKeys, LooseTuple, type("Text", (str,), {})):
        assert problems(lambda other=other: contract(other)) == (  # type: ignore[misc, arg-type]
            "it is neither a pydantic model, nor a dataclass, nor a plain class with annotations",
        )


def test_a_circular_reference_is_refused_with_the_field() -> None:
    class Model(BaseModel):
        name: str
        children: list[Model] = []

    class Plain:
        name: str
        parent: Plain | None = None

    @dataclasses.dataclass
    class Standard:
        by_name: dict[str, tuple[Standard, int]]

    circular = "it refers back to a type around it, and a contract must not be circular"
    assert problems(lambda: contract(Model)) == (f"children[...]: {circular}",)
    assert problems(lambda: contract(Plain)) == (f"parent: {circular}",)
    assert problems(lambda: contract(Standard)) == (f"by_name[...][0]: {circular}",)


def test_a_circle_through_another_class_is_refused_too() -> None:
    class Inner(BaseModel):
        outer: Outer | None = None

    class Outer(BaseModel):
        inner: Inner

    Inner.model_rebuild(_types_namespace={"Outer": Outer})
    (problem,) = problems(lambda: contract(Outer))
    assert problem.startswith("inner.outer: it refers back")


def test_fields_without_a_schema_are_named_all_at_once() -> None:
    class Unknown:
        pass

    class Model(BaseModel):
        model_config = {"arbitrary_types_allowed": True}
        anything: Any
        call: Callable[[], int]
        unknown: Unknown

    assert [problem.partition(":")[0] for problem in problems(lambda: contract(Model))] == [
        "anything",
        "call",
        "unknown",
    ]
    with pytest.raises(CompileError) as caught:

        @contract
        class Plain:
            good: int
            unknown: Unknown
            missing: Missing  # type: ignore[name-defined]  # noqa: F821

    unknown, missing = caught.value.problems
    assert unknown.startswith("unknown: Unable to generate pydantic-core schema for <class")
    assert (
        missing == "missing: name 'Missing' is not defined; a contract is declared after those in its fields"
    )


def test_the_error_names_the_contract() -> None:
    class Wrong(BaseModel):
        value: Any

    with pytest.raises(CompileError, match="^contract 'Wrong': value: it accepts anything"):
        contract(Wrong)


def test_a_model_keeps_its_other_settings() -> None:
    @contract
    class Strict(BaseModel):
        model_config = {"extra": "forbid", "ser_json_bytes": "hex", "val_json_bytes": "hex"}
        raw: bytes

    assert schema_of(Strict)["additionalProperties"] is False
    assert Strict(raw=RAW).model_dump(mode="json") == {"raw": "fffe00"}
    assert hash_of(Strict) != hash_of(AsModel)


def test_contract_can_have_parentheses() -> None:
    @contract()
    class Grade:
        value: int
        parts: list[Part]

    assert is_contract(Grade)
    assert schema_of(Grade)["required"] == ["value", "parts"]
    with pytest.raises(CompileError, match="contract '3'"):
        contract(3)  # type: ignore[call-overload]


def test_variables_of_the_class_are_no_fields() -> None:
    with pytest.raises(CompileError, match="it has no fields"):

        @contract
        class Empty:
            limit: ClassVar[int] = 3
