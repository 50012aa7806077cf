"""The outputs that steps can read: those of their ancestors, and none that would be a race."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping, MutableMapping
from typing import Any, Final, NewType, get_origin

from pydantic import ValidationError
from typing_extensions import TypeAliasType

from fastroai.contracts.annotations import checker_of
from fastroai.errors import DependencyTypeError, MissingDependencyError, nearest_hint
from fastroai.steps.ancestry import Ancestry

_FEW: Final = 8
"""Dependencies that are looked through one by one faster than a set is made of them."""


class Outputs:
    """The outputs of one run so far, and which steps may read them."""

    __slots__ = ("_ancestry", "_wide", "dependencies", "values")

    def __init__(self, dependencies: Mapping[str, tuple[str, ...]], ancestry: Ancestry | None = None) -> None:
        """`ancestry` is that of the dependencies, if it is known already."""
        self.dependencies = dependencies
        """Direct dependencies of every step, by step id."""
        self._ancestry = ancestry
        self.values: MutableMapping[str, object] = {}
        self._wide: dict[str, frozenset[str]] = {}
        """The direct dependencies of steps that have many, and have read one."""

    def needs_of(self, reader: str) -> tuple[str, ...]:
        """Return the direct dependencies of a step."""
        return self.dependencies[reader]

    def is_read_by(self, reader: str, step_id: str) -> bool:
        """Whether `step_id` is a step whose output `reader` may read."""
        return step_id in self.dependencies and self.is_ancestor(step_id, reader)

    def showing(self, values: Mapping[str, object]) -> Outputs:
        """Return the same outputs, some of them with other values."""
        view = Outputs(self.dependencies, self._ancestry)
        view.values = ChainMap(dict(values), self.values)
        return view

    def get(self, reader: str, step_id: str) -> object:
        """Return the output of an ancestor of `reader`. Raises `MissingDependencyError`."""
        if step_id not in self._direct(reader):
            self._check_before(reader, step_id)
        if step_id not in self.values:
            raise MissingDependencyError(
                reader,
                step_id,
                "it failed or was skipped; use ctx.get_dependency_or_none where that can happen",
            )
        return self.values[step_id]

    def _check_before(self, reader: str, step_id: str) -> None:
        if step_id not in self.dependencies:
            known = ", ".join(map(repr, self.dependencies)) or "none"
            raise MissingDependencyError(
                reader,
                step_id,
                f"the pipeline has no such step; it has {known}.{nearest_hint(step_id, self.dependencies)}",
            )
        if not self.is_ancestor(step_id, reader):
            raise MissingDependencyError(reader, step_id, self._race(reader, step_id))

    def may_have(self, reader: str, step_id: str) -> bool:
        """Return whether there is an output to get. Also true if `get` would refuse it as a race."""
        if step_id not in self.dependencies:
            return False
        return step_id in self.values or not self.is_ancestor(step_id, reader)

    def is_ancestor(self, step_id: str, of: str) -> bool:
        """Return whether `step_id` always finishes before `of` starts."""
        direct = self._direct(of)
        if step_id in direct:
            return True
        if not direct or step_id not in self.dependencies:
            return False
        if self._ancestry is None:
            self._ancestry = Ancestry(self.dependencies)
        return self._ancestry.is_before(step_id, of)

    def _direct(self, reader: str) -> Collection[str]:
        direct: Collection[str] | None = self._wide.get(reader)
        if direct is None:
            direct = self.dependencies.get(reader, ())
            if len(direct) > _FEW:
                direct = self._wide[reader] = frozenset(direct)
        return direct

    def _race(self, reader: str, step_id: str) -> str:
        if step_id == reader or self.is_ancestor(reader, step_id):
            return f"it has none before {reader!r} has finished"
        needs = [*self.dependencies.get(reader, ()), step_id]
        return (
            f"nothing makes {step_id!r} finish before {reader!r}, so reading it is a race; "
            f"add to dependencies: {reader!r}: {needs!r}"
        )


def check_type(reader: str, step_id: str, value: object, output_type: Any) -> None:
    """Make sure that an output is of a type: a class, or anything that pydantic can check strictly.

    Raises:
        DependencyTypeError: the output is not of that type.
    """
    if not is_instance(value, output_type):
        raise DependencyTypeError(reader, step_id, type_name(output_type), type_name(type(value)))


def is_type(value: object) -> bool:
    """Return whether a value is a type: a class, or another form such as `list[int]` or `Optional[A]`."""
    return isinstance(value, type | NewType | TypeAliasType) or get_origin(value) is not None


def is_instance(value: object, output_type: Any) -> bool:
    """Return whether a value is of a type: a class, or anything that pydantic can check strictly."""
    if output_type is float:
        return isinstance(value, float | int)  # as type checkers have it (PEP 484)
    if isinstance(output_type, type):
        try:
            return isinstance(value, output_type)
        except TypeError:
            pass  # a TypedDict, or a Protocol without checks at run time
    checker = checker_of(output_type)
    try:
        if checker is not None:
            checker.validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


def type_name(of: Any) -> str:
    """Return the name of a type, for errors."""
    return of.__name__ if isinstance(of, type) and not hasattr(of, "__origin__") else str(of)
