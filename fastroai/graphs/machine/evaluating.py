"""Whether conditions hold over outputs and memory of a run, which expressions read as plain JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final

from pydantic_core import to_jsonable_python

from fastroai.expressions import Expression, Outcome
from fastroai.graphs.machine.fields import fields_of
from fastroai.runs.decoding import value_of

_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_PLAIN: Final = _SCALARS | {dict, list, tuple}
_ABSENT: Final = object()


def tested(expression: Expression, output: object, known: Mapping[str, object]) -> Outcome:
    """Whether a condition holds over the fields of an output, then over what else is known.

    Values are read where they are. Only if one that it comes to is no JSON, they are made JSON first, which
    takes as long as they are large.
    """
    values = _values(expression.names, output, known)
    outcome = expression.test(
        {name: value if type(value) in _PLAIN else _plain(value) for name, value in values.items()}
    )
    if outcome.problem is None:
        return outcome
    return expression.test({name: _plain(value) for name, value in values.items()})


def _values(names: Iterable[str], output: object, known: Mapping[str, object]) -> dict[str, object]:
    """The values of these names, of those that have one."""
    fields = fields_of(value_of(output)) or {}
    found = {name: fields[name] if name in fields else known.get(name, _ABSENT) for name in names}
    return {name: value for name, value in found.items() if value is not _ABSENT}


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
