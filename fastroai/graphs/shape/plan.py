"""The shape of a graph, checked and made ready: what the state machine decides on. Pure data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
    fixed_routes: dict[tuple[str, str], Any] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    """Routes after nodes whose output has no say in them, by node and outcome; `routed` keeps them here."""
    _tree: AncestorTree[str | None] = field(init=False, repr=False, compare=False)
    _joins: dict[tuple[str, ...], str | None] = field(
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

    def join_of(self, targets: tuple[str, ...]) -> str | None:
        """Where the branches to these nodes come together: their nearest common post-dominator.

        A node post-dominates itself. `None` where they do not meet before the graph ends.
        """
        if targets not in self._joins:
            self._joins[targets] = self._join(targets)
        return self._joins[targets]

    def _join(self, targets: tuple[str, ...]) -> str | None:
        if not all(target in self._tree for target in targets):
            return None
        join: str | None = targets[0]
        for target in targets[1:]:
            join = self._tree.common_ancestor(join, target)
        return join


def _ways_back(
    edges: Mapping[str, tuple[Edge, ...]], terminals: tuple[str, ...]
) -> dict[str | None, list[str | None]]:
    """What may come right before a node when nothing fails; before `None`, the end, what ends the graph."""
    back: dict[str | None, list[str | None]] = {None: [], **{node: [] for node in edges}}
    for node, outgoing in edges.items():
        onward = [edge.target for edge in outgoing if edge.when != "on_failure"]
        for target in onward:
            back[target].append(node)
        if not onward or node in terminals:
            back[None].append(node)
    return back
