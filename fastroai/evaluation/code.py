"""Hashes of code, by which answers on record are found again only while the code is the same."""

from __future__ import annotations

import re
from types import CodeType
from typing import Final

from fastroai.store.record.declarations import digest

_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+", re.IGNORECASE)


def code_digest(function: object) -> str:
    """Return a hash of the code of a function, of a method, or of an object that can be called.

    Lines and files do not count, nor does code that it calls. Of an object, its `repr` counts, too.
    """
    own = getattr(function, "__func__", function)
    code = getattr(own, "__code__", None)
    if isinstance(code, CodeType):
        return digest(*_parts(code), _shown(getattr(own, "__defaults__", None)))
    methods = [getattr(type(function), name, None) for name in ("evaluate", "__call__")]
    parts = [part for one in methods if one is not None for part in _parts(getattr(one, "__code__", None))]
    return digest(_shown(function), *parts)


def _parts(code: object) -> list[str | bytes]:
    if not isinstance(code, CodeType):
        return []
    parts: list[str | bytes] = [code.co_code, *code.co_names]
    for one in code.co_consts:
        parts += _parts(one) if isinstance(one, CodeType) else [_shown(one)]
    return parts


def _shown(value: object) -> str:
    """Return the `repr` of a value as it is in every process: without addresses, and with sets in order."""
    if isinstance(value, frozenset):
        return repr(sorted(map(repr, value)))
    return _ADDRESS.sub("", repr(value))
