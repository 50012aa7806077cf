"""What the branches of a fork know, brought together in the branch that forked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fastroai.errors import MemoryConflict
from fastroai.graphs.machine.memory import Memory, Written

if TYPE_CHECKING:
    from fastroai.graphs.machine.branches import Branch
    from fastroai.graphs.shape.plan import OnConflict


def merge(into: Branch, branches: Iterable[Branch], on_conflict: OnConflict) -> None:
    """Take over memory and latest outputs of `branches`, in declaration order.

    Of two values of one key, that which was written last is taken, or first. What a branch has cleared is
    cleared, unless another one wrote it.

    Raises:
        MemoryConflict: two branches wrote one key, with `"error"`.
    """
    branches = tuple(branches)
    _take_over(into.memory, [branch.memory for branch in branches], on_conflict)
    _take_over(into.outputs, [branch.outputs for branch in branches], "last_wins")


def merge_errors(into: Branch, branches: Iterable[Branch]) -> None:
    """Take over the latest failure of each node."""
    _take_over(into.errors, [branch.errors for branch in branches], "last_wins")


def _take_over(into: Memory[Any], others: Sequence[Memory[Any]], on_conflict: OnConflict) -> None:
    merged: dict[str, Written[Any] | None] = {}
    for other in others:
        for key, written in other.own():
            merged[key] = _chosen(key, merged.get(key), written, on_conflict)
    for key, written in merged.items():
        present = into.written(key)
        if written is None:
            into.clear(key)
        elif present is None or present.sequence <= written.sequence:
            into.take(key, written)  # else it was written after the fork: a branch was cut short


def salvage(branch: Branch, on_conflict: OnConflict) -> None:
    """Take over what was written in forks that come to nothing, so that no work is lost."""
    waiting, forks = [branch], []
    while waiting:
        fork = waiting.pop().forked
        if fork is not None:
            forks.append(fork)
            waiting.extend(fork.branches)
    for fork in reversed(forks):
        merge(fork.branch, fork.branches, "last_wins" if on_conflict == "error" else on_conflict)
        merge_errors(fork.branch, fork.branches)
        fork.branch.forked = None


def _chosen(
    key: str, known: Written[Any] | None, other: Written[Any] | None, on_conflict: OnConflict
) -> Written[Any] | None:
    if known is None or other is None:
        return known or other
    if on_conflict == "error":
        raise MemoryConflict(key, known.node, other.node)
    later = known.sequence < other.sequence
    return other if later == (on_conflict == "last_wins") else known
