"""Packages whose names are loaded when they are first used (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]], *, of_others: Mapping[str, str] = NO_NAMES
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__all__`, `__getattr__` and `__dir__` of a package.

    `homes` maps each module, relative to the package as in `.scope`, to its names. For type checkers the
    package imports the same names under `TYPE_CHECKING`, each `as` itself, which makes it public there.

    `of_others` says what names of another library are called here: the `ImportError` for such a name says it.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def load(name: str) -> object:
        if name in of_others:  # an AttributeError would lose its text in `from package import name`
            raise ImportError(f"{package} has no {name}; use {of_others[name]}", name=name)
        if name not in home_of:
            # With the name and the module, Python itself suggests a similar name.
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=sys.modules[package])
        value: object = getattr(importlib.import_module(home_of[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    return sorted(home_of), load, lambda: sorted(home_of)
