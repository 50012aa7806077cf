"""The inputs that a contract accepts: their names, their types, and the checks of their values."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NotRequired, Required, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, TypeAdapter
from typing_extensions import TypedDict, get_type_hints, is_typeddict

from fastroai.contracts.annotations import Annotation, adapter_of, checkable, outer_class
from fastroai.errors import ConfigurationError

# Under another name, as type checkers take a call of `TypedDict` for the definition of a type.
_make_typed_dict: Any = TypedDict

Accepts: TypeAlias = Mapping[str, Annotation] | type
"""Types by name, or a TypedDict, model or dataclass whose fields are the names."""


def check_accepts(accepts: object) -> None:
    """Refuse a value that does not declare names and types. Raises `ConfigurationError`."""
    if isinstance(accepts, Mapping):
        fits = all(isinstance(name, str) and not isinstance(of, str) for name, of in accepts.items())
    else:
        fits = isinstance(accepts, type) and (
            is_typeddict(accepts) or issubclass(accepts, BaseModel) or dataclasses.is_dataclass(accepts)
        )
    if not fits:
        expected = "a mapping from names to types, or a TypedDict, a BaseModel class or a dataclass"
        raise ConfigurationError("accepts", accepts, expected)


class Accepted:
    """Checks values by name. It reads the values of `names`; only those in `required` must be there."""

    def __init__(self, accepts: Accepts, *, strict: bool = False) -> None:
        """Prepare the checks.

        Raises:
            ConfigurationError: pydantic cannot check the type; perhaps a name in it is not defined yet.
        """
        check_accepts(accepts)
        if isinstance(accepts, Mapping):
            accepts = _typed_dict({name: _checkable(of) for name, of in accepts.items()})
        elif type(accepts).__module__ == "typing" and sys.version_info < (3, 12):
            accepts = _remade(accepts)
        self._adapter = _adapter(accepts)
        declared: Any = accepts
        self.declared: type | None = declared
        """The type whose fields are the inputs, such as for a schema; `None` if no type says what fits."""
        hints = get_type_hints(accepts, include_extras=True)
        fields = tuple(_fields_of(accepts, hints))
        self._field_of = {name: field for name, field, _ in fields}
        self.names = tuple(self._field_of)
        self.types: dict[str, Annotation] = {
            name: _bare(hints[field]) for name, field in self._field_of.items() if field in hints
        }
        """Declared types by name."""
        self.required = frozenset(name for name, _, is_required in fields if is_required)
        self._strict = strict
        self._parts: TypeAdapter[Any] | None = None
        if strict and dataclasses.is_dataclass(accepts):
            # Strict mode accepts no dict for a dataclass. So its fields are checked strictly first.
            parts = {name: NotRequired[hints[field]] for name, field in self._field_of.items()}
            self._parts, self._strict = _adapter(_typed_dict(parts)), False

    def read(self, inputs: Mapping[str, object]) -> Mapping[str, object]:
        """Return the inputs that are checked: those whose names are declared."""
        return {name: inputs[name] for name in self.names if name in inputs}

    def check(self, values: Mapping[str, object]) -> dict[str, object]:
        """Return the values as pydantic converts them, with defaults for missing ones.

        Raises:
            pydantic.ValidationError: the values do not fit.
        """
        if self._parts is not None:
            values = self._parts.validate_python(values, strict=True)
        made = self._adapter.validate_python(values, strict=self._strict or None)
        if isinstance(made, dict):
            return made
        return {name: getattr(made, field) for name, field in self._field_of.items()}


def _checkable(of: Annotation) -> Annotation:
    may_be_missing = outer_class(of) is NotRequired
    return NotRequired[checkable(_bare(of))] if may_be_missing else checkable(of)


def _adapter(accepts: Annotation) -> TypeAdapter[Any]:
    adapter = adapter_of(accepts)
    if adapter is None:
        expected = "a type that pydantic can check, with all its names defined"
        raise ConfigurationError("accepts", accepts, expected)
    return adapter


def _bare(hint: Annotation) -> Annotation:
    """Return the type inside of `Required[...]` or `NotRequired[...]`."""
    return get_args(hint)[0] if outer_class(hint) in (Required, NotRequired) else hint


def _typed_dict(types: Mapping[str, Annotation]) -> Any:
    made: Any = _make_typed_dict("Accepted", types)
    made.__pydantic_config__ = ConfigDict(arbitrary_types_allowed=True)
    return made


def _remade(accepts: Any) -> Any:
    """Make a `typing.TypedDict` again with `typing_extensions`, as pydantic needs it before Python 3.12."""
    hints = get_type_hints(accepts, include_extras=True)
    required = {name for name, _, is_required in _fields_of(accepts, hints) if is_required}
    made: Any = _make_typed_dict(
        accepts.__name__,
        {name: (Required if name in required else NotRequired)[_bare(of)] for name, of in hints.items()},
    )
    made.__pydantic_config__ = getattr(accepts, "__pydantic_config__", {})
    return made


def _fields_of(accepts: Any, hints: Mapping[str, Annotation]) -> Iterator[tuple[str, str, bool]]:
    """Yield each name as pydantic reads it, the field that it sets, and whether it is required."""
    if is_typeddict(accepts):
        for name, of in hints.items():
            # TypedDict does not see a `Required` or `NotRequired` that is in quotes.
            said = {Required: True, NotRequired: False}.get(outer_class(of))
            yield name, name, name in accepts.__required_keys__ if said is None else said
    elif hasattr(accepts, "__pydantic_fields__"):
        for field, info in accepts.__pydantic_fields__.items():
            name = info.validation_alias or field
            if not isinstance(name, str):
                expected = (
                    f"fields without AliasPath and AliasChoices; give {field!r} a text as alias, or none"
                )
                raise ConfigurationError("accepts", accepts, expected)
            if info.init is not False:
                yield name, field, info.is_required()
    else:
        for field in dataclasses.fields(accepts):
            missing = field.default is field.default_factory is dataclasses.MISSING
            if field.init:
                yield field.name, field.name, missing
