"""Values as JSON and back, through their declared types. A value that would not come back is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from fastroai.contracts import adapter_of
from fastroai.errors import ValueNotStorable

_PLAIN: Final = (str, int, float, bool, type(None))
_DEEP: Final = 100
_LONG_NUMBER: Final = 4_000
_AROUND: Final = 10
_LONG: Final = 2**63
_SCALARS = frozenset({str, int, bool})
"""Types whose values come back equal. Subclasses are not among them."""


def value_to_json(
    value: object, declared: Any, what: str, how: str = "a result (`-> Type`, or returns=Type)"
) -> JsonValue:
    """Return a value as JSON. `declared` is its type or `None`, and `what` names the value in errors.

    `how` says in errors of what a type can be declared, and where.

    Raises:
        ValueNotStorable: the value is not plain JSON and has no declared type, or would not come back as it
            is.
    """
    kind = type(value)
    if kind in _SCALARS and declared in (None, kind) and _is_short_or_ascii(value):
        return value  # type: ignore[return-value]  # JSON as it is
    adapter = None if declared is None else adapter_of(declared)
    if adapter is None:
        for field, part in _not_plain(value):
            raise ValueNotStorable(what, field, type(part).__name__, _advice(declared, how))
        try:
            _text(value)
        except (PydanticSerializationError, ValueError) as error:
            raise ValueNotStorable(what, "", type(value).__name__, _reason(error)) from error
        return value  # type: ignore[return-value]  # which was just checked
    try:
        stored: JsonValue = adapter.dump_python(value, mode="json", warnings="error")
        lost = _difference(value, adapter.validate_json(_text(stored)))
    except Exception as error:  # validators and serializers are the user's, and can raise anything
        field, part = _failed_in(value, error)
        advice = "" if part is value else f"; {_advice(declared, how)}"
        reason = f"{_reason(error)} ({_name(declared)}){advice}"
        raise ValueNotStorable(what, field, type(part).__name__, reason) from error
    if lost is not None:
        place, before, after = lost
        became = "another value" if type(after) is type(before) else f"a value of type {type(after).__name__}"
        raise ValueNotStorable(
            what,
            place,
            type(before).__name__,
            f"read back as its declared type {_name(declared)}, it would be {became}. Declare the type "
            "that it "
            "has, without excluded or secret fields or fields of a subclass. Or convert it to plain JSON, as "
            "model_dump(mode='json') does",
        )
    return stored


def _is_short_or_ascii(value: object) -> bool:
    """Return whether JSON can surely hold the value: a number of limited size, or ASCII text."""
    return value.isascii() if isinstance(value, str) else -_LONG < value < _LONG  # type: ignore[operator]


def value_from_json(stored: JsonValue, declared: Any) -> object:
    """Return the value that was stored.

    Raises:
        pydantic.ValidationError: the value does not fit the declared type.
    """
    adapter = None if declared is None else adapter_of(declared)
    # From JSON text, because only there does a strict model take a date from a string.
    return stored if adapter is None else adapter.validate_json(to_json(stored, inf_nan_mode="constants"))


def _not_plain(value: object) -> Iterator[tuple[str, object]]:
    """Yield the parts of a value that are not plain JSON, each with the field where it is."""
    waiting: list[tuple[str, object]] = [("", value)]
    seen: set[int] = set()
    while waiting:
        field, part = waiting.pop()
        kind = type(part)
        if kind is list or kind is dict:
            if id(part) in seen:  # a value may hold itself
                continue
            seen.add(id(part))
        if kind is list:
            waiting.extend((f"{field}[{index}]", item) for index, item in enumerate(part))  # type: ignore[arg-type, var-annotated]
        elif kind is dict:
            for key, item in part.items():  # type: ignore[attr-defined]
                if type(key) is not str:
                    yield f"{field} key {key!r}", key
                else:
                    waiting.append((f"{field}.{key}" if field else key, item))
        elif kind not in _PLAIN:
            yield field, part


def _text(value: object) -> bytes:
    """Return a value as JSON text.

    Raises `ValueError` if the text could not be read again, such as one with half a surrogate pair.
    """
    text = to_json(value, inf_nan_mode="constants")
    # The parser limits depth and digits, and the value will be inside of others.
    if len(text) > _LONG_NUMBER or text.count(b"[") + text.count(b"{") > _DEEP:
        from_json(b"[" * _AROUND + text + b"]" * _AROUND)
    return text


def _advice(declared: Any, how: str) -> str:
    convert = "or convert the value, as model_dump(mode='json') does"
    if declared is None:
        return f"without a declared type only plain JSON can be stored; declare the type of {how}, {convert}"
    if adapter_of(declared) is not None:
        return f"declare a type that says what is there, {convert}"
    return f"pydantic knows no way to store {_name(declared)}; return plain JSON, or a type that it knows"


def _failed_in(value: object, error: Exception) -> tuple[str, object]:
    """Return the field of a value that cannot be stored, and what is there, as far as that can be told."""
    if isinstance(error, ValidationError):
        return ".".join(map(str, error.errors(include_url=False, include_input=False)[0]["loc"])), value
    if isinstance(error, PydanticSerializationError):
        for field, part in _not_plain(value):
            try:
                to_json(part)
            except (PydanticSerializationError, ValueError):
                return field, part
    return "", value


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return error.errors(include_url=False, include_input=False)[0]["msg"]
    if "recursion limit exceeded" in str(error) or "serialization depth exceeded" in str(error):
        return "it is nested too deeply to be read again"
    first, _, rest = str(error).partition("\n")
    return first if not first.endswith(":") else rest.partition("\n")[0].strip()  # the line after a heading


def _name(declared: Any) -> str:
    return declared.__name__ if isinstance(declared, type) else str(declared)


# --- comparison of a value with what came back, also where `==` cannot tell ---


def _difference(one: object, other: object) -> tuple[str, object, object] | None:
    """Return where two values differ, such as `items.0`, with the value that each has there, if they differ.

    Values are the same if they are equal. Also, NaN is the same as NaN, and values whose type does not define
    equality are compared by their contents.
    """
    pairs = [("", one, other)]
    while pairs:
        place, left, right = pairs.pop()
        if left is right or left == right:
            continue
        if type(left) is not type(right):
            return place, left, right
        if left != left and right != right:
            continue
        parts = _parts(left), _parts(right)
        if parts[0] is None or parts[1] is None or parts[0].keys() != parts[1].keys():
            return place, left, right
        within = f"{place}." if place else ""
        found = [(f"{within}{name}", part, parts[1][name]) for name, part in parts[0].items()]
        pairs += reversed(found)
    return None


def _parts(value: object) -> Mapping[object, object] | None:
    """Return the parts of a value by name; `None` if it has no parts."""
    if isinstance(value, dict):
        return value
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    if isinstance(value, BaseModel):
        held: dict[object, object] = {name: getattr(value, name) for name in type(value).model_fields}
        return {**held, "extra": value.__pydantic_extra__, "private": value.__pydantic_private__}
    if is_dataclass(value):
        return _attributes(value, (field.name for field in fields(value)))
    if type(value).__eq__ is object.__eq__ and hasattr(value, "__dict__"):
        return _attributes(value, vars(value))
    return None


def _attributes(value: object, names: Iterable[str]) -> dict[object, object]:
    return {name: getattr(value, name, None) for name in names}
