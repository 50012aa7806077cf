"""What expressions read of a run of a graph, as plain JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final

from pydantic_core import to_jsonable_python

from fastroai.graphs.fields import fields_of

_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_ABSENT: Final = object()


def facts_of(names: Iterable[str], output: object, known: Mapping[str, object]) -> dict[str, object]:
    """The values of these names, of those that have one: fields of the output before what else is known."""
    fields = fields_of(output) or {}
    facts: dict[str, object] = {}
    for name in names:
        value = fields[name] if name in fields else known.get(name, _ABSENT)
        if value is not _ABSENT:
            facts[name] = _plain(value)
    return facts


def _plain(value: object) -> object:
    if type(value) in _SCALARS:
        return value
    try:
        return _json(value)
    except Exception:  # a cycle, bytes that are no text, a `repr` that fails: the condition says what it is
        return value


def _json(value: object) -> object:
    """As JSON, in which an exact number is a number too: a condition compares it."""
    if type(value) in _SCALARS:
        return value
    if isinstance(value, Decimal):
        return int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
    if (fields := fields_of(value)) is not None:
        return {key: _json(field) for key, field in fields.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    return to_jsonable_python(value, fallback=repr, inf_nan_mode="constants")
