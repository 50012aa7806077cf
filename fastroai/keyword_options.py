"""Functions that take keyword options as one value: `**options: Unpack[SomeTypedDict]`.

Type checkers and editors read the names and types of the options from the `TypedDict`. What Python itself
would do for written-out parameters is here: show them, and refuse all others when the function is called.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, ForwardRef, TypeVar, cast

from fastroai.errors import nearest_hint
from fastroai.errors.texts import NEAR

NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})

_OF_A_SLIP: Final = 0.75
"""The likeness of `retrys` and `retries`; `text`, which is probably an input, is less like `context`."""

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def hint_for(unknown: str, signature: inspect.Signature, name: str) -> str:
    """Return what an unknown argument probably is: another one, or an input of a run; may be empty."""
    inputs = signature.parameters.get("inputs")  # by name alone, they are those of a row, or replace others
    takes_inputs = inputs is not None and inputs.kind is not inspect.Parameter.KEYWORD_ONLY
    hint = nearest_hint(unknown, signature.parameters, _OF_A_SLIP if takes_inputs else NEAR)
    if not hint and takes_inputs:
        hint = f" Inputs are one mapping: {name}({{{unknown!r}: …}})"
    return hint and f".{hint}"


def takes_options(
    options: Any,
    *,
    default: object = None,
    defaults: Mapping[str, object] = NO_NAMES,
    instead: Mapping[str, str] = NO_NAMES,
) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator for a function whose `**options` are those of a `TypedDict`.

    `help` and `inspect.signature` show each option. For any other one, a call raises `TypeError`, as Python
    does for an unknown parameter, and says which option may be meant. That of an `async` function raises it
    before it is awaited.

    Args:
        options: The `TypedDict`.
        default: The default to show for most of the options.
        defaults: The default to show for each of the others, by name.
        instead: What to write here for names of other libraries.
    """

    def decorate(function: FunctionT) -> FunctionT:
        signature = _with_options(inspect.signature(function), options, default, defaults)
        known = frozenset(signature.parameters)

        @functools.wraps(function)
        def checked(*args: Any, **given: Any) -> Any:
            if given and not given.keys() <= known:
                unknown = min(given.keys() - known)
                hint = f"; here, it is {instead[unknown]}" if unknown in instead else ""
                hint = hint or hint_for(unknown, signature, function.__name__)
                called = function.__qualname__
                if "self" in known:  # the method may be that of a base class
                    called = f"{type(args[0]).__name__}.{function.__name__}"
                raise TypeError(f"{called}() got an unexpected keyword argument {unknown!r}{hint}")
            return function(*args, **given)

        setattr(checked, "__signature__", signature)  # noqa: B010
        if inspect.iscoroutinefunction(function):
            _mark_as_coroutine_function(checked)
        return cast("FunctionT", checked)

    return decorate


def _mark_as_coroutine_function(function: Any) -> None:
    """Have `inspect.iscoroutinefunction` say of a function that what it returns is to be awaited."""
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(function)
    else:  # there only the flag of the code says it, which does not change what the code does
        code = function.__code__
        function.__code__ = code.replace(co_flags=code.co_flags | inspect.CO_COROUTINE)


def _with_options(
    signature: inspect.Signature, options: Any, default: object, defaults: Mapping[str, object]
) -> inspect.Signature:
    """Return a signature with all options in place of `**options`, which is its last parameter."""
    *parameters, _ = signature.parameters.values()
    for name, kind in options.__annotations__.items():
        annotation = kind.__forward_arg__ if isinstance(kind, ForwardRef) else kind
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults.get(name, default),
                annotation=annotation,
            )
        )
    return signature.replace(parameters=parameters)
