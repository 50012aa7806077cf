"""Edges: which node may come after which, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from fastroai.other_names import other_names

When: TypeAlias = Literal["always", "on_success", "on_failure", "conditional", "llm_decide", "send"]
"""When an edge is traversed."""

WHEN: Final[tuple[When, ...]] = get_args(When)


@other_names(
    arguments={
        "condition_expr": 'when="conditional", condition="…"',
        "priority": "the order of the edges: the first condition that holds is taken",
        "input_mapping": "Node(reads=…, writes=…)",
        "description": "the description of the agent in the target",
        "id": "left out: an edge is named by its source and target",
    }
)
@dataclass(frozen=True, slots=True)
class Edge:
    """A connection from one node to another. A graph checks its edges when it is built.

        Edge("classify", "reply", when="conditional", condition="confidence >= 0.8")

    After a node that succeeded, the graph takes:

    - all `on_success` edges, the default;
    - the first `conditional` edge whose condition holds;
    - the `llm_decide` edge to the target that the graph's decider, an agent, names; or the one with
      `fallback=True` if it gives no usable answer;
    - the `send` edges to the targets of its output, a list of `Send`: one branch for each `Send`;
    - all `always` edges, if no condition held and nothing was sent.

    After a node that failed and has no retries left, it takes all `on_failure` and all `always` edges.
    Several edges at once are a fork. Several edges to one target count as one. A branch fails if no edge is
    taken after a node that failed. A run that ends without reaching a terminal node fails, too.
    """

    source: str
    target: str
    when: When = "on_success"
    condition: str | None = None
    """Expression (`fastroai.expressions`) of an edge with `when="conditional"`. It finds names in the fields
    of the output first, then in memory."""
    fallback: bool = False
    """True if this `llm_decide` edge is taken when the decider gives no usable answer. Exactly one
    `llm_decide` edge of a node is the fallback."""

    def __str__(self) -> str:
        return f"{self.source!r} -> {self.target!r}"
