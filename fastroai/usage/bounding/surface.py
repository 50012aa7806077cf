"""Names of everything in a request or a response that the account does not understand.

Such a thing is of a newer PydanticAI, or of somebody else, and may be billed in a way that nobody here knows.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from fastroai.usage.facts.surface import (
    CONTENTS,
    MESSAGES,
    MODEL_CALLS,
    NATIVE_TOOLS,
    PARAMETERS,
    REQUEST_PARTS,
    RESPONSE_PARTS,
)

if TYPE_CHECKING:
    from pydantic_ai.models import ModelRequestParameters

    from fastroai.usage.facts.source import Names

Place = Literal["request", "response", "content", "message", "parameters", "native tool"]
"""The place of an object in a request or a response: a part of one, or the content of a prompt."""

_LISTED: Final[Mapping[Place, Mapping[str, Names]]] = {
    "request": REQUEST_PARTS,
    "response": RESPONSE_PARTS,
    "content": CONTENTS,
    "message": MESSAGES,
    "parameters": PARAMETERS,
    "native tool": NATIVE_TOOLS,
}


_CALLS: Final = frozenset[str]().union(*(calls.names for calls in MODEL_CALLS.values()))


class Shape(NamedTuple):
    """What is known of all objects of one class."""

    kind: str
    """The name of the kind, as PydanticAI gives it."""
    is_listed: bool
    unlisted: tuple[Field[Any], ...]
    """The fields that are not listed."""


@lru_cache(maxsize=1024)
def shape_of(cls: Any, place: Place) -> Shape:
    """Return what is known of the objects of a class."""
    table = _LISTED[place]
    if place == "parameters":
        name = next((base.__name__ for base in cls.__mro__ if base.__name__ in table), cls.__name__)
    else:
        name = str(getattr(cls, "part_kind", None) or getattr(cls, "kind", None) or cls.__name__)
    listed = table.get(name)
    if listed is None:
        return Shape(name, False, ())
    public = [one for one in fields(cls) if not one.name.startswith("_")] if is_dataclass(cls) else []
    return Shape(name, True, tuple(one for one in public if one.name not in listed.names))


def unlisted(value: object, place: Place) -> Sequence[str]:
    """Return the kind of an object if it is not listed; else its unlisted fields that are set.

    The names are as in `stored-file` and `user-prompt.attachments`.
    """
    cls: Any = type(value)
    shape = shape_of(cls, place)
    if not shape.is_listed:
        return (shape.kind,)
    if not shape.unlisted:
        return ()
    return [f"{shape.kind}.{one.name}" for one in shape.unlisted if getattr(value, one.name) != _default(one)]


def _default(one: Field[Any]) -> object:
    return one.default if one.default_factory is MISSING else one.default_factory()


def unlisted_in_parameters(parameters: ModelRequestParameters) -> Iterator[str]:
    """Yield the names of everything in the parameters of a request that the account does not understand."""
    yield from unlisted(parameters, "parameters")
    for part in (*parameters.function_tools, *parameters.output_tools, *(parameters.instruction_parts or ())):
        yield from unlisted(part, "parameters")
    if parameters.output_object is not None:
        yield from unlisted(parameters.output_object, "parameters")
    for tool in parameters.native_tools:
        yield from unlisted(tool, "native tool")


def sends(method: object, name: str) -> bool:
    """Return whether a method of a model is one that may send a request, and that is not listed."""
    return not name.startswith("_") and name not in _CALLS and _is_async(getattr(method, "__func__", method))


@lru_cache(maxsize=1024)
def _is_async(function: Any) -> bool:
    function = inspect.unwrap(function)
    if not inspect.isfunction(function):
        return False
    returned = str(function.__annotations__.get("return", ""))
    return (
        inspect.iscoroutinefunction(function)
        or inspect.isasyncgenfunction(function)
        or any(each in returned for each in ("Async", "Awaitable", "Coroutine"))
    )
