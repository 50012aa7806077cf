"""The shape of a graph, checked and made ready: what the state machine decides on. Pure data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from fastroai.graphs.shape.dominators import AncestorTree, immediate_dominators
from fastroai.graphs.shape.edge import Edge

if TYPE_CHECKING:
    from fastroai.expressions import Expression

OnBranchFailure: TypeAlias = Literal["fail_all", "continue_others", "wait_all"]
"""What a failed branch does to the others of its fork."""
OnConflict: TypeAlias = Literal["last_wins", "first_wins", "error"]
"""What holds where two branches of a fork have written the same key."""
Reducer: TypeAlias = Literal["append", "merge", "add"] | OnConflict | Callable[[Any, Any], Any]
"""How the values of one key are brought together that branches of a fork have written.

`"append"`: a list of all; the items of what is a list already are in it. `"merge"`: one dict; of two values
of one name, that of the branch which is declared later. `"add"`: their sum, as `+` makes it. A function of
two values: what it gives for the first and the second, then for that and the third, and so on; it must not be
async, and give the same for the same values, as it is called again when a run is resumed. A word of
`on_conflict`: that, for this key.

The value of before the fork comes first, then those of the branches in declaration order.
"""

ON_BRANCH_FAILURE: Final[tuple[OnBranchFailure, ...]] = get_args(OnBranchFailure)
ON_CONFLICT: Final[tuple[OnConflict, ...]] = get_args(OnConflict)
REDUCERS: Final = ("append", "merge", "add", *ON_CONFLICT)
DEFAULT_MAX_STEPS: Final = 100
"""Few, since a loop that does not end is paid for."""
DEFAULT_STEPS_PER_NODE: Final = 3
"""So many at least for each node, however many nodes there are."""


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """Nodes, edges and policies of a graph that can run."""

    nodes: tuple[str, ...]
    """In declaration order."""
    edges: Mapping[str, tuple[Edge, ...]]
    """Outgoing, in declaration order, by source; every node is a key."""
    conditions: Mapping[Edge, Expression] = field(compare=False)
    """Of the conditional edges, whose texts say the same."""
    entry: str
    terminals: tuple[str, ...]
    """In the order in which they were declared."""
    pauses: frozenset[str] = frozenset()
    """The nodes that ask a person."""
    reads: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The keys of memory that a node sees, for those that say so."""
    writes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The keys of memory that a node writes, for those that say so."""
    max_visits: Mapping[str, int] = field(default_factory=dict)
    """How often a node is executed at most, for those that say so."""
    max_steps: int = DEFAULT_MAX_STEPS
    """How many visits are executed at most, of all nodes together."""
    on_branch_failure: OnBranchFailure = "fail_all"
    on_conflict: OnConflict = "last_wins"
    reducers: Mapping[str, Reducer] = field(default_factory=dict)
    """How values are brought together that branches wrote, for the keys that have something of their own."""
    max_concurrency: int | None = None
    post_dominators: Mapping[str, str | None] = field(init=False, repr=False, compare=False)
    """The next node that every way from a node to an end of the graph comes by, over all edges but
    `on_failure`; `None` where there is none before the end."""
    asking: frozenset[str] = field(init=False, repr=False, compare=False)
    """The nodes after whose success a model has a say: those with `llm_decide` edges."""
    sending: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    """The targets of the `send` edges of the nodes that have any."""
    fixed_routes: dict[tuple[str, str], Any] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    """Routes after nodes whose output has no say in them, by node and outcome; `routed` keeps them here."""
    _tree: AncestorTree[str | None] = field(init=False, repr=False, compare=False)
    _joins: dict[tuple[tuple[str, ...], tuple[str, ...]], str | None] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        dominators = immediate_dominators(_ways_back(self.edges, self.terminals), None)
        found = {node: dominators.get(node) for node in self.nodes}
        object.__setattr__(self, "post_dominators", MappingProxyType(found))
        object.__setattr__(self, "_tree", AncestorTree(dominators, None))
        asking = (
            node for node, edges in self.edges.items() if any(one.when == "llm_decide" for one in edges)
        )
        object.__setattr__(self, "asking", frozenset(asking))
        sending = {node: _sent_to(edges) for node, edges in self.edges.items() if _sent_to(edges)}
        object.__setattr__(self, "sending", MappingProxyType(sending))

    def join_of(self, targets: tuple[str, ...], sent_to: tuple[str, ...] = ()) -> str | None:
        """Where the branches to these nodes come together: their nearest common post-dominator.

        A node post-dominates itself, unless it is one of `sent_to`: each `Send` visits its target for itself.
        `None` where they do not meet before the graph ends.
        """
        key = targets, sent_to
        if key not in self._joins:
            self._joins[key] = self._join(targets, sent_to)
        return self._joins[key]

    def _join(self, targets: tuple[str, ...], sent_to: tuple[str, ...]) -> str | None:
        if not all(target in self._tree for target in (*targets, *sent_to)):
            return None
        ends = [*targets, *(self.post_dominators[target] for target in sent_to)]
        return reduce(self._tree.common_ancestor, ends)


def _ways_back(
    edges: Mapping[str, tuple[Edge, ...]], terminals: tuple[str, ...]
) -> dict[str | None, list[str | None]]:
    """What may come right before a node when nothing fails; before `None`, the end, what ends the graph.

    After a node that sends, its targets may come, and what comes after these: it may send nothing, and the
    targets are visited in other branches.
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
