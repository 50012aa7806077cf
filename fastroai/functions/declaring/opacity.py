"""`opaque[T]`: values that are data for a model and never instructions, and where a type has such values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_args

from pydantic import GetCoreSchemaHandler, JsonValue, ValidationError
from pydantic_core import CoreSchema, to_json
from pydantic_core.core_schema import ErrorType

from fastroai.contracts.violation import details_of
from fastroai.errors import ViolationDetail
from fastroai.functions.declaring.core_schemas import (
    At,
    Schema,
    aliases_of,
    all_parts,
    computed_fields,
    definitions_of,
    parts_of,
    unknown_fields_beside,
)
from fastroai.plain_text import plain_json

ELIDED: Final = "<opaque>"
"""Text in the place of an opaque value that must not appear."""

_MARK: Final = "fastroai_opaque"


class _Opaque:
    """Marks a type in the schema that pydantic makes of it; validation and JSON stay as they are."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: Any = dict(handler(source))
        schema["metadata"] = {**schema.get("metadata", {}), _MARK: True}
        marked: CoreSchema = schema
        return marked

    def __repr__(self) -> str:
        return "opaque"

    def __hash__(self) -> int:
        return hash(_Opaque)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Opaque)


_T = TypeVar("_T")

opaque: TypeAlias = Annotated[_T, _Opaque()]
"""A value that is never in an instruction to a model: text of customers, web pages, outputs of models.

    async def triage(text: opaque[str]) -> Resolution: ...

For type checkers and for pydantic, it is the type itself. In prompts, the value travels in a part of its own,
marked as data. It is left out of violations, errors and records. A field of a contract can be opaque, and so
can an item of a list, at any depth.

Keys that no type names are as opaque as the values beside them: a dict with opaque keys or values is opaque
as a whole, and so is an object with extra fields. Names of fields, their aliases and keys of a TypedDict are
in the code, so they are not opaque. Also opaque are values of unknown content, such as extra fields of a
model; what a custom serializer makes of a value with opaque parts; and, in a union, each place at which one
of its classes has an opaque part.
"""
opaque.__doc__ = "A value that is never in an instruction to a model, as in `text: opaque[str]`."


@dataclass(frozen=True, slots=True)
class Opacity:
    """The opaque parts of a value, as JSON."""

    is_whole: bool = False
    """Whether the whole value is opaque."""
    parts: Mapping[str | int, Opacity | None] = field(default_factory=dict)
    """Opacity of its fields, by name, or of its items, by index."""
    others: Opacity | None = None
    """Opacity of all other fields or items."""

    def at(self, key: str | int) -> Opacity | None:
        """Return the opacity of a field or item; `None` if none of it is opaque. Unknown ones are opaque."""
        return self if self.is_whole else self.parts.get(key, self.others or WHOLE)


WHOLE: Final = Opacity(is_whole=True)


def opacity_of(schema: Schema) -> Opacity | None:
    """Return the opaque parts of values of a core schema; `None` if there are none."""
    return _Reader(definitions_of(schema)).read(schema, frozenset())


class _Reader:
    """Reads one core schema, with all that it refers to. In doubt, a part is opaque."""

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions

    def read(self, schema: Schema, around: frozenset[str]) -> Opacity | None:
        """Return the opacity of a schema. `around` are the definitions that the schema is a part of."""
        if _is_marked(schema):
            return WHOLE
        ref = schema.get("schema_ref")
        if ref is not None and ref in around:
            inside_again = all_parts(self._definitions[ref], self._definitions)
            return WHOLE if any(map(_is_marked, inside_again)) else None
        if ref is not None:
            inside = self.read(self._definitions[ref], around | {ref})
        elif schema["type"] == "definitions":
            inside = self.read(schema["schema"], around)
        else:
            inside = self._inside(schema, around)
        known = unknown_fields_beside(schema)
        if known is not None:
            inside = Opacity(parts={name: inside and inside.at(name) for name in known}, others=WHOLE)
        return WHOLE if self._is_unreadable(schema, inside, around) else inside

    def _inside(self, schema: Schema, around: frozenset[str]) -> Opacity | None:
        same: Opacity | None = None
        others: Opacity | None = None
        parts: dict[str | int, Opacity | None] = {}
        for place, part in parts_of(schema):
            found = self.read(part, around)
            if place is At.KEYS and found is not None:
                return WHOLE
            if place is At.SAME:
                same = _merged(same, found)
            elif place is At.EACH:
                others = _merged(others, found)
            elif isinstance(place, str | int):
                parts[place] = found
        for alias, name, is_deeper in aliases_of(schema):
            read = WHOLE if is_deeper and parts[name] else parts[name]
            parts[alias] = _merged(parts.get(alias), read)
        is_derived = any(found is not None for found in parts.values())
        for name, returned in computed_fields(schema).items():
            parts[name] = WHOLE if is_derived else self.read(returned, around)
        if others is None and not any(parts.values()):
            return same
        return _merged(same, Opacity(parts=parts, others=others))

    def _is_unreadable(self, schema: Schema, inside: Opacity | None, around: frozenset[str]) -> bool:
        """Return whether the JSON of a value can hold something opaque where the schema does not say so."""
        config = schema.get("config") or {}
        if config.get("polymorphic_serialization"):
            return True
        serialization = schema.get("serialization", {"type": ""})
        kind: str = serialization["type"]
        if kind == "any":  # SerializeAsAny: the fields of subclasses are not known
            return True
        if not kind or kind.startswith("include-exclude"):
            return False
        returned = serialization.get("return_schema")
        return inside is not None or (returned is not None and self.read(returned, around) is not None)


