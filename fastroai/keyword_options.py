"""Functions that take keyword options as one value: `**options: Unpack[SomeTypedDict]`.

Type checkers and editors read the names and types of the options from the `TypedDict`. What Python itself
would do for written-out parameters is here: show them, and refuse all others.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, ForwardRef, TypeVar

from fastroai.errors import nearest_hint

NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def shows_options(options: Any, *, default: object = None) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator after which `help` and `inspect.signature` show each option of a `TypedDict`.

    They stand in place of the function's `**options`, with one default, which is that of most.
    """

    def decorate(function: FunctionT) -> FunctionT:
        written = inspect.signature(function)
        *parameters, _ = written.parameters.values()
        parameters += [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=kind.__forward_arg__ if isinstance(kind, ForwardRef) else kind,
            )
            for name, kind in options.__annotations__.items()
        ]
        setattr(function, "__signature__", written.replace(parameters=parameters))  # noqa: B010
        return function

    return decorate


def check_options(
    called: str, given: Mapping[str, object], options: Any, instead: Mapping[str, str] = NO_NAMES
) -> None:
    """Refuse an option that a `TypedDict` does not have.

    `instead` says what to write here for names of other libraries.

    Raises:
        TypeError: as Python does for an unknown parameter, with the option that may be meant.
    """
    known: frozenset[str] = options.__optional_keys__
    if given.keys() <= known:
        return
    unknown = min(given.keys() - known)
    near = nearest_hint(unknown, known)
    hint = f"; here, it is {instead[unknown]}" if unknown in instead else near and f".{near}"
    raise TypeError(f"{called}() got an unexpected keyword argument {unknown!r}{hint}")
