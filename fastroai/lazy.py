"""Packages whose names are loaded when they are first used (PEP 562)."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

PUBLIC: Final = (
    *("fastroai", "fastroai.agent", "fastroai.contracts", "fastroai.distributed"),
    *("fastroai.drawing", "fastroai.errors", "fastroai.evaluation"),
    *("fastroai.expressions", "fastroai.functions", "fastroai.graphs", "fastroai.human"),
    *("fastroai.pipelines", "fastroai.rows", "fastroai.runtime", "fastroai.store", "fastroai.testing"),
    *("fastroai.tools", "fastroai.tracing", "fastroai.usage", "fastroai.viewer", "fastroai.web"),
    "fastroai.workflows",
)
"""The packages whose `__all__` is a promise to users. Besides `fastroai`, each name is in one of them."""

_IMPORTING: Final = "importlib._bootstrap"
"""The module of Python that looks for the names in `from package import name`, before it imports them."""

NO_HOMES: Final[Mapping[str, Sequence[str]]] = MappingProxyType({})
NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})


def lazy_names(
    package: str,
    homes: Mapping[str, Sequence[str]],
    *,
    unlisted: Mapping[str, Sequence[str]] = NO_HOMES,
    of_others: Mapping[str, str] = NO_NAMES,
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__all__`, `__getattr__` and `__dir__` of a package.

    For type checkers the package imports the same names under `TYPE_CHECKING`, each `as` itself, which makes
    it public there. The error for a name of another package of ours says where it is: an `ImportError` in
    `from package import name`, an `AttributeError` elsewhere.

    Args:
        package: The package.
        homes: For each module, relative to the package as in `.scope`, its names that users write.
        unlisted: The same for names that no user needs to write: those of the library's own code, types of
            options, parts of results. They can be imported, and are not in `__all__`.
        of_others: What names of other libraries are called here: the error for such a name says it.
    """
    home_of = {name: home for home, names in [*homes.items(), *unlisted.items()] for name in names}
    listed = sorted(name for names in homes.values() for name in names)

    def load(name: str) -> object:
        if name not in home_of:
            # Python asks for a module as for any other name, before it imports it.
            is_module = importlib.util.find_spec(f"{package}.{name}") is not None
            instead = None if is_module else of_others.get(name) or _public_path(name)
            message = f"{package} has no {name}; use {instead}"
            if instead is None:
                message = f"module {package!r} has no attribute {name!r}"
            elif sys._getframe(1).f_globals.get("__name__") == _IMPORTING:  # pyright: ignore[reportPrivateUsage]
                raise ImportError(message, name=name)  # an AttributeError would lose its text
            # With the name and the module, Python itself suggests a similar name.
            raise AttributeError(message, name=name, obj=sys.modules[package])
        value: object = getattr(importlib.import_module(home_of[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    return listed, load, listed.copy


def _public_path(name: str) -> str | None:
    """Return the full name of a public name, such as `fastroai.runtime.CircuitBreaker`, if there is one."""
    if name.startswith("_"):  # what Python and tools look for in any module
        return None
    packages = (package for package in PUBLIC if name in importlib.import_module(package).__all__)
    home = next(packages, None)
    return None if home is None else f"{home}.{name}"
