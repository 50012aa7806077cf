"""Checks of the declaration of a function or flow, before anything is called.

Each check returns its problems, a sentence each, so that one `CompileError` has all of them. Conditions check
their parameters by themselves: see `problems` of `Postcondition` and `Precondition`.
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, ModuleType, UnionType
from typing import Annotated, Any, NewType, Union, get_args, get_origin

from pydantic import BaseModel
from typing_extensions import TypeAliasType, get_type_hints, is_typeddict

from fastroai.contracts.annotations import Annotation, outer_class
from fastroai.errors import ConfigurationError, nearest_hint
from fastroai.functions.declaring.sources import source_of
from fastroai.runtime.options import check_count


def call_problems(option: str, function: Callable[..., object], kind: type) -> list[str]:
    """Return the problems of a plain function that calls functions of a kind, such as those with `@infer`."""
    if isinstance(function, kind):
        return [f"{option}: {_name(function)} asks a model, and {option} must not"]
    source = source_of(function)
    if source is None or not isinstance(function, FunctionType):
        return []
    called = {
        ast.unparse(call.func): _value_of(call.func, function)
        for call in ast.walk(source)
        if isinstance(call, ast.Call)
    }
    return [
        f"{option}: it calls {name}, which asks a model, and {option} must not"
        for name, value in called.items()
        if isinstance(value, kind)
    ]


def count_problems(option: str, value: int | None, *, least: int = 1, required: bool = False) -> list[str]:
    """Return the problem of an option that is not a whole number of at least `least`."""
    try:
        check_count(option, value, least=least, required=required)
    except ConfigurationError as error:
        return [str(error)]
    return []


def quorum_problems(quorum: int | None, agree_on: str | None, threshold: int | None) -> Iterator[str]:
    """Yield the problems of a vote of members."""
    if quorum is None:
        if agree_on is not None:
            yield f"agree_on={agree_on!r} needs quorum=, the number of members that vote"
        if threshold is not None:
            yield f"threshold={threshold!r} needs quorum=, the number of members that vote"
        return
    invalid = [*count_problems("quorum", quorum), *count_problems("threshold", threshold)]
    yield from invalid
    if not invalid and threshold is not None and threshold > quorum:
        yield f"threshold={threshold} is more than the {quorum} members of the quorum, which can never agree"
    if agree_on is None and threshold is None:
        yield "quorum= needs agree_on=, the field that must be equal, or threshold=, how many must agree"


def agreement_problems(agree_on: str | None, returns: Annotation) -> list[str]:
    """Return a problem if the type of outputs lacks the field on which they should agree."""
    if agree_on is None:
        return []
    if not isinstance(agree_on, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        return [f"agree_on={agree_on!r}: expected the name of a field"]
    of = [*_alternatives(returns)]
    for name in agree_on.split("."):
        classes = [outer_class(one) for one in of]
        if not all(isinstance(one, type) for one in classes) or any(map(_has_any_key, classes)):
            return []
        members = [_fields_of(one)[name] for one in classes if name in _fields_of(one)]
        if not members:
            known = {field for one in classes for field in _fields_of(one)}
            names = " | ".join(one.__name__ for one in classes)
            return [f"agree_on={agree_on!r}: {names} has no field {name!r}.{nearest_hint(name, known)}"]
        of = [one for member in members for one in _alternatives(member)]
    return []


def _has_any_key(of: type) -> bool:
    return issubclass(of, Mapping) and not is_typeddict(of)


def _alternatives(annotation: Annotation) -> Iterator[Annotation]:
    """Yield the members of a union, or the type itself, without metadata."""
    origin: Any = get_origin(annotation)
    if isinstance(annotation, TypeAliasType):
        yield from _alternatives(annotation.__value__)
    elif isinstance(annotation, NewType):
        yield from _alternatives(annotation.__supertype__)
    elif origin is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for one in get_args(annotation):
            yield from _alternatives(one)
    else:
        yield type(None) if annotation is None else annotation


def _fields_of(of: type) -> Mapping[str, Annotation]:
    """Return the annotated attributes of a class, or the keys of a TypedDict, by name; empty if unknown."""
    if issubclass(of, BaseModel):
        return {name: field.annotation for name, field in of.model_fields.items()}
    try:
        return get_type_hints(of)
    except Exception:  # evaluating an annotation can raise anything
        written = [vars(one).get("__annotations__", {}) for one in of.__mro__]
        return {name: Any for names in written for name in names}


def flow_problems(function: Callable[..., object]) -> list[str]:
    """Return a problem if the body of a flow is not async."""
    if inspect.iscoroutinefunction(function):
        return []
    return ["a flow awaits the functions that it calls, so it must be async: write `async def`"]


def _name(function: object) -> str:
    return getattr(function, "__name__", None) or repr(function)


def _value_of(node: ast.expr, function: FunctionType) -> Any:
    """Return the value of a name, or of an attribute of a module, in a function; `None` if unknown."""
    if isinstance(node, ast.Name):
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        if node.id in cells:
            try:
                return cells[node.id].cell_contents
            except ValueError:  # not assigned yet
                return None
        if node.id in function.__code__.co_varnames:
            return None
        return function.__globals__.get(node.id, getattr(builtins, node.id, None))
    if isinstance(node, ast.Attribute) and isinstance(
        module := _value_of(node.value, function), ModuleType | type
    ):
        return vars(module).get(node.attr)
    return None
