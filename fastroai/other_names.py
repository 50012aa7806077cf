"""Names that people know from other libraries: the error for one of them says what to write here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import NoReturn, TypeVar

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
        if not isinstance(made, type):
            return _refusing(made, made.__name__, arguments)  # type: ignore[return-value]  # the same signature
        name = made.__name__
        if arguments:
            setattr(made, "__init__", _refusing(vars(made)["__init__"], name, arguments))  # noqa: B010
        if attributes:

            def get(self: object, attribute: str) -> NoReturn:
                here = attributes.get(attribute)
                told = "" if here is None else f"; here, it is {here}"
                raise AttributeError(
                    f"{name!r} object has no attribute {attribute!r}{told}", name=attribute, obj=self
                )

            setattr(made, "__getattr__", get)  # noqa: B010
        return made

    return decorate


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
