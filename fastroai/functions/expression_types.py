"""The types of expressions over values with annotations, and the attributes that these types lack."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import types
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, NewType, Union, get_args, get_origin

from pydantic import BaseModel
from typing_extensions import TypeAliasType, get_type_hints, is_typeddict

from fastroai.contracts.annotations import Annotation, outer_class
from fastroai.errors import nearest_hint

UNKNOWN: Final[Annotation] = Any
"""The type of an expression whose type does not follow from annotations."""

_SEQUENCES: Final = (list, set, frozenset, tuple)


class ExpressionTypes:
    """Reads the types of the parts of an expression, as far as they follow from annotations.

    `problems` are the attributes and keys that the types lack, a sentence each.
    """

    def __init__(self, names: Mapping[str, Annotation]) -> None:
        """Read expressions over variables of these types."""
        self._names = dict(names)
        self.problems: list[str] = []

    def of(self, node: ast.expr) -> Annotation:
        """Read an expression, and return its type; `UNKNOWN` if that does not follow from annotations."""
        match node:
            case ast.Name(id=name):
                return self._names.get(name, UNKNOWN)
            case ast.Attribute(value=value, attr=attribute):
                return self._member(self.of(value), attribute)
            case ast.Subscript(value=value, slice=index):
                self.of(index)
                return self._element(self.of(value), index)
            case ast.NamedExpr(target=target, value=value):
                self._names[target.id] = self.of(value)
                return self._names[target.id]
            case ast.Lambda(args=arguments):
                inner = {one.arg: UNKNOWN for one in ast.walk(arguments) if isinstance(one, ast.arg)}
                self._inside(inner, [node.body])
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                self._comprehension(node.generators, [node.elt])
            case ast.DictComp():
                self._comprehension(node.generators, [node.key, node.value])
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self.of(child)
                    elif isinstance(child, ast.keyword):
                        self.of(child.value)
        return UNKNOWN

    def _comprehension(self, generators: list[ast.comprehension], made: list[ast.expr]) -> None:
        outside = dict(self._names)
        for one in generators:
            items = _items(self.of(one.iter))
            if isinstance(one.target, ast.Name):
                self._names[one.target.id] = items
            else:
                targets = (part.id for part in ast.walk(one.target) if isinstance(part, ast.Name))
                self._names.update(dict.fromkeys(targets, UNKNOWN))
            for condition in one.ifs:
                self.of(condition)
        for part in made:
            self.of(part)
        self._names = outside

    def _inside(self, names: Mapping[str, Annotation], parts: list[ast.expr]) -> None:
        outside = dict(self._names)
        self._names.update(names)
        for part in parts:
            self.of(part)
        self._names = outside

    def _member(self, of: Annotation, name: str) -> Annotation:
        found: list[Annotation] = []
        lacking: list[Annotation] = []
        for one in alternatives(of):
            member = _member(one, name)
            (lacking if member is None else found).append(one if member is None else member)
        if lacking and not found:
            known = [*_known(lacking)]
            has = f"; it has {', '.join(map(repr, known))}" if known else ""
            self.problems.append(
                f"{' | '.join(map(_name, lacking))} has no {name!r}{has}.{nearest_hint(name, known)}"
            )
        return _joined(found)

    def _element(self, of: Annotation, index: ast.expr) -> Annotation:
        key = index.value if isinstance(index, ast.Constant) else None
        found: list[Annotation] = []
        for one in alternatives(of):
            if is_typeddict(one) and isinstance(key, str):
                fields = fields_of(one)
                if key not in fields:
                    known = ", ".join(map(repr, fields))
                    self.problems.append(
                        f"{_name(one)} has no key {key!r}; it has {known}.{nearest_hint(key, fields)}"
                    )
                found.append(fields.get(key, UNKNOWN))
            elif isinstance(index, ast.Slice):
                found.append(one if outer_class(one) in (list, str) else UNKNOWN)
            else:
                found.append(_element(one, key))
        return _joined(found)


def alternatives(annotation: Annotation) -> Iterator[Annotation]:
    """Yield the members of a union, or the type itself, without metadata."""
    while True:
        if isinstance(annotation, TypeAliasType):
            annotation = annotation.__value__
        elif isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif _origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        else:
            break
    if _origin(annotation) in (Union, types.UnionType):
        for one in get_args(annotation):
            yield from alternatives(one)
    elif _origin(annotation) is Literal:
        yield from dict.fromkeys(type(value) for value in get_args(annotation))
    else:
        yield type(None) if annotation is None else annotation


def _origin(annotation: Annotation) -> Any:
    return get_origin(annotation)


@lru_cache(maxsize=256)
def fields_of(of: type) -> Mapping[str, Annotation]:
    """Return the annotated attributes of a class, or the keys of a TypedDict, by name; empty if unknown."""
    if issubclass(of, BaseModel):
        return {name: field.annotation for name, field in of.model_fields.items()}
    try:
        hints = get_type_hints(of)
    except Exception:  # evaluating an annotation can raise anything
        written = [vars(one).get("__annotations__", {}) for one in of.__mro__]
        hints = {name: UNKNOWN for names in written for name in names}
    if dataclasses.is_dataclass(of):
        return {one.name: hints.get(one.name, UNKNOWN) for one in dataclasses.fields(of)}
    return hints


def _member(of: Annotation, name: str) -> Annotation | None:
    """Return the type of an attribute; `None` if values of this type have no attribute of that name."""
    kind = outer_class(of)
    if not isinstance(kind, type) or of is Any:
        return UNKNOWN
    if not is_typeddict(kind) and name in (fields := fields_of(kind)):
        return fields[name]
    kind = dict if is_typeddict(kind) else kind
    return UNKNOWN if _has(kind, name) else None


def _has(kind: type, name: str) -> bool:
    """Return whether instances can have an attribute that is not annotated."""
    if issubclass(kind, BaseModel) and (
        kind.model_config.get("extra") == "allow" or name in kind.__private_attributes__
    ):
        return True
    if inspect.isabstract(kind):
        return True  # the value is of a subclass
    for parent in kind.__mro__:
        if name in vars(parent):
            return True
        if parent is BaseModel:
            continue
        if "__get_pydantic_core_schema__" in vars(parent):
            return True  # the value can be of any type: that of EmailStr is a str
        for method, value in vars(parent).items():
            if isinstance(value, types.FunctionType) and (
                method in ("__getattr__", "__getattribute__") or name in value.__code__.co_names
            ):
                return True  # a method that may set it
    return False


def _items(of: Annotation) -> Annotation:
    """Return the type of the items of an iterable."""
    return _joined(
        [_element(one, None) if outer_class(one) in _SEQUENCES else UNKNOWN for one in alternatives(of)]
    )


def _element(of: Annotation, key: object) -> Annotation:
    """Return the type of a subscript; if `key` is not known, the union of all that are possible."""
    origin, arguments = outer_class(of), get_args(of)
    if origin is tuple and arguments:
        if arguments[-1] is Ellipsis:
            return arguments[0]
        if isinstance(key, int) and -len(arguments) <= key < len(arguments):
            return arguments[key]
        return _joined(list(arguments)) if key is None else UNKNOWN
    if origin in (list, set, frozenset) and arguments:
        return arguments[0]
    return arguments[1] if origin is dict and len(arguments) == 2 else UNKNOWN


def _joined(found: list[Annotation]) -> Annotation:
    if not found or any(one is UNKNOWN for one in found):
        return UNKNOWN
    joined: Annotation = Union[tuple(found)]  # noqa: UP007  # the number of types is not known here
    return joined


def _known(lacking: list[Annotation]) -> Iterator[str]:
    for one in lacking:
        kind = outer_class(one)
        if isinstance(kind, type) and not is_typeddict(kind) and kind.__module__ != "builtins":
            yield from fields_of(kind)


def _name(annotation: Annotation) -> str:
    return getattr(annotation, "__name__", None) or repr(annotation)
