"""Plain JSON values: recognised without a call of any of their methods, and shown in messages.

Types are compared by identity. `isinstance`, `==` between types, and sets of types would ask a metaclass.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from fastroai.expressions.limits import MAX_INTEGER_BITS

Value: TypeAlias = object
"""A value in an evaluation: `is_plain` was true for it when it was read or made."""

MAX_SHOWN: Final = 60
"""Maximum number of characters of a value in a message."""
_MAX_SHOWN_BITS: Final = 128

_name_of_type = type.__dict__["__name__"].__get__


def is_plain(value: object) -> bool:
    """Return whether a value is exactly of a type of JSON data, not of a subclass. Parts are not checked.

    An integer that is too large for calculations is not plain, so no operation has to check that.
    """
    kind = type(value)
    return (
        kind is str
        or (type(value) is int and value.bit_length() <= MAX_INTEGER_BITS)
        or kind is float
        or kind is bool
        or value is None
        or kind is dict
        or kind is list
        or kind is tuple
    )


def is_number(value: object) -> bool:
    """Return whether a value can be calculated with, as booleans can."""
    kind = type(value)
    return kind is int or kind is float or kind is bool


def type_name(value: object) -> str:
    """Return the name of a value's type, without asking its metaclass."""
    if value is None:
        return "None"
    name: str = _name_of_type(type(value))
    return name


def shown(value: object) -> str:
    """Return a value for a message: at most about `MAX_SHOWN` characters, and containers by their size."""
    if type(value) is str:
        return repr(value) if len(value) <= MAX_SHOWN else f"{value[: MAX_SHOWN - 1]!r}…"
    if type(value) is int and value.bit_length() > _MAX_SHOWN_BITS:
        return f"an integer of {value.bit_length():,} bits"
    if type(value) is list or type(value) is tuple:
        return f"a list of {len(value)}"
    if type(value) is dict:
        return f"a dict of {len(value)}"
    return repr(value) if is_plain(value) else type_name(value)
