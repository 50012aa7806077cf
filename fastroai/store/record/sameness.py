"""Comparison of a value with what came back from a store, also where `==` cannot tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass

from pydantic import BaseModel


def difference(one: object, other: object) -> tuple[str, object, object] | None:
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
