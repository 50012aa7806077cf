"""Values as JSON and back, through their declared types. What would not come back is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from fastroai.contracts import adapter_of
from fastroai.errors import ValueNotStorable

_PLAIN = (str, int, float, bool, type(None))
_SCALARS = frozenset({str, int, bool})
"""Equal to what comes back, and never a subclass of what is declared."""


def value_to_json(value: object, declared: Any, what: str) -> JsonValue:
    """A value as JSON; `declared` is its type, `None` where none is declared, `what` its name in errors.

    Raises:
        ValueNotStorable: it is no plain JSON and has no declared type, or would not come back as it is.
    """
    kind = type(value)
    if kind in _SCALARS and declared in (None, kind) and (kind is not str or value.isascii()):  # type: ignore[attr-defined]
        return value  # type: ignore[return-value]  # JSON as it is
    adapter = None if declared is None else adapter_of(declared)
    if adapter is None:
        for field, part in _not_plain(value):
            raise ValueNotStorable(what, field, type(part).__name__, _advice(declared))
        _check_text(value, what)
        return value  # type: ignore[return-value]  # which was just checked
    try:
        stored: JsonValue = adapter.dump_python(value, mode="json", warnings="error")
        back = _validated(adapter, stored)
    except (PydanticSerializationError, ValidationError, UnicodeError, ValueError) as error:
        raise ValueNotStorable(
            what, _field_of(error), type(value).__name__, f"{_reason(error)} ({_name(declared)})"
        ) from error
    if back != value and not _equal_in_json(adapter, back, value):
        raise ValueNotStorable(
            what,
            "",
            type(value).__name__,
            f"as its declared type {_name(declared)} it would come back as another value; declare the type "
            "that it has, without fields that are excluded, secret or of a subclass",
        )
    return stored


def value_from_json(stored: JsonValue, declared: Any) -> object:
    """The value that was stored.

    Raises:
        pydantic.ValidationError: it is none of the declared type.
    """
    adapter = None if declared is None else adapter_of(declared)
    return stored if adapter is None else _validated(adapter, stored)


def _validated(adapter: TypeAdapter[Any], stored: JsonValue) -> object:
    # As JSON, because only there does a strict model take a date from a string.
    return adapter.validate_json(to_json(stored, inf_nan_mode="constants"))


def _equal_in_json(adapter: TypeAdapter[Any], back: object, value: object) -> bool:
    """For what is not equal to itself or has no equality of its own: NaN, a class without `__eq__`."""
    return type(back) is type(value) and (
        to_json(adapter.dump_python(back, mode="json", serialize_as_any=True), inf_nan_mode="constants")
        == to_json(adapter.dump_python(value, mode="json", serialize_as_any=True), inf_nan_mode="constants")
    )


def _not_plain(value: object) -> Iterator[tuple[str, object]]:
    """What is not plain JSON in it, with where that is."""
    waiting: list[tuple[str, object]] = [("", value)]
    while waiting:
        field, part = waiting.pop()
        kind = type(part)
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


def _check_text(value: object, what: str) -> None:
    """Half of a surrogate pair is a `str`, and no text."""
    try:
        to_json(value, inf_nan_mode="constants")
    except (PydanticSerializationError, UnicodeError, ValueError) as error:
        raise ValueNotStorable(what, "", type(value).__name__, _reason(error)) from error


def _advice(declared: Any) -> str:
    if declared is None:
        return "without a declared type only plain JSON can be stored; declare it: `-> Type`, or returns=Type"
    return f"pydantic knows no way to store {_name(declared)}; return plain JSON, or a type that it knows"


def _field_of(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return ".".join(map(str, error.errors(include_url=False, include_input=False)[0]["loc"]))
    return ""


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return error.errors(include_url=False, include_input=False)[0]["msg"]
    return str(error).partition("\n")[0]


def _name(declared: Any) -> str:
    return declared.__name__ if isinstance(declared, type) else str(declared)
