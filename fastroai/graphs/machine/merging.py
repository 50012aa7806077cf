"""Merging the values of the branches of a fork into the branch that forked."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from fastroai.graphs.errors import MemoryConflict
from fastroai.graphs.machine.memory import Memory, Written
from fastroai.steps.copies import own_copy
from fastroai.tracing.attributes import error_summary

if TYPE_CHECKING:
    from fastroai.graphs.machine.branches import Branch
    from fastroai.graphs.shape.plan import GraphPlan, Reducer

Overwritten: TypeAlias = "Mapping[str, tuple[str, ...]]"
"""By key, the nodes that wrote it in branches of one fork, in this order. Only the last value is kept."""


def merge(
    into: Branch, branches: Iterable[Branch], plan: GraphPlan, *, forgiving: bool = False
) -> Overwritten:
    """Take over the memory and the latest outputs of `branches`, which are in declaration order.

    The values of a key that several branches wrote are combined by its reducer, or else by `on_conflict`. A
    value that one branch has cleared is cleared, unless another branch wrote it. Return, by key without a
    reducer, the nodes of which values were overwritten.

    Raises:
        MemoryConflict: two branches wrote one key, with `"error"`, or its reducer failed. If `forgiving`,
            the key gets the value that was written last instead.
    """
    branches = tuple(branches)
    overwritten: dict[str, tuple[str, ...]] = {}

    def choose(key: str, found: Sequence[Written[Any] | None]) -> Written[Any] | None:
        values = [written for written in found if written is not None]
        how = plan.reducers.get(key)
        if not values:
            return None
        if how is None and plan.on_conflict == "last_wins" and len(values) > 1:
            overwritten[key] = tuple(written.node for written in sorted(values, key=when_written))
        before = into.memory.written_here(key)
        base = [] if before is None or len(values) < len(found) else [before]
        try:
            return _brought_together(key, how or plan.on_conflict, base, values)
        except MemoryConflict:
            if not forgiving:
                raise
            return max(values, key=when_written)

    _take_over(into.memory, [branch.memory for branch in branches], choose)
    _take_over(into.outputs, [branch.outputs for branch in branches], _last)
    return overwritten


def merge_failures(into: Branch, branches: Iterable[Branch]) -> None:
    """Take over the latest failure of each node from branches."""
    _take_over(into.failures, [branch.failures for branch in branches], _last)


def salvage(branch: Branch, plan: GraphPlan) -> None:
    """Take over the values from forks that did not come together, so that no work is lost."""
    forks = [one.forked for one in branch.inside() if one.forked is not None]
    for fork in reversed(forks):
        merge(fork.branch, fork.branches, plan, forgiving=True)
        merge_failures(fork.branch, fork.branches)
        fork.branch.forked = None


def _take_over(
    into: Memory[Any],
    others: Sequence[Memory[Any]],
    choose: Callable[[str, Sequence[Written[Any] | None]], Written[Any] | None],
) -> None:
    found: dict[str, list[Written[Any] | None]] = {}
    for other in others:
        for key, written in other.own():
            found.setdefault(key, []).append(written)
    merged = {key: choose(key, each) for key, each in found.items()}
    for key, chosen in merged.items():
        present = into.written(key)
        if chosen is None:
            into.clear(key)
        elif present is None or present.sequence <= chosen.sequence:
            into.take(key, chosen)  # else `present` was written after the fork: a branch was cut short


def when_written(written: Written[Any]) -> int:
    """Return the number of the event by which a value was written."""
    return written.sequence


def _last(key: str, found: Sequence[Written[Any] | None]) -> Written[Any] | None:
    values = [written for written in found if written is not None]
    return max(values, key=when_written, default=None)


def _brought_together(
    key: str, how: Reducer, base: Sequence[Written[Any]], values: Sequence[Written[Any]]
) -> Written[Any]:
    """Combine the values of branches. `base` has the value from before the fork, if that counts."""
    match how:
        case "last_wins":
            return max(values, key=when_written)
        case "first_wins":
            return min(values, key=when_written)
        case "error":
            if len(values) > 1:
                raise MemoryConflict(key, values[0].node, values[1].node)
            return values[0]
    written = [*base, *values]
    operands = [one.value for one in written]
    try:
        # A function of the user may change its arguments in place.
        value = _REDUCED[how](operands) if isinstance(how, str) else reduce(how, map(own_copy, operands))
    except Exception as error:
        raise MemoryConflict(key, values[0].node, values[-1].node, error_summary(error)) from error
    # No single node has written it, as the next visit to that node would clear it.
    return Written(value, "", max(map(when_written, written)))


def _appended(values: Sequence[Any]) -> list[object]:
    return [item for value in values for item in (value if isinstance(value, list) else (value,))]


def _merged(values: Sequence[Any]) -> dict[object, object]:
    merged: dict[object, object] = {}
    for value in values:
        if not isinstance(value, Mapping):
            raise TypeError(f"'merge' takes mappings, and this is of type {type(value).__name__}")
        merged.update(value)
    return merged


_REDUCED: Final[Mapping[str, Callable[[Sequence[Any]], object]]] = {
    "append": _appended,
    "merge": _merged,
    "add": lambda values: reduce(operator.add, values),
}
