"""What tells branches from each other."""

from __future__ import annotations

from fastroai.graphs.machine.branches import Branch, Fork


def forked(branch: Branch, node: str, visit: int, *targets: str) -> list[Branch]:
    fork = Fork(branch, node, visit, join=None)
    return [Branch(target, fork) for target in targets]


def test_a_branch_is_told_by_its_forks_and_the_nodes_that_they_lead_to() -> None:
    first, second = forked(Branch("start"), "split", 2, "b", "c")
    (inner,) = forked(first, "again", 1, "d")
    assert [first.identity, second.identity, inner.identity] == [
        "split#2/b",
        "split#2/c",
        "split#2/b/again#1/d",
    ]


def test_no_id_of_a_node_makes_two_branches_one() -> None:
    outer, other = forked(Branch("start"), "split", 1, "b", "b/again#1/d")
    (inner,) = forked(outer, "again", 1, "d")
    assert len({outer.identity, other.identity, inner.identity}) == 3
