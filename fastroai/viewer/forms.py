"""A form made from a JSON Schema, and the value that a person has given in it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from pydantic import JsonValue

from fastroai.records import NOT_GIVEN, NotGiven

Kind: TypeAlias = Literal[
    "yes_no", "choice", "choices", "text", "line", "number", "lines", "json", "free", "group"
]

NO_VALUE: Final = "none"
"""What the form says for "no value", beside the numbers of choices."""
_DEEPEST: Final = 4
_MOST_FIELDS: Final = 60
_INPUT_TYPES: Final = {"date": "date", "email": "email", "time": "time"}
_LONG: Final = 120
"""Most characters of a text that has one line in the form, if its type bounds them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a form, or a group of fields. Its kind says how it looks and how it is read."""

    name: str
    kind: Kind
    label: str = ""
    description: str = ""
    required: bool = True
    """Whether a value is needed. Without one, a field that is not needed is left out of the object."""
    nullable: bool = False
    """Whether "no value" is a value."""
    choices: tuple[JsonValue, ...] = ()
    fields: tuple[Field, ...] = ()
    input_type: str = "text"
    limits: Mapping[str, str] = field(default_factory=dict)
    """Attributes of the element: `min`, `max`, `step`, `minlength`, `maxlength`."""
    is_whole: bool = False
    default: JsonValue = None


def form_of(schema: Mapping[str, Any] | None, options: Sequence[JsonValue] | None) -> Field:
    """Return the form for an answer. What the schema cannot say in fields is asked for as JSON."""
    if options is not None:
        return Field(name="answer", kind="choice", label="Answer", choices=tuple(options))
    if schema is None:
        return Field(name="answer", kind="free", label="Answer")
    made = _Forms(schema.get("$defs", {}), _MOST_FIELDS)
    return replace(made.field("answer", "Answer", schema, _DEEPEST), label="Answer")


class _Forms:
    def __init__(self, known: Mapping[str, Any], most: int) -> None:
        self._known, self._left = known, most

    def field(self, name: str, label: str, schema: Any, depth: int) -> Field:
        """Return the field of a value. Raises nothing: a schema that is not understood asks for JSON."""
        found = self._resolved(schema)
        inner, nullable = self._without_null(found)
        self._left -= 1
        return replace(
            self._shape(name, inner, depth if self._left > 0 else 0),
            label=str(inner.get("title") or found.get("title") or label),
            description=str(found.get("description") or inner.get("description") or ""),
            nullable=nullable,
            default=found.get("default"),
        )

    def _resolved(self, schema: Any) -> Mapping[str, Any]:
        """Return a schema whose reference, if it is one, is followed; its own words come first."""
        for _ in range(_DEEPEST):
            if not isinstance(schema, dict):
                return {}
            if isinstance(parts := schema.get("allOf"), list) and len(parts) == 1:
                schema = {**parts[0], **{key: value for key, value in schema.items() if key != "allOf"}}
            elif isinstance(ref := schema.get("$ref"), str):
                own = {key: value for key, value in schema.items() if key != "$ref"}
                schema = {**self._known.get(ref.rpartition("/")[2], {}), **own}
            else:
                return schema
        return {}

    def _without_null(self, schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
        """Return the schema of the value if there is one, and whether there may be none."""
        choices = schema.get("anyOf")
        if not isinstance(choices, list):
            return schema, False
        others = [one for one in choices if not (isinstance(one, dict) and one.get("type") == "null")]
        if len(others) == 2 and {one.get("type") for one in others} == {"number", "string"}:
            others = [{"type": "string", "maxLength": _LONG}]  # a decimal: as text it stays exact
        is_null = len(others) < len(choices) and len(choices) - len(others) == 1
        return (self._resolved(others[0]), is_null) if len(others) == 1 else (schema, False)

    def _shape(self, name: str, schema: Mapping[str, Any], depth: int) -> Field:
        if "const" in schema:
            return Field(name=name, kind="choice", choices=(schema["const"],))
        if isinstance(values := schema.get("enum"), list):
            return Field(name=name, kind="choice", choices=tuple(values))
        match schema.get("type"):
            case "boolean":
                return Field(name=name, kind="yes_no")
            case "integer" | "number" as kind:
                return _number(name, schema, is_whole=kind == "integer")
            case "string":
                return _text(name, schema)
            case "array" if depth:
                return self._several(name, self._resolved(schema.get("items")), schema)
            case "object" if depth and isinstance(schema.get("properties"), dict):
                return Field(name=name, kind="group", fields=tuple(self._fields(name, schema, depth - 1)))
        return Field(name=name, kind="json")

    def _fields(self, name: str, schema: Mapping[str, Any], depth: int) -> Iterator[Field]:
        needed = schema.get("required", ())
        for key, of_key in schema["properties"].items():
            label = key.replace("_", " ").capitalize()
            made = self.field(f"{name}/{key}", label, of_key, depth)
            yield replace(made, required=key in needed)

    def _several(self, name: str, item: Mapping[str, Any], schema: Mapping[str, Any]) -> Field:
        if isinstance(values := item.get("enum"), list) and schema.get("uniqueItems"):
            return Field(name=name, kind="choices", choices=tuple(values))
        is_text = item.get("type") == "string" and "enum" not in item
        return Field(name=name, kind="lines" if is_text else "json")


def _number(name: str, schema: Mapping[str, Any], *, is_whole: bool) -> Field:
    limits = {"step": "1" if is_whole else "any"}
    for attribute, keyword in (("min", "minimum"), ("max", "maximum")):
        if isinstance(limit := schema.get(keyword), int | float):
            limits[attribute] = f"{limit}"
    return Field(name=name, kind="number", limits=limits, is_whole=is_whole)


def _text(name: str, schema: Mapping[str, Any]) -> Field:
    limits = {
        attribute: f"{schema[keyword]}"
        for attribute, keyword in (("minlength", "minLength"), ("maxlength", "maxLength"))
        if isinstance(schema.get(keyword), int)
    }
    input_type = _INPUT_TYPES.get(str(schema.get("format")), "text")
    most = schema.get("maxLength")
    is_line = input_type != "text" or (isinstance(most, int) and most <= _LONG)
    return Field(name=name, kind="line" if is_line else "text", limits=limits, input_type=input_type)


def blank(form: Field) -> Given:
    """Return what a form says before anybody has changed it: the defaults of its fields."""
    return Given(dict(_defaults(form)))


def _defaults(one: Field) -> Iterator[tuple[str, Sequence[str]]]:
    for part in one.fields:
        yield from _defaults(part)
    found = one.default
    if found is None:
        return
    if one.kind in ("choice", "choices"):
        values = found if one.kind == "choices" and isinstance(found, list) else [found]
        yield one.name, [str(one.choices.index(value)) for value in values if value in one.choices]
    elif one.kind == "lines" and isinstance(found, list):
        yield one.name, ["\n".join(map(str, found))]
    elif one.kind != "group":
        yield one.name, [found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)]


@dataclass(slots=True)
class Given:
    """What a person has given in a form."""

    texts: Mapping[str, Sequence[str]]
    """The values of each field, as the browser sent them."""
    problems: dict[str, str] = field(default_factory=dict)
    """What is wrong, by the name of the field."""

    def first(self, name: str) -> str:
        """Return the text of a field; empty if there is none."""
        return next(iter(self.texts.get(name, ())), "")

    def value(self, form: Field) -> JsonValue:
        """Return the answer as JSON. What is wrong with it is in `problems`."""
        found = self._value(form)
        return None if isinstance(found, NotGiven) else found

    def _value(self, one: Field) -> JsonValue | NotGiven:
        if one.kind == "group":
            found = {part.name.rpartition("/")[2]: self._value(part) for part in one.fields}
            return {name: value for name, value in found.items() if not isinstance(value, NotGiven)}
        if one.kind == "choices":
            return [one.choices[int(text)] for text in self.texts.get(one.name, ()) if _is_of(text, one)]
        text = self.first(one.name)
        if one.kind == "lines":
            return [line.strip() for line in text.splitlines() if line.strip()]
        if one.kind in ("text", "line") and (text or (one.required and not one.nullable)):
            return text.replace("\r\n", "\n")
        if not text.strip() or text == NO_VALUE:
            return self._nothing(one)
        return self._read(one, text.strip())

    def _nothing(self, one: Field) -> JsonValue | NotGiven:
        if not one.required:
            return NOT_GIVEN
        if not one.nullable:
            self.problems[one.name] = "This is needed."
        return None

    def _read(self, one: Field, text: str) -> JsonValue:
        if one.kind == "yes_no":
            return text == "true"
        if one.kind == "choice":
            if _is_of(text, one):
                return one.choices[int(text)]
            self.problems[one.name] = "Choose one of these."
        elif one.kind == "number":
            return self._number(one, text)
        else:
            return self._json(one, text)
        return None

    def _number(self, one: Field, text: str) -> JsonValue:
        try:
            found = int(text) if one.is_whole else float(text)
        except ValueError:
            found = math.nan
        if isinstance(found, float) and not math.isfinite(found):
            self.problems[one.name] = "A whole number, as in 12." if one.is_whole else "A number, as in 12.5."
            return None
        return found

    def _json(self, one: Field, text: str) -> JsonValue:
        try:
            found: JsonValue = json.loads(text)
        except (ValueError, RecursionError) as error:
            if one.kind == "free":
                return text
            self.problems[one.name] = f"This is not JSON: {error}"
            return None
        return found


def _is_of(text: str, one: Field) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10 and int(text) < len(one.choices)
