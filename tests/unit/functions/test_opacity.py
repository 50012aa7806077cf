"""Where values are opaque is read from the schema of their type, and nothing of them is left behind."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypeVar

import pydantic.dataclasses
import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    RootModel,
    SerializeAsAny,
    TypeAdapter,
    ValidationError,
    computed_field,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)
from typing_extensions import TypeAliasType, TypedDict

from fastroai.functions import opaque
from fastroai.functions.declaring.declared import DeclaredType
from fastroai.functions.declaring.opacity import ELIDED, one_line_json, without_opaque

SECRET = "SECRET"
T = TypeVar("T")
Remark = TypeAliasType("Remark", opaque[str])
Body = NewType("Body", str)


class Inner(BaseModel):
    note: opaque[str]
    size: int = 1


class Plain(BaseModel):
    note: str
    size: int = 1


class Other(BaseModel):
    seen: str


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    says: opaque[str]


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    says: str


class Box(BaseModel, Generic[T]):
    inside: T


class Pair(NamedTuple):
    first: str
    second: opaque[str]


class Keyed(TypedDict):
    shown: str
    hidden: opaque[str]


@dataclasses.dataclass
class Standard:
    shown: str
    hidden: opaque[str]


@pydantic.dataclasses.dataclass
class Checked:
    shown: str
    hidden: opaque[str]


class Notes(RootModel[list[opaque[str]]]):
    pass


class Aliased(BaseModel):
    hidden: opaque[str] = Field(alias="text")


class Both(BaseModel):
    first: opaque[Plain]
    second: Plain


class Sub(Inner):
    more: str = "shown"


class Node(BaseModel):
    note: opaque[str]
    children: list[Node] = []


VISIBLE_AND_HIDDEN: list[tuple[Any, Any, JsonValue]] = [
    (opaque[str], SECRET, ELIDED),
    (str, "shown", "shown"),
    (opaque[str] | None, SECRET, ELIDED),
    (opaque[str] | None, None, ELIDED),
    (list[opaque[str]], [SECRET, SECRET], [ELIDED, ELIDED]),
    (opaque[list[str]], [SECRET], ELIDED),
    (dict[str, opaque[str]], {SECRET: "a"}, ELIDED),
    (dict[str, opaque[str]], {}, {}),
    (dict[opaque[str], int], {SECRET: 1}, ELIDED),
    (tuple[str, opaque[str]], ("shown", SECRET), ["shown", ELIDED]),
    (tuple[opaque[str], ...], (SECRET,), [ELIDED]),
    (set[opaque[str]], {SECRET}, [ELIDED]),
    (Sequence[opaque[str]], [SECRET], ELIDED),
    (Inner, {"note": SECRET}, {"note": ELIDED, "size": 1}),
    (Inner | None, {"note": SECRET}, {"note": ELIDED, "size": 1}),
    (list[Inner], [{"note": SECRET}], [{"note": ELIDED, "size": 1}]),
    (dict[str, list[Inner]], {"a": [{"note": SECRET}]}, ELIDED),
    (list[dict[str, Inner]], [{}, {SECRET: {"note": "a"}}], [{}, ELIDED]),
    (opaque[Inner], {"note": SECRET}, ELIDED),
    (
        Both,
        {"first": {"note": SECRET}, "second": {"note": "shown"}},
        {"first": ELIDED, "second": {"note": "shown", "size": 1}},
    ),
    (Box[opaque[str]], {"inside": SECRET}, {"inside": ELIDED}),
    (
        Box[Box[Inner]],
        {"inside": {"inside": {"note": SECRET}}},
        {"inside": {"inside": {"note": ELIDED, "size": 1}}},
    ),
    (Pair, ("shown", SECRET), ["shown", ELIDED]),
    (Keyed, {"shown": "shown", "hidden": SECRET}, {"shown": "shown", "hidden": ELIDED}),
    (Standard, {"shown": "shown", "hidden": SECRET}, {"shown": "shown", "hidden": ELIDED}),
    (Checked, {"shown": "shown", "hidden": SECRET}, {"shown": "shown", "hidden": ELIDED}),
    (Notes, [SECRET], [ELIDED]),
    (Aliased, {"text": SECRET}, {"hidden": ELIDED}),
    (Remark, SECRET, ELIDED),
    (opaque[Body], SECRET, ELIDED),
    (Annotated[opaque[str], Field(min_length=2)], SECRET, ELIDED),
    (opaque[Annotated[str, Field(min_length=2)]], SECRET, ELIDED),
    (Annotated[opaque[str], AfterValidator(str.strip)], SECRET, ELIDED),
    (Annotated[opaque[str], BeforeValidator(str)], SECRET, ELIDED),
    (opaque[JsonValue], {"deep": [SECRET]}, ELIDED),
    (opaque[bytes], SECRET.encode(), ELIDED),
    # The type does not say which of the two it is: so it is data.
    (opaque[str] | str, SECRET, ELIDED),
    (opaque[str] | int, 5, ELIDED),
    # Of a union of classes, where one of them has it.
    (Cat | Dog, {"kind": "dog", "says": "x"}, {"kind": "dog", "says": ELIDED}),
    (
        Annotated[Cat | Dog, Field(discriminator="kind")],
        {"kind": "cat", "says": SECRET},
        {"kind": "cat", "says": ELIDED},
    ),
    (Inner | int, 5, 5),
    (Inner | Plain, {"note": SECRET}, {"note": ELIDED, "size": 1}),
    (Inner | Other, {"seen": "x"}, ELIDED),
    (Inner | dict[str, int], {SECRET: 1}, ELIDED),
    (Inner | str, SECRET, ELIDED),
    # Deeper than one level of a type that holds itself, all is data if any of it is.
    (Node, {"note": SECRET, "children": [{"note": SECRET}]}, {"note": ELIDED, "children": [ELIDED]}),
]


@pytest.mark.parametrize(("annotation", "value", "shown"), VISIBLE_AND_HIDDEN)
def test_opaque_values_are_left_out_at_any_depth(annotation: Any, value: Any, shown: JsonValue) -> None:
    declared = DeclaredType(annotation, "value")
    checked = declared.check(value)
    assert declared.elided(checked) == shown
    assert SECRET not in json.dumps(declared.elided(checked))


@pytest.mark.parametrize(("annotation", "value", "shown"), VISIBLE_AND_HIDDEN)
def test_pydantic_and_json_schema_see_the_type_itself(annotation: Any, value: Any, shown: JsonValue) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    checked = adapter.validate_python(value)
    assert ELIDED not in adapter.dump_json(checked).decode()
    assert "opaque" not in json.dumps(adapter.json_schema())


def test_help_says_what_it_is() -> None:
    assert (opaque.__doc__ or "").startswith("A value that is never in an instruction to a model")


def upper(value: Any) -> str:
    return str(value).upper()


class FieldSerializer(BaseModel):
    hidden: opaque[str]

    @field_serializer("hidden")
    def _written(self, value: str) -> str:
        return f"it is {value}"


class ModelSerializer(BaseModel):
    hidden: opaque[str]

    @model_serializer
    def _written(self) -> dict[str, str]:
        return {"renamed": self.hidden}


class Computed(BaseModel):
    hidden: opaque[str]
    shown: str = "shown"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def start(self) -> str:
        return self.hidden[:3]


class ComputedFromNothing(BaseModel):
    shown: str = "shown"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def long(self) -> str:
        return f"long {self.shown}"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def said(self) -> opaque[str]:
        return SECRET


class Extra(BaseModel):
    model_config = ConfigDict(extra="allow")
    shown: str = "shown"


class TypedExtra(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, int]
    shown: str = "shown"


class ExtraKeys(TypedDict):
    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]
    shown: str


class Polymorphic(BaseModel):
    model_config = ConfigDict(polymorphic_serialization=True)
    shown: str = "shown"


class MoreOfIt(Polymorphic):
    hidden: opaque[str] = SECRET


class Outer(BaseModel):
    base: Polymorphic


class Replaced(BaseModel):
    hidden: opaque[str]

    @model_validator(mode="after")
    def _same(self) -> Replaced:
        return self


@pytest.mark.parametrize(
    ("annotation", "value", "shown"),
    [
        (Annotated[opaque[str], PlainSerializer(upper)], SECRET, ELIDED),
        (Annotated[list[opaque[str]], PlainSerializer(upper)], [SECRET], ELIDED),
        (Annotated[Inner, PlainSerializer(lambda inner: inner.note)], {"note": SECRET}, ELIDED),
        (Annotated[int, PlainSerializer(upper)], 5, "5"),
        (Annotated[int, PlainSerializer(upper, return_type=opaque[str])], 5, ELIDED),
        (FieldSerializer, {"hidden": SECRET}, {"hidden": ELIDED}),
        (ModelSerializer, {"hidden": SECRET}, ELIDED),
        (list[ModelSerializer], [{"hidden": SECRET}], [ELIDED]),
        (Computed, {"hidden": SECRET}, {"hidden": ELIDED, "shown": "shown", "start": ELIDED}),
        (ComputedFromNothing, {}, {"shown": "shown", "long": "long shown", "said": ELIDED}),
        (Extra, {SECRET: SECRET}, ELIDED),
        (Extra, {}, {"shown": "shown"}),
        (TypedExtra, {"other": 1}, {"shown": "shown", "other": 1}),
        (ExtraKeys, {"shown": "shown", SECRET: SECRET}, ELIDED),
        (SerializeAsAny[Plain], Plain(note=SECRET), ELIDED),
        (Outer, {"base": MoreOfIt()}, {"base": ELIDED}),
        (Inner, Sub(note=SECRET), {"note": ELIDED, "size": 1}),
        (Replaced, {"hidden": SECRET}, {"hidden": ELIDED}),
    ],
)
def test_what_a_type_does_not_say_is_data(annotation: Any, value: Any, shown: JsonValue) -> None:
    declared = DeclaredType(annotation, "value")
    assert declared.elided(declared.check(value)) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"note": SECRET, "size": 1}, {"note": ELIDED, "size": 1}),
        ({SECRET: SECRET, "size": [1]}, ELIDED),
        ([{"note": SECRET}], [ELIDED]),
        (SECRET, ELIDED),
        ({"note": None}, {"note": ELIDED}),
    ],
)
def test_of_json_that_is_not_of_the_type_everything_is_left_out_that_could_be_opaque(
    value: JsonValue, shown: JsonValue
) -> None:
    opacity = DeclaredType(Inner, "value").opacity
    assert without_opaque(value, opacity, "", lambda path, part: ELIDED) == shown


def test_each_place_has_a_path_of_its_own() -> None:
    parts = [TypedDict(f"T{number}", {key: list[opaque[str]]}) for number, key in enumerate(["b", "", "\n"])]  # type: ignore[misc,operator]  # pyright: ignore
    whole = TypedDict(  # type: ignore[misc,operator]  # pyright: ignore
        "Whole", {"a": parts[0], "a.b": parts[1], 'a"]["b': parts[0], "ü b": parts[2]}
    )
    declared = DeclaredType(whole, "d")
    value = {"a": {"b": ["1"]}, "a.b": {"": ["2"]}, 'a"]["b': {"b": ["3", "4"]}, "ü b": {"\n": ["5"]}}
    found: dict[str, JsonValue] = {}
    without_opaque(declared.json_of(value), declared.opacity, "d", found.setdefault)
    assert found == {
        "d.a.b[0]": "1",
        'd["a.b"][""][0]': "2",
        'd["a\\"][\\"b"].b[0]': "3",
        'd["a\\"][\\"b"].b[1]': "4",
        'd["ü b"]["\\n"][0]': "5",
    }


@pytest.mark.parametrize(
    "text", ["a\u2028b", "a\x85b", "a\u202eb", "a\U000e0041b", "a\ud800b", "a\x7fb", "\u200b"]
)
def test_text_that_hides_or_ends_a_line_is_escaped_and_comes_back(text: str) -> None:
    written = one_line_json({text: [text]})
    assert written.isprintable()
    assert len(written.splitlines()) == 1
    assert json.loads(written) == {text: [text]}


def test_text_in_other_scripts_stays_readable() -> None:
    assert one_line_json("数据 نص 🙂") == '"数据 نص 🙂"'


def test_numbers_that_json_does_not_have_become_text() -> None:
    assert one_line_json([float("inf"), float("nan")]) == '["Infinity","NaN"]'


def refuse(value: str) -> str:
    raise ValueError(f"{value} is refused")


class Refused(BaseModel):
    hidden: opaque[str]
    shown: int = 0

    @field_validator("hidden")
    @classmethod
    def _check(cls, value: str) -> str:
        return refuse(value)


class Refuses(BaseModel):
    hidden: opaque[str]

    @model_validator(mode="after")
    def _check(self) -> Refuses:
        raise ValueError(f"{self.hidden} is refused")


class Swapped(BaseModel):
    one: opaque[int] = Field(alias="other")
    other: str = Field(default="", alias="one")


class Closed(Inner):
    model_config = ConfigDict(extra="forbid")


class DeepAlias(BaseModel):
    inner: Inner = Field(validation_alias=AliasPath("texts", 0))


class ManyAliases(BaseModel):
    hidden: opaque[int] = Field(validation_alias=AliasChoices("text", AliasPath("texts", 0)))


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (opaque[int], SECRET, (("int_parsing", ()),)),
        (Inner, {"note": 5, "size": "x"}, (("string_type", ("note",)), ("int_parsing", ("size",)))),
        (Refused, {"hidden": SECRET}, (("value_error", ("hidden",)),)),
        (Refuses, {"hidden": SECRET}, (("value_error", ()),)),
        (Inner, SECRET, (("model_type", ()),)),
        (opaque[dict[str, int]], {SECRET: "x"}, (("int_parsing", ()),)),
        (list[opaque[int]], [1, SECRET], (("int_parsing", (1,)),)),
        (Cat | Plain, {"says": [SECRET]}, None),
        (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": SECRET}, (("union_tag_invalid", ()),)),
        (Aliased, {"text": [SECRET]}, (("string_type", ("text",)),)),
        (Swapped, {"other": SECRET}, (("int_parsing", ("other",)),)),
        (ManyAliases, {"text": SECRET}, (("int_parsing", ("text",)),)),
        (ManyAliases, {"texts": [SECRET]}, (("int_parsing", ("texts",)),)),
        (DeepAlias, {"texts": [{"note": [SECRET]}]}, (("string_type", ("texts",)),)),
        (Keyed, {"shown": "x", "hidden": [SECRET]}, (("string_type", ("hidden",)),)),
        (dict[str, opaque[int]], {SECRET: "x"}, (("int_parsing", ()),)),
        (dict[str, list[Inner]], {SECRET: [{"note": 5}]}, (("string_type", ()),)),
        (Closed, {"note": "x", SECRET: 5}, (("extra_forbidden", ()),)),
    ],
)
def test_errors_about_opaque_values_do_not_quote_them(
    annotation: Any, value: Any, expected: tuple[tuple[str, tuple[str | int, ...]], ...] | None
) -> None:
    declared = DeclaredType(annotation, "value")
    with pytest.raises(ValidationError) as caught:
        declared.check(value)
    details = declared.details_of(caught.value)
    assert SECRET not in str(details)
    if expected is not None:
        assert tuple((detail["type"], detail["loc"]) for detail in details) == expected


def test_errors_about_other_values_say_what_was_wrong() -> None:
    declared = DeclaredType(Inner, "value")
    with pytest.raises(ValidationError) as caught:
        declared.check({"note": SECRET, "size": "big"})
    (detail,) = declared.details_of(caught.value)
    assert (detail["loc"], detail["input"]) == (("size",), "'big'")
    assert "valid integer" in detail["msg"]
