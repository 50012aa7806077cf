from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastroai.graphs.errors import MemoryConflict
from fastroai.graphs.machine.branches import Branch, Fork
from fastroai.graphs.machine.merging import merge, merge_failures
from fastroai.graphs.shape.plan import GraphPlan
from fastroai.runtime import FailureClass
from fastroai.steps.visits import NodeFailure

PLAN = GraphPlan(edges={"a": ()}, conditions={}, entry="a", terminals=("a",))


def test_a_failure_after_the_fork_stays_the_latest_one() -> None:
    around = Branch("a")
    fork = Fork(around, "a", 1, None)
    inside = Branch("b", fork)
    fork.branches = (inside,)
    before, later, other, last = (NodeFailure(ValueError(), FailureClass.TERMINAL, n) for n in range(4))
    around.failures.write("n", before, "n", 1)
    inside.failures.write("n", later, "n", 2)
    inside.failures.write("m", other, "m", 3)
    merge_failures(around, [inside])
    assert dict(around.failures) == {"n": later, "m": other}
    around.failures.write("n", last, "n", 4)
    merge_failures(around, [inside])
    assert dict(around.failures) == {"n": last, "m": other}


# --- reducers ---


def plan_with(reducers: Mapping[str, Any], on_conflict: Any = "last_wins") -> GraphPlan:
    return replace(PLAN, reducers=reducers, on_conflict=on_conflict)


def forked(*written: tuple[int, object], before: tuple[int, object] | None = None) -> Branch:
    """A branch whose fork has a branch for each value of `k`, written when it says."""
    around = Branch("a")
    if before is not None:
        around.memory.write("k", before[1], "before", before[0])
    fork = around.forked = Fork(around, "a", 1, None)
    fork.branches = tuple(Branch(f"b{number}", fork) for number in range(len(written)))
    for branch, (sequence, value) in zip(fork.branches, written, strict=True):
        branch.memory.write("k", value, branch.target, sequence)
    return around


def merged(how: Any, *written: tuple[int, object], before: tuple[int, object] | None = None) -> object:
    around = forked(*written, before=before)
    assert around.forked is not None
    merge(around, around.forked.branches, plan_with({"k": how}))
    return around.memory["k"]


@pytest.mark.parametrize(
    ("how", "values", "before", "result"),
    [
        ("append", ["x", "y"], None, ["x", "y"]),
        ("append", ["x", "y"], ["w"], ["w", "x", "y"]),
        ("append", [["x", "y"], "z"], "w", ["w", "x", "y", "z"]),
        ("append", ["x"], None, ["x"]),
        ("merge", [{"a": 1, "b": 1}, {"b": 2}], {"a": 0, "c": 0}, {"a": 1, "b": 2, "c": 0}),
        ("add", [1, 2], None, 3),
        ("add", [1, 2], 10, 13),
        ("add", [["x"], ["y"]], None, ["x", "y"]),
        (max, [3, 9, 4], 7, 9),
        (lambda first, second: f"({first}{second})", ["x", "y"], "w", "((wx)y)"),
        ("last_wins", ["x", "y"], "w", "x"),
        ("first_wins", ["x", "y"], "w", "y"),
    ],
)
def test_values_are_brought_together_as_their_reducer_says(
    how: Any, values: list[object], before: object, result: object
) -> None:
    written = [(9 - number, value) for number, value in enumerate(values)]  # the last declared ends first
    assert merged(how, *written, before=None if before is None else (1, before)) == result


@given(st.lists(st.lists(st.integers(), max_size=3), min_size=1, max_size=5), st.data())
def test_a_reduced_value_does_not_depend_on_which_branch_ends_first(
    values: list[list[int]], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(2, len(values) + 2)))
    assert merged("append", *zip(order, values, strict=True)) == [item for one in values for item in one]


@given(st.lists(st.integers(), min_size=2, max_size=6), st.data())
def test_a_fork_inside_of_a_fork_adds_its_values_once(values: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(values) - 1))
    around = forked((2, [values[0]]), before=(1, [-1]))
    assert around.forked is not None
    outer, (branch,) = around.forked, around.forked.branches
    inner = Fork(branch, "b0", 1, None)
    inner.branches = tuple(Branch(f"c{number}", inner) for number in range(len(values) - 1))
    for number, one in enumerate(inner.branches):
        one.memory.write("k", values[number + 1], one.target, 20 - number if number < cut else 20 + number)
    plan = plan_with({"k": "append"})
    merge(branch, inner.branches, plan)
    merge(around, outer.branches, plan)
    assert around.memory["k"] == [-1, *values]


def test_a_function_cannot_change_what_the_branches_have() -> None:
    def extend(first: list[int], second: list[int]) -> list[int]:
        first.extend(second)
        return first

    around = forked((2, [1]), (3, [2]), before=(1, [0]))
    fork = around.forked
    assert fork is not None
    before = around.memory["k"]
    merge(around, fork.branches, plan_with({"k": extend}))
    assert around.memory["k"] == [0, 1, 2]
    assert (before, [branch.memory["k"] for branch in fork.branches]) == ([0], [[1], [2]])


def test_what_was_there_before_does_not_count_if_a_branch_has_cleared_it() -> None:
    around = forked((5, "new"), (6, "gone"), before=(1, "stale"))
    assert around.forked is not None
    around.forked.branches[1].memory.clear("k")
    merge(around, around.forked.branches, plan_with({"k": "append"}))
    assert around.memory["k"] == ["new"]


def test_values_that_a_reducer_cannot_bring_together_are_a_conflict_unless_the_run_is_over() -> None:
    around = forked((2, 1), (3, "x"))
    assert around.forked is not None
    plan = plan_with({"k": "add"})
    with pytest.raises(MemoryConflict, match=r"the reducer of 'k' failed .* TypeError"):
        merge(around, around.forked.branches, plan)
    assert "k" not in around.memory
    merge(around, around.forked.branches, plan, forgiving=True)
    assert around.memory["k"] == "x"


def test_what_the_last_one_overwrote_is_told_unless_somebody_said_that_it_may() -> None:
    around = forked((3, 1), (2, 2))
    assert around.forked is not None
    assert merge(around, around.forked.branches, plan_with({})) == {"k": ("b1", "b0")}
    assert merge(around, around.forked.branches, plan_with({"k": "last_wins"})) == {}
    assert merge(around, around.forked.branches, plan_with({}, "first_wins")) == {}
