"""The fields of outputs and of declared types, for conditions and `writes`."""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from typing_extensions import is_typeddict

from fastroai.contracts.annotations import Annotation, outer_class

_WITHOUT_FIELDS: Final = (str, bytes, int, float, Decimal, list, tuple, set, frozenset, enum.Enum)
_PLAIN: Final = frozenset({str, int, float, bool, type(None), list, tuple})
"""The most frequent types of outputs without fields."""


def fields_of(output: object) -> Mapping[str, object] | None:
    """Return the fields of a mapping, a pydantic model or a dataclass; `None` for anything else."""
    if type(output) in _PLAIN:
        return None
    if isinstance(output, Mapping):
        return output
    if isinstance(output, BaseModel):
        if output.__pydantic_root_model__:
            root: object = getattr(output, "root")  # noqa: B009 - only a `RootModel` has it
            return fields_of(root)
        fields = {name: getattr(output, name) for name in type(output).model_fields}
        return {**fields, **(output.model_extra or {})}
    if dataclasses.is_dataclass(output) and not isinstance(output, type):
        names = [field.name for field in dataclasses.fields(output)]
        return {name: getattr(output, name) for name in names if hasattr(output, name)}
    return None


def declared_fields(annotation: Annotation | None) -> frozenset[str] | None:
    """Return the names of the fields of a model, dataclass or TypedDict, or of all types of a union.

    The set is empty for texts, numbers and lists, which have no fields. Return `None` if the names are not
    known, as for a `dict[str, int]`.
    """
    known: set[str] = set()
    waiting: list[Annotation] = [annotation]
    while waiting:
        one = waiting.pop()
        parts = _parts(one)
        if parts is not None:
            waiting += parts
            continue
        fields = _fields(one)
        if fields is None:
            return None
        known.update(fields)
    return frozenset(known)


def _parts(annotation: Annotation) -> list[Annotation] | None:
    """Return the types that a union or an alias consists of; `None` for another annotation."""
    origin: Any = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return [part for part in get_args(annotation) if part is not types.NoneType]
    if origin is Annotated:
        return [get_args(annotation)[0]]
    if hasattr(annotation, "__supertype__"):  # of a NewType
        return [annotation.__supertype__]
    return [annotation.__value__] if hasattr(annotation, "__value__") else None  # of a `type` statement


def _fields(annotation: Annotation) -> Iterable[str] | None:
    origin = outer_class(annotation)
    if origin is Literal:
        return ()
    if not isinstance(origin, type):
        return None
    if is_typeddict(origin):
        return origin.__annotations__
    if issubclass(origin, BaseModel):
        is_open = origin.__pydantic_root_model__ or origin.model_config.get("extra") == "allow"
        return None if is_open else origin.model_fields
    if dataclasses.is_dataclass(origin):
        return [field.name for field in dataclasses.fields(origin)]
    return () if issubclass(origin, _WITHOUT_FIELDS) else None
