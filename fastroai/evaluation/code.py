"""Hashes of code, by which answers on record are found again only while the code is the same."""

from __future__ import annotations

from types import CodeType

from fastroai.store.record.declarations import digest


def code_digest(function: object) -> str:
    """Return a hash of the code of a function, of a method, or of an object that can be called.

    Lines and files do not count, nor does code that it calls. Of an object, its `repr` counts, too.
    """
    own = getattr(function, "__func__", function)
    code = getattr(own, "__code__", None)
    if isinstance(code, CodeType):
        return digest(*_parts(code), repr(getattr(own, "__defaults__", None)))
    methods = [getattr(type(function), name, None) for name in ("evaluate", "__call__")]
    parts = [part for one in methods if one is not None for part in _parts(getattr(one, "__code__", None))]
    # A default `repr` has an address, which differs in each process.
    shown = type(function).__qualname__ if type(function).__repr__ is object.__repr__ else repr(function)
    return digest(shown, *parts)


def _parts(code: object) -> list[str | bytes]:
    if not isinstance(code, CodeType):
        return []
    parts: list[str | bytes] = [code.co_code, *code.co_names]
    for one in code.co_consts:
        parts += _parts(one) if isinstance(one, CodeType) else [repr(one)]
    return parts