def _is_marked(schema: Schema) -> bool:
    return bool(schema.get("metadata", {}).get(_MARK))


def _merged(one: Opacity | None, other: Opacity | None) -> Opacity | None:
    """Return the parts that are opaque in either of both."""
    if one is None or other is None:
        return one or other
    if one.is_whole or other.is_whole:
        return WHOLE
    names = {**one.parts, **other.parts}
    return Opacity(
        parts={
            name: _merged(one.parts.get(name, one.others), other.parts.get(name, other.others))
            for name in names
        },
        others=_merged(one.others, other.others),
    )


Replace: TypeAlias = Callable[[str, JsonValue], JsonValue]
"""Returns the replacement for an opaque value, given the value's path and JSON."""


def without_opaque(value: JsonValue, opacity: Opacity | None, path: str, replace: Replace) -> JsonValue:
    """Return a value as JSON, with something else in the places of its opaque parts.

    `path` is the path of the value itself. A part has a path such as `ticket.body`, `items[0].note`,
    `ticket["the text"]`.
    """
    if opacity is None:
        return value
    if opacity.is_whole:
        return replace(path, value)
    if isinstance(value, dict):
        if any(key not in opacity.parts for key in value):
            return replace(
                path, value
            )  # keys that the type does not name are data, like the values beside them
        return {
            key: without_opaque(part, opacity.at(key), f"{path}{_step(key)}", replace)
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [
            without_opaque(part, opacity.at(index), f"{path}[{index}]", replace)
            for index, part in enumerate(value)
        ]
    # It is of another type in a union; or nothing has checked it yet, and it is text where another type
    # belongs.
    return replace(path, value) if isinstance(value, str) else value


def elided(value: JsonValue, opacity: Opacity | None) -> JsonValue:
    """Return a value as JSON, with `<opaque>` in the places of its opaque parts."""
    return without_opaque(value, opacity, "", lambda path, part: ELIDED)


def opaque_parts(value: JsonValue, opacity: Opacity | None) -> list[JsonValue]:
    """Return the opaque parts of a value as JSON."""
    parts: list[JsonValue] = []
    without_opaque(value, opacity, "", lambda path, part: parts.append(part))
    return parts


def _step(key: str) -> str:
    # Quoted, so that no two places have the same path, whatever keys a dict has.
    return f".{key}" if key.isidentifier() else f"[{one_line_json(key)}]"


def one_line_json(value: JsonValue) -> str:
    """Return JSON text in one line, in which characters that cannot be printed are escaped.

    So no value can begin a new line, whichever characters a reader takes for the end of one, and no value can
    hide text from people who read a prompt. Reading the JSON gives the same value.
    """
    try:
        text = to_json(value, inf_nan_mode="strings").decode()
    except ValueError:  # half of a surrogate pair, which is no UTF-8
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return plain_json(text)


def details_without_opaque(error: ValidationError, opacity: Opacity | None) -> tuple[ViolationDetail, ...]:
    """Return the problems that pydantic found in a value, without the content of its opaque parts."""
    found = zip(details_of(error), error.errors(include_url=False, include_input=False), strict=True)
    return tuple(_detail_without_opaque(detail, told.get("ctx", {}), opacity) for detail, told in found)


def _detail_without_opaque(
    detail: ViolationDetail, context: Mapping[str, Any], opacity: Opacity | None
) -> ViolationDetail:
    known: list[int | str] = []
    for step in detail["loc"]:
        if opacity is None or opacity.is_whole:
            break
        if isinstance(step, str) and step not in opacity.parts:
            opacity = WHOLE
            break
        known.append(step)
        opacity = opacity.at(step)
    if opacity is None:
        return detail
    # The place ends where data begins, because keys that no type names are data as well.
    quotes_input = detail["type"] not in _KNOWN_ERRORS or not _SAYS_INPUT.isdisjoint(context)
    said = "it is not valid" if quotes_input else detail["msg"]
    return {"type": detail["type"], "loc": tuple(known), "msg": said}


_KNOWN_ERRORS: Final = frozenset(get_args(ErrorType))
_SAYS_INPUT: Final = frozenset({"error", "tag"})
"""Entries of a pydantic message's context that can quote the input, or come from a validator."""
