"""Whether a value that was stored came back as it was, also where `==` cannot tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass

from pydantic import BaseModel


def is_same(one: object, other: object) -> bool:
    """Equal; but NaN is NaN, and what has no equality of its own is compared by what it holds."""
    pairs = [(one, other)]
    while pairs:
        left, right = pairs.pop()
        if left is right or left == right:
            continue
        if type(left) is not type(right):
            return False
        if left != left and right != right:
            continue
        parts = _parts(left), _parts(right)
        if parts[0] is None or parts[1] is None or parts[0].keys() != parts[1].keys():
            return False
        pairs += [(part, parts[1][name]) for name, part in parts[0].items()]
    return True


def _parts(value: object) -> Mapping[object, object] | None:
    """What a value consists of, by name; `None` where it is one piece."""
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
