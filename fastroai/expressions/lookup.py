"""Lookups in data: keys of dicts and indices of lists, and never an attribute of an object."""

from __future__ import annotations

from typing import Final, NoReturn

from fastroai.expressions.evaluation import Evaluation, Missing, NoContainer, Problem
from fastroai.expressions.json_values import Value, is_plain, shown, type_name
from fastroai.expressions.limits import MAX_INTEGER_BITS

_ABSENT: Final = object()


def by_key(evaluation: Evaluation, table: Value, key: str, path: str) -> Value:
    """Return the value of a dict under a key. `path` is the lookup as the expression writes it."""
    if type(table) is dict:
        evaluation.check_keys(table)
        value = table.get(key, _ABSENT)
        if is_plain(value):
            return value
    elif table is None:
        value = _ABSENT
    else:
        raise NoContainer(f"{path} looks up a key in {_a(table)}; only dicts have keys")
    return _found(value, path)


def by_subscript(evaluation: Evaluation, container: Value, subscript: Value, base: str) -> Value:
    """Return the value at a key of a dict or an index of a list. `base` is the container as written."""
    value = _ABSENT
    if type(container) is dict and type(subscript) is str:
        evaluation.read_text(len(subscript))
        evaluation.check_keys(container)
        value = container.get(subscript, _ABSENT)
    elif (type(container) is list or type(container) is tuple) and type(subscript) is int:
        if -len(container) <= subscript < len(container):
            value = container[subscript]
    elif container is not None or not (type(subscript) is str or type(subscript) is int):
        raise _no_such_lookup(container, subscript, base)
    return value if is_plain(value) else _found(value, f"{base}[{shown(subscript)}]")


def _no_such_lookup(container: Value, subscript: Value, base: str) -> Problem:
    path = f"{base}[{shown(subscript)}]"
    if type(container) is dict:
        return Problem(f"{path}: a key of a dict is of type str, not {type_name(subscript)}")
    if type(container) is list or type(container) is tuple:
        return Problem(f"{path}: an index of a list is of type int, not {type_name(subscript)}")
    return NoContainer(f"{path} looks up a part of {_a(container)}; only dicts and lists have parts")


def _found(value: object, path: str) -> Value:
    if value is _ABSENT:
        raise Missing(path)
    return plain(value, path)


def plain(value: object, path: str) -> Value:
    """Return a value if it is plain JSON data. Raise `Problem` if it is not."""
    if not is_plain(value):
        refuse(value, path)
    return value


def refuse(value: object, path: str) -> NoReturn:
    """Raise `Problem` with the reason why a value is not plain JSON data."""
    if type(value) is int:
        raise Problem(f"{path} is {shown(value)}; expressions work with up to {MAX_INTEGER_BITS:,}")
    raise Problem(
        f"{path} is of type {type_name(value)}, which is not JSON data; convert it before, a model with "
        "model_dump(mode='json')"
    )


def _a(value: Value) -> str:
    return f"a value of type {type_name(value)}"
