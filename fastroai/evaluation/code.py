"""Hashes of code and values that are the same in every process, so that answers on record are found again."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from functools import partial
from types import CodeType
from typing import Final

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from fastroai.store.reading.as_json import as_json
from fastroai.store.record.declarations import digest, sort_sets

_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+", re.IGNORECASE)


def code_digest(function: object) -> str:
    """Return a hash of the code of a function, of a method, or of an object that can be called.

    Lines and files do not count, nor does code that it calls, nor that of `pydantic_evals`. Of an object, its
    `repr` counts, too.
    """
    own = getattr(function, "__func__", function)
    code = getattr(own, "__code__", None)
    if isinstance(code, CodeType):
        return digest(*_parts(code), _shown(getattr(own, "__defaults__", None)))
    methods = [getattr(type(function), name, None) for name in ("evaluate", "__call__")]
    parts = [
        part for one in methods if not _is_of_library(one) for part in _parts(getattr(one, "__code__", None))
    ]
    return digest(_shown(function), *parts)


def plain(value: object) -> JsonValue:
    """Return a value as JSON as it is in every process: without addresses, and with sets in order."""
    try:
        made: JsonValue = to_jsonable_python(value, fallback=_shown, inf_nan_mode="constants")
    except Exception:  # a cycle, bytes that are no text, a `repr` that fails
        return as_json(value)
    sort_sets(value, made)
    return made


def _parts(code: object) -> list[str | bytes]:
    if not isinstance(code, CodeType):
        return []
    parts: list[str | bytes] = [code.co_code, *code.co_names]
    for one in code.co_consts:
        parts += _parts(one) if isinstance(one, CodeType) else [_shown(one)]
    return parts


def _is_of_library(method: object) -> bool:
    return str(getattr(method, "__module__", "")).partition(".")[0] == "pydantic_evals"


def _shown(value: object) -> str:
    """Return the `repr` of a value as it is in every process: without addresses, and with sets in order."""
    shown = repr(value)
    return _ADDRESS.sub("", repr(_in_order(value)) if "{" in shown else shown)


def _in_order(value: object) -> object:
    """Return a value whose `repr` has no sets, so far as they can be found in it."""
    if isinstance(value, set | frozenset):
        return sorted(repr(_in_order(one)) for one in value)
    if isinstance(value, list):
        return [*map(_in_order, value)]
    if isinstance(value, tuple):
        return tuple(map(_in_order, value))
    if isinstance(value, dict):
        return {name: _in_order(one) for name, one in value.items()}
    if isinstance(value, partial):
        return [value.func, _in_order(value.args), _in_order(value.keywords)]
    if is_dataclass(value) and not isinstance(value, type):
        return [
            type(value).__qualname__,
            {one.name: _in_order(getattr(value, one.name)) for one in fields(value)},
        ]
    return value
