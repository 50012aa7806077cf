"""Values in messages for people and models: short, in one line, whatever the values are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from reprlib import Repr
from typing import Final

from pydantic import BaseModel

_LONGEST: Final = 200
"""Maximum number of characters of a whole value."""
_MOST_FIELDS: Final = 6
_MOST_BITS: Final = 200
"""Bits of the longest integer that is written out. Python refuses to write very long ones."""


class _Brief(Repr):
    """A `reprlib.Repr` that reads only as many fields of models and dataclasses as it shows."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxdict, self.maxlist, self.maxtuple, self.maxset = 2, 3, 3, 3, 3
        self.maxstring = self.maxother = 60

    def repr1(self, x: object, level: int) -> str:
        try:
            return super().repr1(x, level)
        except Exception:  # the value's own `__repr__` can raise anything
            return f"<{type(x).__name__}>"

    def repr_int(self, x: int, level: int) -> str:
        bits = x.bit_length()
        return repr(x) if bits <= _MOST_BITS else f"<an integer of {bits:,} bits>"

    def repr_bytes(self, x: bytes, level: int) -> str:
        return repr(x) if len(x) <= self.maxstring else f"{x[: self.maxstring]!r}..."

    def repr_instance(self, x: object, level: int) -> str:
        kind = type(x)
        if isinstance(x, BaseModel) and kind.__repr__ is BaseModel.__repr__:
            return self._with_fields(kind, x.__repr_args__(), level)
        # A `__repr__` made by `dataclass` is wrapped. One that the user has written may hide fields.
        if dataclasses.is_dataclass(kind) and hasattr(kind.__repr__, "__wrapped__"):
            shown = ((one.name, getattr(x, one.name)) for one in dataclasses.fields(kind) if one.repr)
            return self._with_fields(kind, shown, level)
        if kind.__repr__ is object.__repr__:
            return f"<{kind.__name__}>"  # without its address, which differs in each process
        text = repr(x)
        return text if len(text) <= self.maxother else f"{text[: self.maxother]}..."

    def _with_fields(self, kind: type, fields: Iterable[tuple[str | None, object]], level: int) -> str:
        if level <= 0:
            return f"{kind.__name__}(...)"
        shown: list[str] = []
        for name, value in fields:
            if len(shown) == _MOST_FIELDS:
                shown.append("...")
                break
            text = self.repr1(value, level - 1)
            shown.append(text if name is None else f"{name}={text}")
        return f"{kind.__name__}({', '.join(shown)})"


_BRIEF: Final = _Brief()


def brief(value: object) -> str:
    """Return a value as Python writes it, in one line and shortened. It never raises."""
    text = _BRIEF.repr(value)
    if "\n" in text:
        text = one_line(text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def one_line(text: str) -> str:
    """Return a text in one line, with a single space for each run of whitespace."""
    return " ".join(text.split())


def shortened(value: object, most: int) -> str:
    """Return the text of a value in one line, with … in place of what is beyond `most` characters."""
    text = one_line(str(value))
    return text if len(text) <= most else f"{text[: most - 1]}…"
