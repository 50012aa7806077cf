"""Packages whose names are loaded when they are first used (PEP 562)."""

from __future__ import annotations

import dis
import importlib
import importlib.util
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from itertools import dropwhile
from types import CodeType, MappingProxyType
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

NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})


def lazy_names(
    package: str,
    *,
    unlisted: Collection[str] = (),
    moved_to: Collection[str] = (),
    of_others: Mapping[str, str] = NO_NAMES,
) -> None:
    """Give a package the names that it imports for type checkers: each is loaded when it is first used.

    The package calls this under the `else` of `if TYPE_CHECKING:`, which imports each name `as` itself, so
    that the name is public for type checkers, too. The error for a name of another package of ours says where
    it is: an `ImportError` in `from package import name`, an `AttributeError` elsewhere.

    Args:
        package: The name of the package that calls this.
        unlisted: Names that no user needs to write, such as types of options and parts of results. They can
            be imported, but are not in `__all__`.
        moved_to: Modules whose names were once in this package. Programs can still import them from here;
            type checkers report it.
        of_others: What names of other libraries are called here: the error for such a name says it.
    """
    module, code = sys.modules[package], sys._getframe(1).f_code  # pyright: ignore[reportPrivateUsage]

    @cache
    def home_of() -> dict[str, str]:
        return dict(_imports_for_type_checkers(code))

    def listed() -> list[str]:
        return sorted(home_of().keys() - set(unlisted))

    def load(name: str) -> object:
        if name == "__all__":
            return listed()
        if name not in home_of():
            if (moved := _moved(name, moved_to)) is not None:
                return moved
            # Python asks for a module as for any other name, before it imports it.
            is_module = importlib.util.find_spec(f"{package}.{name}") is not None
            instead = None if is_module else of_others.get(name) or _public_path(name)
            message = f"{package} has no {name}; use {instead}"
            if instead is None:
                message = f"module {package!r} has no attribute {name!r}"
            elif sys._getframe(1).f_globals.get("__name__") == _IMPORTING:  # pyright: ignore[reportPrivateUsage]
                raise ImportError(message, name=name)  # an AttributeError would lose its text
            # With the name and the module, Python itself suggests a similar name.
            raise AttributeError(message, name=name, obj=module)
        value: object = getattr(importlib.import_module(home_of()[name]), name)
        setattr(module, name, value)
        return value

    vars(module).update(__getattr__=load, __dir__=listed)


def _moved(name: str, modules: Collection[str]) -> object | None:
    """Return what has a name in one of the modules, if it is defined there."""
    if name.startswith("_"):  # what Python and tools look for in any module
        return None
    for module in modules:
        value: object = getattr(importlib.import_module(module), name, None)
        if getattr(value, "__module__", None) in (module, module.rpartition(".")[0]):
            return value
    return None


def _imports_for_type_checkers(code: CodeType) -> Iterator[tuple[str, str]]:
    """Yield each name that a module imports under `if TYPE_CHECKING:`, with the module that has it.

    They are read from the compiled code of the module, because its source need not be installed.
    """
    home, under = "", ("LOAD_NAME", "TYPE_CHECKING")
    instructions = ((each.opname, each.argval) for each in dis.get_instructions(code))
    for operation, name in dropwhile(lambda instruction: instruction != under, instructions):
        if operation == "IMPORT_NAME":
            home = name
        elif operation == "IMPORT_FROM":
            yield name, home


def _public_path(name: str) -> str | None:
    """Return the full name of a public name, such as `fastroai.runtime.CircuitBreaker`, if there is one."""
    if name.startswith("_"):  # what Python and tools look for in any module
        return None
    packages = (package for package in PUBLIC if name in importlib.import_module(package).__all__)
    home = next(packages, None)
    return None if home is None else f"{home}.{name}"
