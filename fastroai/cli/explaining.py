"""`help NAME`: the reason and the remedy of an exception, from its docstring."""

from __future__ import annotations

import difflib
import inspect
from importlib import import_module
from typing import Final

_PACKAGES: Final = (
    *("fastroai.errors", "fastroai.functions", "fastroai.graphs", "fastroai.rows", "fastroai.workflows"),
)


def explained(name: str) -> str | None:
    """Return what an exception means and what to do about it; `None` if no exception has such a name.

    A name may be written with its module, as in a traceback.
    """
    known = exceptions()
    wanted = name.rpartition(".")[2]
    near = difflib.get_close_matches(wanted, known, n=1, cutoff=0.8)
    found = known.get(wanted) or (known[near[0]] if near else None)
    if found is None:
        return None
    kind = next(base.__name__ for base in found.__mro__[1:] if not base.__name__.startswith("_"))
    return f"{found.__module__}.{found.__name__}: a {kind}\n\n{inspect.getdoc(found)}"


def exceptions() -> dict[str, type[BaseException]]:
    """Return the public exceptions, by name."""
    found: dict[str, type[BaseException]] = {}
    for package in map(import_module, _PACKAGES):
        for name in package.__all__:
            value = getattr(package, name)
            if inspect.isclass(value) and issubclass(value, BaseException):
                found.setdefault(name, value)
    return found
