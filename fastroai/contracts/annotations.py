"""Type annotations, and the adapters of pydantic that check their values."""

from __future__ import annotations

import functools
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Generator,
    Iterable,
    Iterator,
)
from functools import cached_property
from typing import Any, Final, Never, NoReturn, TypeAlias, TypeVar, cast, get_args, get_origin

from pydantic import ConfigDict, InstanceOf, PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter
from pydantic_core import SchemaError

Annotation: TypeAlias = Any
"""A type, or another form of annotation: `list[int]`, `Order | None`, `Annotated[...]`."""

_SAYS_NOTHING: Final = (Any, object, Never, NoReturn)

# Types whose values pydantic would replace by an iterator, which can be read only once.
_CHECKED_WHILE_READ: Final = frozenset(
    {Iterable, Iterator, Generator, AsyncIterable, AsyncIterator, AsyncGenerator}
)

_NO_ADAPTER: Final = (PydanticUserError, PydanticUndefinedAnnotation, SchemaError)
"""Errors that pydantic raises if it cannot check a type, or not yet."""

_INSTANCES_PASS: Final = frozenset(
    {"bool", "bytes", "dataclass", "float", "int", "is-instance", "model", "none", "str"}
)
"""Types of pydantic schemas by which a direct instance of the class is valid, and stays unchanged."""


_PLAIN: Final = (bool, bytes, float, int, str, type(None))
"""Classes of which this is known without a schema: direct instances are valid, and stay unchanged."""


class Checker:
    """Checks values of an annotation, by an adapter that is built when it is first needed.

    To build the first adapter of a process takes long: pydantic loads its plugins then, such as logfire's.
    """

    def __init__(self, annotation: Annotation) -> None:
        self.annotation = annotation

    @classmethod
    def of(cls, annotation: Annotation) -> Checker | None:
        """Return the checker of an annotation; `None` if pydantic can check neither it nor its class."""
        checker = cls(annotation)
        return checker if checker._is_plain or checker.adapter is not None else None

    @cached_property
    def adapter(self) -> TypeAdapter[Any] | None:
        """The adapter of the annotation, or else one that checks only its outer class, if there is one."""
        return checker_of(self.annotation)

    @property
    def exact(self) -> type | None:
        """The class whose direct instances need no check."""
        if self._is_plain:
            return cast("type", self.annotation)
        return None if self.adapter is None else exact_class(self.annotation, self.adapter)

    @property
    def _is_plain(self) -> bool:
        return any(self.annotation is plain for plain in _PLAIN)

    def check(self, value: object, *, strict: bool | None) -> Any:
        """Return the value as pydantic validates it. Raises what pydantic or a user's validator raises."""
        assert self.adapter is not None
        return self.adapter.validate_python(value, strict=strict)


def says_something(annotation: Annotation) -> bool:
    """Return whether an annotation restricts the values in any way."""
    return not (annotation in _SAYS_NOTHING or isinstance(annotation, TypeVar))


def outer_class(annotation: Annotation) -> Annotation:
    """Return the class without its arguments, such as `list` for `list[int]`."""
    origin: Annotation = get_origin(annotation)
    return annotation if origin is None else origin


def adapter_of(annotation: Annotation) -> TypeAdapter[Any] | None:
    """Return the adapter that validates and serialises values of an annotation; `None` if there is none.

    Classes that pydantic does not know are checked with `isinstance`. Adapters are cached and shared.

        adapter = adapter_of(list[Order])
    """
    if _is_checked_while_read(annotation):
        return None
    try:
        hash(annotation)
    except TypeError:  # such as Annotated[int, {...}]
        return _built(annotation)
    try:
        # The text is part of the key: `int | str` and `str | int` are equal, but can validate differently.
        return _kept_adapter(annotation, repr(annotation))
    except _NO_ADAPTER:
        return None


def checker_of(annotation: Annotation) -> TypeAdapter[Any] | None:
    """Return the adapter of an annotation, or else one that checks only its outer class, if there is one."""
    adapter = adapter_of(annotation)
    if adapter is not None:
        return adapter
    outer = outer_class(annotation)
    return _built(_instance_of(outer)) if isinstance(outer, type) else None


def checkable(annotation: Annotation) -> Annotation:
    """Return the annotation, or the part of it that can be checked, for use inside another annotation."""
    if adapter_of(annotation) is not None:
        return annotation
    return Any if checker_of(annotation) is None else _instance_of(outer_class(annotation))


def exact_class(annotation: Annotation, checker: TypeAdapter[Any]) -> type | None:
    """Return the class whose direct instances need no check, as they are valid and stay unchanged."""
    schema: Any = checker.core_schema
    if not isinstance(annotation, type) or get_origin(annotation) is not None:
        return None
    if schema["type"] not in _INSTANCES_PASS:
        return None
    revalidate = schema.get("revalidate_instances") or schema.get("config", {}).get("revalidate_instances")
    return annotation if revalidate in (None, "never") else None


def _instance_of(outer: Annotation) -> Annotation:
    instance_of: Any = InstanceOf  # type checkers cannot know the class in it
    return instance_of[outer]


@functools.lru_cache(maxsize=1024)
def _kept_adapter(annotation: Annotation, text: str) -> TypeAdapter[Any]:
    return _make_adapter(annotation)


def _is_checked_while_read(annotation: Annotation) -> bool:
    outer = outer_class(annotation)
    if isinstance(outer, type) and outer in _CHECKED_WHILE_READ:
        return True
    return any(map(_is_checked_while_read, get_args(annotation)))


def _built(annotation: Annotation) -> TypeAdapter[Any] | None:
    try:
        return _make_adapter(annotation)
    except _NO_ADAPTER:
        return None


def _make_adapter(annotation: Annotation) -> TypeAdapter[Any]:
    adapter: TypeAdapter[Any]
    try:
        adapter = TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True))
    except PydanticUserError as error:
        if error.code != "type-adapter-config-unused":
            raise
        adapter = TypeAdapter(annotation)  # a model, dataclass or TypedDict has a config of its own
    if not adapter.pydantic_complete:
        adapter.rebuild(raise_errors=True)
    return adapter
