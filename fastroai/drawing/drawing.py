"""What a drawing shows: nodes, edges, and what a run made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fastroai.errors import ConfigurationError

NodeState: TypeAlias = Literal["plain", "succeeded", "failed", "skipped", "cancelled", "running", "waiting"]
NodeKind: TypeAlias = Literal["step", "pause", "graph"]
EdgeStyle: TypeAlias = Literal["solid", "dashed"]


@dataclass(frozen=True)
class DrawnNode:
    """A box."""

    id: str
    label: str | None = None
    """What is written in it; its id if not given."""
    note: str | None = None
    """A smaller line below, such as `3 visits · $0.012`."""
    state: NodeState = "plain"
    """How it stands in a run; `plain` where there is no run, or the run has not come by."""
    kind: NodeKind = "step"
    """`pause` waits for people; `graph` has nodes of its own inside."""

    @property
    def text(self) -> str:
        """What is written in the box."""
        return self.id if self.label is None else self.label


@dataclass(frozen=True)
class DrawnEdge:
    """An arrow; several between the same two nodes are drawn beside each other."""

    source: str
    target: str
    label: str | None = None
    style: EdgeStyle = "solid"
    """`dashed` for a way that is not the usual one, such as after a failure."""
    taken: int = 0
    """How many times a run went this way."""

    @property
    def text(self) -> str:
        """What is written at the arrow: its label, after how often it was taken if that is more than once."""
        times = f"{self.taken}\N{MULTIPLICATION SIGN}" if self.taken > 1 else ""
        return " ".join(part for part in (times, self.label) if part)


@dataclass(frozen=True)
class Drawing:
    """A directed graph to be drawn by `mermaid` or `svg`. It may have cycles, and parts that do not touch.

        drawing = Drawing(
            [DrawnNode("write", state="succeeded", note="2 visits"), DrawnNode("judge", state="succeeded")],
            [DrawnEdge("write", "judge", taken=2), DrawnEdge("judge", "write", "retry", taken=1)],
            starts=["write"],
            ends=["judge"],
        )
        Path("graph.svg").write_text(svg(drawing), encoding="utf-8")

    Here a run wrote, was sent back by the judge, and wrote again.

    Raises:
        ConfigurationError: Two nodes have the same id, or an edge, `starts` or `ends` name a node that is not
            there.
    """

    nodes: Sequence[DrawnNode]
    edges: Sequence[DrawnEdge] = ()
    starts: Collection[str] = ()
    """Where a run begins."""
    ends: Collection[str] = ()
    """Where it may end."""
    title: str = "graph"
    """What the drawing is of, for those who do not see it."""

    def __post_init__(self) -> None:
        ids = Counter(node.id for node in self.nodes)
        twice = [node_id for node_id, times in ids.items() if times > 1]
        if twice:
            raise ConfigurationError("Drawing.nodes", twice, "an id of its own for each node")
        named = {
            "edges": dict.fromkeys(end for edge in self.edges for end in (edge.source, edge.target)),
            "starts": self.starts,
            "ends": self.ends,
        }
        for option, node_ids in named.items():
            unknown = [node_id for node_id in node_ids if node_id not in ids]
            if unknown:
                raise ConfigurationError(f"Drawing.{option}", unknown, f"ids of its nodes, {list(ids)!r}")
