"""Branches of a run of a graph: the position and the memory of each, and the forks between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Any, Literal, TypeAlias

from fastroai.graphs.machine.events import Visit
from fastroai.graphs.machine.memory import Memory, Written
from fastroai.places import quoted
from fastroai.steps.visits import NodeFailure

GraphPath: TypeAlias = "list[str | dict[str, GraphPath]]"
"""Nodes in the order in which they were visited; a fork is a mapping of its branches, by name."""

Inputs: TypeAlias = Mapping[str, Any]
"""The inputs of a `Send` that began a branch."""

BranchState: TypeAlias = Literal["open", "arrived", "ended", "failed", "cancelled"]
"""State of a branch. `arrived`: at the join of its fork. `ended`: in a terminal or a dead end."""


@dataclass(slots=True, eq=False, repr=False)
class Branch:
    """A line of nodes that run one after the other; the root branch is the run."""

    target: str
    """The node at which the branch begins."""
    fork: Fork | None = None
    """The fork to which it belongs; `None` for the root."""
    name: str = ""
    """Name, unique in the fork: the target, or `target[1]` for the second `Send` to that target."""
    inputs: InitVar[Inputs | None] = None
    """The inputs of the `Send` that begins the branch."""
    identity: str = ""
    """Name, unique in the run and the same in every process."""
    node: str = ""
    """Node of the last visit of the branch."""
    number: int = 0
    """Number of that visit; 0 before the first visit."""
    cause: str = ""
    """Why the branch went to that node."""
    started: int = 0
    """Number of the start of that visit among all of the run; 0 if it waits in line."""
    memory: Memory[object] = field(init=False)
    outputs: Memory[object] = field(init=False)
    """Latest output of each node."""
    failures: Memory[NodeFailure] = field(init=False)
    """Latest failure of each node in the past of this branch that has not succeeded since."""
    unhandled: dict[str, Written[NodeFailure]] = field(default_factory=dict)
    """Failures by node, until edges handle them or the branch has come together with others."""
    state: BranchState = "open"
    failure: tuple[str, BaseException] | None = None
    """The node that failed and why, if the branch failed."""
    unwinding: int = 0
    """Number of cancelled visits that the fork of a failed branch waits for."""
    skipped: set[str] = field(default_factory=set)
    """Nodes that were skipped since the last one that ran."""
    forked: Fork | None = None
    """The fork of this branch whose branches it waits for."""
    sources: tuple[str, ...] = ()
    """The nodes from which the branch came to its last visit: several after a join."""
    path: GraphPath = field(default_factory=list)

    def __post_init__(self, inputs: Inputs | None) -> None:
        self.node, self.name = self.target, self.name or self.target
        around = None
        if self.fork is not None:
            self.identity, around = f"{self.fork.identity}/{quoted(self.name)}", self.fork.branch
            self.skipped = set(around.skipped)
        self.memory = Memory(None if around is None else around.memory)
        if inputs:  # over the memory of the fork, as the branch has not written them
            self.memory.write_all(inputs, "", 0)
            self.memory = Memory(self.memory)
        self.outputs = Memory(None if around is None else around.outputs)
        self.failures = Memory(None if around is None else around.failures)

    def __repr__(self) -> str:
        return f"<branch {self.identity or 'root'!r}: {self.state}>"

    @property
    def visit(self) -> Visit:
        """The last visit of the branch."""
        return Visit(self.node, self.number)

    def lineage(self) -> Iterator[Branch]:
        """Yield this branch and the branches around it, innermost first."""
        branch: Branch | None = self
        while branch is not None:
            yield branch
            branch = None if branch.fork is None else branch.fork.branch

    def inside(self) -> Iterator[Branch]:
        """Yield this branch, and every branch of the forks inside it that have not come together."""
        waiting: list[Branch] = [self]
        while waiting:
            branch = waiting.pop()
            yield branch
            if branch.forked is not None:
                waiting.extend(branch.forked.branches)


@dataclass(slots=True, eq=False)
class Fork:
    """The place where a branch splits into several, until they are over."""

    branch: Branch
    """The branch that forks."""
    node: str
    visit: int
    join: str | None
    """The node where the branches come together; `None` if each ends on its own."""
    branches: tuple[Branch, ...] = ()
    """The new branches, in declaration order of the edges; then those of `Send`s, in their order."""
    open: int = 0
    """Number of branches that are not over."""
    has_run_nodes: bool = False
    """Whether a node has run, and was not skipped, in any of the branches."""

    @property
    def identity(self) -> str:
        """Name, unique in the run and the same in every process."""
        around, own = self.branch.identity, f"{quoted(self.node)}#{self.visit}"
        return f"{around}/{own}" if around else own


@dataclass(slots=True)
class Joined:
    """All branches of a fork are over, and their values were merged into the branch that forked."""

    fork: Fork
    overwritten: Mapping[str, tuple[str, ...]]
    """By key, the nodes that wrote it in several branches. By default, only the last one's value is left."""
