"""Exceptions as JSON and back, so that a failure on record is raised again as it was."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from decimal import Decimal
from types import FunctionType
from typing import Any, Final, cast

from pydantic import JsonValue
from pydantic_core import to_json

from fastroai.errors import RecordedError
from fastroai.runtime.fact_base import FailureFacts

_MOST: Final = 100_000
"""Most bytes of JSON that are kept of one exception."""
_DEEP: Final = 20
"""How deep values and exceptions may be inside each other."""
_TUPLE, _DICT, _DECIMAL, _ERROR = "tuple", "dict", "decimal", "error"


class _NotPlain(Exception):
    """JSON cannot hold a value as it is."""


def exception_to_json(error: BaseException) -> JsonValue:
    """Return the arguments and attributes of an exception as JSON; an empty object if JSON cannot hold them.

    Attributes whose names begin with an underscore are left out.
    """
    try:
        parts = _parts(error, 0)
        return parts if len(to_json(parts)) <= _MOST else {}
    except (_NotPlain, ValueError):
        return {}


def exception_from_json(failure: FailureFacts, parts: JsonValue) -> Exception | None:
    """Return an exception as it was raised; `None` if that is not on record, or its class is not loaded.

    Nothing is imported, and only classes of exceptions are called.
    """
    if not isinstance(parts, dict) or not parts:
        return None
    try:
        error = _error(failure.error_type, parts)
    except Exception:  # a class that takes other arguments than when the exception was stored
        return None
    return error if isinstance(error, Exception) else None


def stand_in_for(failure: FailureFacts) -> Exception | None:
    """Return an exception with the class and the message on record; `None` if the class is not loaded.

    It is a `RecordedError`, too, and has no attributes of its class.
    """
    kind = _class_named(failure.error_type)
    if kind is None or not issubclass(kind, Exception) or issubclass(kind, BaseExceptionGroup):
        return None
    both: Any = type(kind.__name__, (RecordedError, kind), {"__module__": kind.__module__})
    error: RecordedError = both.__new__(both)
    vars(error).update(error_type=failure.error_type, message=failure.message)
    error.args = (failure.error_type, failure.message)
    return error


def _parts(error: BaseException, depth: int) -> dict[str, JsonValue]:
    kind, name = type(error), _name_of(type(error))
    known = _class_named(name)
    if known is not kind and not _is_http_error(error):
        raise _NotPlain
    attributes = {key: value for key, value in vars(error).items() if not key.startswith("_")}
    return {
        "args": [_to_json(one, depth + 1) for one in error.args],
        "attributes": {key: _to_json(one, depth + 1) for key, one in attributes.items()},
        **({} if known is kind else {"is_http": True}),
    }


def _error(name: str, parts: Mapping[str, Any]) -> BaseException | None:
    args = tuple([_from_json(one) for one in parts["args"]])
    attributes = {key: _from_json(one) for key, one in parts["attributes"].items()}
    kind = _class_named(name)
    if kind is None:
        return None
    if parts.get("is_http"):
        error = _http_error(kind, attributes)
    elif isinstance(kind.__init__, FunctionType):  # its attributes are what `__init__` has made of arguments
        error = kind.__new__(kind, *args)
        error.args = args
    else:
        error = kind(*args)
    vars(error).update(attributes)
    return error


def _to_json(value: object, depth: int) -> JsonValue:
    if depth > _DEEP:
        raise _NotPlain
    match value:
        case None | bool() | int() | float() | str() if type(value) in (type(None), bool, int, float, str):
            return cast("JsonValue", value)
        case list() if type(value) is list:
            return [_to_json(one, depth + 1) for one in value]
        case tuple() if type(value) is tuple:
            return {_TUPLE: [_to_json(one, depth + 1) for one in value]}
        case dict() if all(type(key) is str for key in value):
            return {_DICT: {key: _to_json(one, depth + 1) for key, one in value.items()}}
        case Decimal():
            return {_DECIMAL: str(value)}
        case BaseException():
            return {_ERROR: {"type": _name_of(type(value)), **_parts(value, depth)}}
        case _:
            raise _NotPlain


def _from_json(stored: Any) -> Any:
    match stored:
        case list():
            return [_from_json(one) for one in stored]
        case {"tuple": list(items)}:
            return tuple([_from_json(one) for one in items])
        case {"dict": dict(items)}:
            return {key: _from_json(one) for key, one in items.items()}
        case {"decimal": str(number)}:
            return Decimal(number)
        case {"error": dict(parts)}:
            return _error(parts["type"], parts)
        case _:
            return stored


def _is_http_error(error: BaseException) -> bool:
    """Return whether an error has a class that PydanticAI has made of a category of errors."""
    from pydantic_ai.exceptions import ModelHTTPError

    return isinstance(error, ModelHTTPError)


def _http_error(category: type[BaseException], attributes: Mapping[str, Any]) -> BaseException:
    from pydantic_ai.exceptions import ModelHTTPError

    known = {key: attributes[key] for key in ("status_code", "model_name", "body")}
    return ModelHTTPError.for_category(cast("Any", category), **known)


def _name_of(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _class_named(name: str) -> type[BaseException] | None:
    """Return the class of exceptions with this name, if a module that is loaded has it."""
    module, _, path = name.rpartition(".")
    outer: list[str] = []
    while module and module not in sys.modules:
        module, _, last = module.rpartition(".")
        outer.insert(0, last)
    found: object = sys.modules.get(module or "builtins")
    for part in (*outer, path):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None
