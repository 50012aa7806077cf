"""Types that classes and functions declare: arguments of generic bases, and return annotations."""

from __future__ import annotations

import builtins
import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import SimpleNamespace
from typing import Any, Final, TypeVar, get_args, get_type_hints

from fastroai.contracts.annotations import Annotation, outer_class, says_something

_AWAITED: Final = (Awaitable, Coroutine)


def returned_type(function: Callable[..., object]) -> Annotation | None:
    """Return the annotated return type of a function, awaited; `None` without one that can be found.

    Names that only type checkers import (`TYPE_CHECKING`), and local ones in quotes, cannot be found.
    """
    while isinstance(function, functools.partial):
        function = function.func
    if not hasattr(function, "__annotations__"):
        function = type(function).__call__  # an object that can be called
    said = getattr(function, "__annotations__", {}).get("return", Any)
    found = _evaluated(said, getattr(inspect.unwrap(function), "__globals__", {}))
    if outer_class(found) in _AWAITED and not inspect.iscoroutinefunction(function):
        found = (Any, *get_args(found))[-1]
    return found if says_something(found) else None


def argument_of(instance: object, base: type, index: int) -> Annotation | None:
    """Return the argument that the class of an instance gives a generic base, through subclasses and aliases.

    With `class Classify(BaseStep[Deps, Category])`, the argument of `BaseStep` with index 1 is `Category`.
    Return `None` if there is none.
    """
    argument = _argument(getattr(instance, "__orig_class__", type(instance)), base, index)
    return argument if says_something(argument) else None


def _argument(of: Annotation, base: type, index: int) -> Annotation:
    """Return the argument of `base` in a class or an alias of one; `Any` if it is not given."""
    origin, given = outer_class(of), get_args(of)
    if origin is base:
        return given[index] if index < len(given) else Any
    if not isinstance(origin, type) or not issubclass(origin, base):
        return Any
    bound = dict(zip(getattr(origin, "__parameters__", ()), given, strict=False))
    module = vars(sys.modules.get(origin.__module__, SimpleNamespace()))
    for parent in origin.__dict__.get("__orig_bases__", origin.__bases__):
        argument = _substituted(_evaluated(_argument(parent, base, index), module), bound)
        if says_something(argument):
            return argument
    return Any


def _evaluated(annotation: Annotation, names: dict[str, Any]) -> Annotation:
    """Return the annotation with names in quotes looked up; `Any` if one is not defined."""
    if isinstance(annotation, str) and annotation.isidentifier():
        value = names.get(annotation, vars(builtins).get(annotation))
        if isinstance(value, type):
            return value  # most annotations; the general way compiles each of them
    try:
        return get_type_hints(
            SimpleNamespace(__annotations__={"it": annotation}), names, include_extras=True
        )["it"]
    except Exception:  # evaluating an annotation can raise anything
        return Any


def _substituted(annotation: Annotation, bound: Mapping[Any, Annotation]) -> Annotation:
    if isinstance(annotation, TypeVar):
        return bound.get(annotation, Any)
    parameters = getattr(annotation, "__parameters__", ())
    if not parameters or isinstance(annotation, type):
        return annotation
    return annotation[tuple(bound.get(parameter, Any) for parameter in parameters)]
