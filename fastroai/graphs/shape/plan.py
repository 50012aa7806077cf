"""The shape of a graph, checked and prepared for the state machine. Pure data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from fastroai.graphs.shape.dominators import DominatorTree
from fastroai.graphs.shape.edge import Edge

if TYPE_CHECKING:
    from fastroai.expressions import Expression

OnBranchFailure: TypeAlias = Literal["fail_all", "continue_others", "wait_all"]
"""What the failure of a branch does to the other branches of its fork."""
OnConflict: TypeAlias = Literal["last_wins", "first_wins", "error"]
"""Which value is kept if two branches of a fork have written the same key."""
Reducer: TypeAlias = Literal["append", "merge", "add"] | OnConflict | Callable[[Any, Any], Any]
"""How values that branches of a fork have written to the same key are combined.

- `"append"`: one list of all values; a value that is a list adds its items.
- `"merge"`: one dict; of two values under one name, that of the branch which is declared later.
- `"add"`: the sum of the values by `+`.
- A function of two values: it is called with the first and the second, then with its result and the third,
  and so on. It must not be async. It must give the same result for the same values, as it is called again
  when a run is resumed.
- A word of `on_conflict`: that policy for this key.

The value from before the fork comes first, then those of the branches in declaration order.
"""

ON_BRANCH_FAILURE: Final[tuple[OnBranchFailure, ...]] = get_args(OnBranchFailure)
ON_CONFLICT: Final[tuple[OnConflict, ...]] = get_args(OnConflict)
REDUCERS: Final = ("append", "merge", "add", *ON_CONFLICT)
DEFAULT_MAX_STEPS: Final = 100
"""Default maximum of visits in a run. It is low, since an endless loop costs money."""
DEFAULT_STEPS_PER_NODE: Final = 3
"""Visits for each node that the default maximum allows at least."""


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """Nodes, edges and policies of a graph that can run."""

    edges: Mapping[str, tuple[Edge, ...]]
    """Outgoing edges by source. The keys are the ids of all nodes. Both are in the order of declaration."""
    conditions: Mapping[Edge, Expression] = field(compare=False)
    """Parsed conditions of the `conditional` edges; not compared, as the edges have the same texts."""
    entry: str
    terminals: tuple[str, ...]
    """Ids of the last nodes, in the order in which they were declared."""
    pauses: frozenset[str] = frozenset()
    """Ids of the nodes that ask a person."""
    reads: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Keys of memory that a node sees; only for nodes that declare `reads`."""
    writes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Keys of memory that a node writes; only for nodes that declare `writes`."""
    max_visits: Mapping[str, int] = field(default_factory=dict)
    """Maximum number of executions of a node; only for nodes that declare one."""
    max_steps: int = DEFAULT_MAX_STEPS
    """Maximum number of visits that a run executes, of all nodes together."""
    on_branch_failure: OnBranchFailure = "fail_all"
    on_conflict: OnConflict = "last_wins"
    reducers: Mapping[str, Reducer] = field(default_factory=dict)
    """Reducers by key; `on_conflict` applies to all other keys."""
    max_concurrency: int | None = None
    post_dominators: Mapping[str, str | None] = field(init=False, repr=False, compare=False)
    """For each node, the next node on every path from it to an end of the graph, without `on_failure` edges;
    `None` if there is none before the end."""
    asking: frozenset[str] = field(init=False, repr=False, compare=False)
    """Ids of the nodes with `llm_decide` edges. The decider chooses one after such a node succeeds."""
    sending: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    """Targets of `send` edges by source; only for nodes that have any."""
    fixed_routes: dict[tuple[str, str], Any] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    """Cache of `routed`: routes that do not depend on the node's output, by node and outcome."""
    _tree: DominatorTree[str | None] = field(init=False, repr=False, compare=False)
    _joins: dict[tuple[tuple[str, ...], tuple[str, ...]], str | None] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        tree: DominatorTree[str | None] = DominatorTree(_ways_back(self.edges, self.terminals), None)
        found = {node: tree.above(node) if node in tree else None for node in self.edges}
        object.__setattr__(self, "post_dominators", MappingProxyType(found))
        object.__setattr__(self, "_tree", tree)
        asking = (
            node for node, edges in self.edges.items() if any(one.when == "llm_decide" for one in edges)
        )
        object.__setattr__(self, "asking", frozenset(asking))
        sending = {node: _sent_to(edges) for node, edges in self.edges.items() if _sent_to(edges)}
        object.__setattr__(self, "sending", MappingProxyType(sending))

    def join_of(self, targets: tuple[str, ...], sent_to: tuple[str, ...] = ()) -> str | None:
        """Return the node where branches to these nodes come together: their nearest common post-dominator.

        A node post-dominates itself, unless it is in `sent_to`: each `Send` visits its target on its own.
        Return `None` if the branches do not meet before the graph ends.
        """
        key = targets, sent_to
        if key not in self._joins:
            ends = [*targets, *(self.post_dominators[target] for target in sent_to)]
            leads_out = all(target in self._tree for target in (*targets, *sent_to))
            self._joins[key] = self._tree.common_ancestor(ends) if leads_out else None
        return self._joins[key]


def _ways_back(
    edges: Mapping[str, tuple[Edge, ...]], terminals: tuple[str, ...]
) -> dict[str | None, list[str | None]]:
    """Return which nodes may come right before each node if nothing fails; `None` stands for the end.

    After a node with `send` edges, its targets may come, and also the nodes after these: it may send nothing,
    and the targets are visited in other branches.
    """
    back: dict[str | None, list[str | None]] = {None: [], **{node: [] for node in edges}}
    after: dict[str, list[str | None]] = {}
    for node, outgoing in edges.items():
        after[node] = [edge.target for edge in outgoing if edge.when != "on_failure"]
        if not after[node] or node in terminals:
            after[node].append(None)
    for node, outgoing in edges.items():
        beyond = [one for target in _sent_to(outgoing) for one in after[target]]
        for following in (*after[node], *beyond):
            back[following].append(node)
    return back


def _sent_to(outgoing: tuple[Edge, ...]) -> tuple[str, ...]:
    return tuple(edge.target for edge in outgoing if edge.when == "send")
