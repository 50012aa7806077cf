"""Names that people know from other libraries: the error for one of them says what to write here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import NoReturn, TypeVar, cast

_MadeT = TypeVar("_MadeT", bound=Callable[..., object])

_NONE: Mapping[str, str] = {}


def other_names(
    *, arguments: Mapping[str, str] = _NONE, attributes: Mapping[str, str] = _NONE
) -> Callable[[_MadeT], _MadeT]:
    """Return a decorator that adds what to write instead to the errors for names of other libraries.

    Type checkers see the class or function unchanged, so they go on reporting these names.

    Args:
        arguments: For names of arguments that the class or function does not take, what to write here.
        attributes: For names that objects of the class do not have, what to write here.
    """

    def decorate(made: _MadeT) -> _MadeT:
        kind: object = made
        if not isinstance(kind, type):
            return cast("_MadeT", _refusing(made, made.__name__, arguments))
        if arguments:
            setattr(kind, "__init__", _refusing(vars(kind)["__init__"], kind.__name__, arguments))  # noqa: B010
        if attributes:
            setattr(kind, "__getattr__", _missing(kind.__name__, attributes))  # noqa: B010
        return made

    return decorate


def _missing(name: str, attributes: Mapping[str, str]) -> Callable[[object, str], NoReturn]:
    """Return the `__getattr__` of a class, which raises `AttributeError`."""

    def get(self: object, attribute: str) -> NoReturn:
        here = attributes.get(attribute)
        told = "" if here is None else f"; here, it is {here}"
        message = f"{name!r} object has no attribute {attribute!r}{told}"
        raise AttributeError(message, name=attribute, obj=self)

    return get


def _refusing(
    function: Callable[..., object], name: str, arguments: Mapping[str, str]
) -> Callable[..., object]:
    """Return a function that raises `TypeError` for some arguments, and else calls another one."""

    @functools.wraps(function)
    def checked(*args: object, **kwargs: object) -> object:
        if not arguments.keys().isdisjoint(kwargs):
            found = next(one for one in kwargs if one in arguments)
            raise TypeError(
                f"{name}() got an unexpected keyword argument {found!r}; here, it is {arguments[found]}"
            )
        return function(*args, **kwargs)

    return checked
