"""A declared type with all that calls need: checks, JSON, and its opaque parts."""

from __future__ import annotations

from typing import Any, Final

from pydantic import JsonValue, PydanticUserError, TypeAdapter, ValidationError

from fastroai.contracts.annotations import Annotation
from fastroai.errors import ViolationDetail
from fastroai.functions.declaring.core_schemas import all_parts, definitions_of
from fastroai.functions.declaring.opacity import (
    Opacity,
    details_without_opaque,
    elided,
    opacity_of,
)
from fastroai.functions.declaring.schemas import adapter_for, problems_of, said_by
from fastroai.functions.errors import CompileError
from fastroai.store.record.declarations import sort_sets

_SETS: Final = frozenset({"set", "frozenset"})


class DeclaredType:
    """The declared type of a parameter or a result.

    Raises:
        CompileError: the type has no JSON Schema, or accepts anything.
    """

    def __init__(self, annotation: Annotation, name: str) -> None:
        """Read a type. `name` is the name of the parameter, or of the result, in errors."""
        self.annotation: Final[Annotation] = annotation
        try:
            self.adapter: Final[TypeAdapter[Any]] = adapter_for(annotation)
        except PydanticUserError as error:
            raise CompileError(name, (f"{name}: {said_by(error)}",)) from error
        schema = self.adapter.core_schema
        problems = tuple(problems_of(schema, name))
        if problems:
            raise CompileError(name, problems)
        self.opacity: Final[Opacity | None] = opacity_of(schema)
        """The opaque parts of values, if there are any."""
        # The methods of the adapter itself add nothing to these.
        self.check: Final = self.adapter.validator.validate_python
        """Function that returns a value as pydantic validates it. Raises `pydantic.ValidationError`."""
        self._dump: Final = self.adapter.serializer.to_python
        parts = all_parts(schema, definitions_of(schema))
        self._has_sets = any(one["type"] in _SETS for one in parts)

    def json_of(self, value: object) -> JsonValue:
        """Return a value as JSON, with opaque parts. The items of sets are in the order of their JSON.

        Fields have their names, not their aliases.
        """
        made: JsonValue = self._dump(value, mode="json", by_alias=False)
        if self._has_sets:
            sort_sets(value, made)
        return made

    def elided(self, value: object) -> JsonValue:
        """Return a value as JSON for records and messages, without the content of opaque parts."""
        return self.shown(self.json_of(value))

    def shown(self, made: JsonValue) -> JsonValue:
        """Return the JSON of a value with `<opaque>` for each opaque part."""
        return elided(made, self.opacity)

    def details_of(self, error: ValidationError) -> tuple[ViolationDetail, ...]:
        """Return the problems of a value, without the content of its opaque parts."""
        return details_without_opaque(error, self.opacity)
