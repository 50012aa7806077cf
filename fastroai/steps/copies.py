"""Copies of values, so that no other step sees the changes that one step makes in place.

Graphs and workflows keep values that never change: a step is given copies, and the values that it writes are
copied. So a resumed run, whose values come from the store, goes on as it would have done without the break.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import NoneType
from typing import Any, Final
from uuid import UUID

from pydantic import BaseModel

from fastroai.runtime.scope import Scoped

_IMMUTABLE: Final = frozenset(
    {
        str,
        int,
        float,
        bool,
        NoneType,
        bytes,
        complex,
        frozenset,
        Decimal,
        datetime,
        date,
        time,
        timedelta,
        UUID,
    }
)


def own_copy(value: object) -> Any:
    """Return a copy of a value, so that changes of one do not reach the other.

    Lists, dicts, sets, tuples, pydantic models and dataclasses are copied, at any depth. Immutable values are
    shared, and so are objects of any other kind, such as clients and arrays.
    """
    return value if type(value) in _IMMUTABLE else _copied(value, {})


def _copied(value: Any, made: dict[int, Any]) -> Any:
    """Copy a value. `made` has the copies so far by the `id` of the original: a value may contain itself."""
    key = id(value)
    if key in made:
        return made[key]
    kind = type(value)
    if kind is dict:
        made[key] = fields = value.copy()
        for name, item in fields.items():
            if type(item) not in _IMMUTABLE:
                fields[name] = _copied(item, made)
        return fields
    if kind is list:
        made[key] = items = value.copy()
        for index, item in enumerate(items):
            if type(item) not in _IMMUTABLE:
                items[index] = _copied(item, made)
        return items
    if isinstance(value, tuple):
        return _tuple(value, made)
    if isinstance(value, dict | list | set | bytearray):
        return _collection(value, made)
    if isinstance(value, BaseModel):
        return _model(value, made)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _dataclass(value, made)
    return value


def _tuple(value: tuple[Any, ...], made: dict[int, Any]) -> Any:
    items = [_copied(item, made) for item in value]
    if all(item is one for item, one in zip(items, value, strict=True)):
        return value
    return tuple(items) if type(value) is tuple else type(value)._make(items)  # type: ignore[attr-defined]


def _collection(value: Any, made: dict[int, Any]) -> Any:
    """Copy a set, whose items cannot change, or a collection of another class, such as a `defaultdict`."""
    new = made[id(value)] = copy.copy(value)
    if isinstance(new, dict):
        for name, item in value.items():
            new[name] = _copied(item, made)
    elif isinstance(new, list):
        new[:] = [_copied(item, made) for item in value]
    return new


def _model(value: BaseModel, made: dict[int, Any]) -> Any:
    new = made[id(value)] = copy.copy(value)
    for fields in (vars(new), new.__pydantic_extra__ or {}):
        for name, item in fields.items():
            fields[name] = _copied(item, made)
    return new


def _dataclass(value: Any, made: dict[int, Any]) -> Any:
    new = made[id(value)] = copy.copy(value)
    for field in dataclasses.fields(value):
        if hasattr(value, field.name):
            object.__setattr__(new, field.name, _copied(getattr(value, field.name), made))
    return new


class Copies(Mapping[str, object]):
    """Values for one visit to a step or node: copies of its own, made on first access.

    Within an attempt the same key gives the same copy. The next attempt gets new copies.
    """

    __slots__ = ("_made", "_names", "_step", "_values")

    def __init__(
        self, values: Mapping[str, object], step: Scoped, names: frozenset[str] | None = None
    ) -> None:
        """Give the attempts at `step` the keys in `names`, or all keys."""
        self._values, self._step, self._names = values, step, names
        self._made: tuple[int, dict[str, object]] | None = None
        """Number of the attempt, and its copies by key."""

    def __getitem__(self, key: str) -> object:
        if self._names is not None and key not in self._names:
            raise KeyError(key)
        value = self._values[key]
        if type(value) in _IMMUTABLE:
            return value
        if self._made is None or self._made[0] != self._step.attempt:
            self._made = self._step.attempt, {}
        made = self._made[1]
        if key not in made:
            made[key] = own_copy(value)
        return made[key]

    def __contains__(self, key: object) -> bool:
        return (self._names is None or key in self._names) and key in self._values

    def __iter__(self) -> Iterator[str]:
        names = self._names
        return iter(self._values) if names is None else (key for key in self._values if key in names)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))
