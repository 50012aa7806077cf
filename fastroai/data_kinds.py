"""Annotations that say what kind of data a field of a fact holds. Codecs and redaction use them.

    reason: Text[str] = ""

Data without such an annotation is of the program: ids of steps, numbers, names that are declared in code.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import StrEnum
from functools import cache, partial
from operator import is_
from types import UnionType
from typing import Annotated, Any, TypeAlias, TypeVar, Union, get_args, get_origin

from typing_extensions import is_protocol

T = TypeVar("T")


class DataKind(StrEnum):
    """What the data in a field is. A string: each look-up of another enum would call Python code."""

    PAYLOAD = "payload"
    TEXT = "text"
    NAME = "name"
    LABEL = "label"
    DEFINITION = "definition"


Payload: TypeAlias = Annotated[T, DataKind.PAYLOAD]
"""A value of users. It is unsealed when it is needed."""
Text: TypeAlias = Annotated[T, DataKind.TEXT]
"""Text for people, which can quote values and conditions."""
Name: TypeAlias = Annotated[T, DataKind.NAME]
"""A name of users, or a hash of their data, by which a run finds its own record again."""
Label: TypeAlias = Annotated[T, DataKind.LABEL]
"""A label by which spending is reported, so no codec changes it; texts for people are redacted."""
Definition: TypeAlias = Annotated[T, DataKind.DEFINITION]
"""The shape of a pipeline, graph or flow: its outline can be read without a codec."""

Changes: TypeAlias = Mapping[DataKind, Callable[[Any], Any]]
"""A function for each kind of data that changes. It is not called for empty texts, names and definitions."""
_Walk: TypeAlias = Callable[[Any, Changes], Any]


def changed(value: T, changes: Changes) -> T:
    """Return a fact, or a part of one, with data of some kinds changed: itself, if nothing is different."""
    kind: Any = type(value)
    if not (walks := _walks(kind)):
        return value
    new: dict[str, Any] = {}
    for name, walk in walks:
        old = getattr(value, name)
        if (made := walk(old, changes)) is not old:
            new[name] = made
    return typing.cast("T", replace(typing.cast("Any", value), **new)) if new else value


@cache
def _walks(kind: Hashable) -> tuple[tuple[str, _Walk], ...]:
    """The fields of a dataclass with data of users, each with the function that changes its value."""
    if not (isinstance(kind, type) and is_dataclass(kind)):
        return ()
    hints = typing.get_type_hints(kind, include_extras=True)
    walks = ((field.name, _walk_of(hints[field.name])) for field in fields(kind))
    return tuple((name, walk) for name, walk in walks if walk is not _keep)


def _walk_of(hint: Any) -> _Walk:
    """Return the function that changes the data in a value of this type: `_keep` if none in it has a kind."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        kind = next((one for one in hint.__metadata__ if isinstance(one, DataKind)), None)
        return _walk_of(arguments[0]) if kind is None else partial(_change, kind)
    inner = [_walk_of(one) for one in arguments]
    if all(walk is _keep for walk in inner):
        # The values of a protocol may be dataclasses with data of users.
        return changed if isinstance(hint, type) and (_walks(hint) or is_protocol(hint)) else _keep
    if origin in (Union, UnionType):
        [walk] = (walk for walk in inner if walk is not _keep)
        return partial(_change_given, walk)
    if issubclass(origin, Mapping):
        key, value = inner
        return partial(_change_items, key, value)
    return partial(_change_all, inner[0])


def _keep(value: Any, changes: Changes) -> Any:
    return value


def _change(kind: DataKind, value: Any, changes: Changes) -> Any:
    change = changes.get(kind)
    return value if change is None or not (value or kind is DataKind.PAYLOAD) else change(value)


def _change_given(walk: _Walk, value: Any, changes: Changes) -> Any:
    return value if value is None else walk(value, changes)


def _change_all(walk: _Walk, values: Sequence[Any], changes: Changes) -> Any:
    made = tuple(walk(value, changes) for value in values)
    return values if all(map(is_, made, values)) else made


def _change_items(key: _Walk, value: _Walk, items: Mapping[Any, Any], changes: Changes) -> Any:
    made = {key(name, changes): value(one, changes) for name, one in items.items()}
    same = all(map(is_, made, items)) and all(map(is_, made.values(), items.values()))
    return items if same else made
