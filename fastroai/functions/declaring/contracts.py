"""`@contract`: classes whose values a model can give."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints, overload

import pydantic.dataclasses
from pydantic import BaseModel, Field, PydanticUndefinedAnnotation, PydanticUserError
from typing_extensions import TypeAliasType, dataclass_transform, is_typeddict

from fastroai.callers import names_around
from fastroai.contracts.annotations import Annotation
from fastroai.functions.declaring.schemas import (
    BYTES_AS_BASE64,
    adapter_for,
    circles_of,
    problems_of,
    said_by,
)
from fastroai.functions.errors import CompileError

ClassT = TypeVar("ClassT")

_REGISTERED: Final = "__fastroai_contract__"


@overload
def contract(cls: type[ClassT], /) -> type[ClassT]: ...
@overload
def contract() -> Callable[[type[ClassT]], type[ClassT]]: ...
@dataclass_transform(field_specifiers=(Field, dataclasses.field))
def contract(cls: Any = None, /) -> Any:
    """Declare a class of values that a model can return: a pydantic model, a dataclass, or a plain class.

        @contract
        class Sentiment(BaseModel):
            label: Literal["positive", "negative", "neutral"]
            confidence: Annotated[float, Field(ge=0, le=1)]

    A pydantic model or a dataclass is returned itself. A plain class with annotations becomes a dataclass
    that pydantic checks. In JSON, bytes are base64 text. `@contract()` means the same.

    Raises:
        CompileError: it is another kind of class, such as an enum or TypedDict; the class has no fields; a
            field has no JSON Schema, such as a function, or accepts anything (`Any`); or a field refers back
            to the class. Every field with a problem is named.
    """
    if cls is None:
        return contract
    name = getattr(cls, "__name__", repr(cls))
    if not isinstance(cls, type) or not can_be_contract(cls):
        expected = "it is neither a pydantic model, nor a dataclass, nor a plain class with annotations"
        raise CompileError(f"contract {name!r}", (expected,))
    names = {**names_around(), name: cls}
    try:
        made: type = _completed(cls, names)
        schema = adapter_for(made).core_schema
    except (PydanticUserError, PydanticUndefinedAnnotation, NameError, TypeError) as error:
        problems = tuple(_broken_fields(cls, names)) or (said_by(error),)
        raise CompileError(f"contract {name!r}", problems) from error
    problems = (*_without_fields(made), *circles_of(schema))
    if not getattr(made, "__parameters__", ()):  # a generic one is checked where it has arguments
        problems = (*problems, *problems_of(schema))
    if problems:
        raise CompileError(f"contract {name!r}", problems)
    setattr(made, _REGISTERED, True)
    return made


def unregistered_in(annotation: Annotation) -> Iterator[type]:
    """Yield the classes in a type that have fields and are not contracts."""
    if isinstance(annotation, TypeAliasType):
        annotation = annotation.__value__
    origin = get_origin(annotation)
    if isinstance(origin, TypeAliasType):
        yield from unregistered_in(origin.__value__)
    for argument in get_args(annotation):
        yield from unregistered_in(argument)
    if isinstance(annotation, type) and _has_fields(annotation) and not is_contract(annotation):
        yield annotation


def is_contract(cls: type) -> bool:
    """Return whether a class was decorated with `@contract`, or the generic model that it is made from."""
    generic = getattr(cls, "__pydantic_generic_metadata__", {}).get("origin")
    return _REGISTERED in vars(cls) or (generic is not None and _REGISTERED in vars(generic))


def can_be_contract(cls: type) -> bool:
    """Return whether `@contract` takes a class. It takes no enum, TypedDict or NamedTuple."""
    return not any(base.__module__ in ("builtins", "enum") for base in cls.__mro__[:-1])


def _has_fields(cls: type) -> bool:
    return (
        issubclass(cls, BaseModel)
        or dataclasses.is_dataclass(cls)
        or is_typeddict(cls)
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
        or (can_be_contract(cls) and bool(inspect.get_annotations(cls)) and not _is_known_to_pydantic(cls))
    )


def _is_known_to_pydantic(cls: type) -> bool:
    try:
        adapter_for(cls)
    except PydanticUserError:
        return False
    return True


def _completed(cls: Any, names: dict[str, object]) -> Any:
    """Return the class with the names in its annotations resolved, and with bytes as base64."""
    if issubclass(cls, BaseModel):
        cls.model_config = BYTES_AS_BASE64 | cls.model_config
        cls.model_rebuild(force=True, _types_namespace=names)
        return cls
    config: Any = BYTES_AS_BASE64 | getattr(cls, "__pydantic_config__", {})
    _look_up(cls, names)
    if "__dataclass_fields__" not in vars(cls):  # a subclass of a dataclass is not one by itself
        return pydantic.dataclasses.dataclass(cls, config=config)
    cls.__pydantic_config__ = config
    if pydantic.dataclasses.is_pydantic_dataclass(cls):
        pydantic.dataclasses.rebuild_dataclass(cls, force=True, _types_namespace=names)
    return cls


def _look_up(cls: type, names: Mapping[str, object]) -> None:
    """Replace names in quotes by the objects that they name, while names around the class are known."""
    own = inspect.get_annotations(cls)
    hints = get_type_hints(cls, localns=dict(names), include_extras=True)
    cls.__annotations__ = {name: hints[name] for name in own}
    for name, field in vars(cls).get("__dataclass_fields__", {}).items():
        if name in own:
            field.type = hints[name]


def _without_fields(cls: type) -> Iterator[str]:
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    if not (getattr(cls, "__pydantic_fields__", None) or fields):
        yield "it has no fields; a contract says what is expected, so it has at least one"


def _broken_fields(cls: type, names: Mapping[str, object]) -> Iterator[str]:
    """Yield the fields that pydantic cannot handle, each with the reason."""
    for name, said in inspect.get_annotations(cls).items():
        try:
            holder: Any = type("holder", (), {"__annotations__": {name: said}, "__module__": cls.__module__})
            adapter_for(get_type_hints(holder, localns=dict(names), include_extras=True)[name])
        except (PydanticUserError, PydanticUndefinedAnnotation, TypeError) as error:
            yield f"{name}: {said_by(error)}"
        except NameError as error:
            yield f"{name}: {error}; a contract is declared after those in its fields"
