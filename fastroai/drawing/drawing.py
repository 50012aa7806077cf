"""The contents of a drawing: nodes, edges, and their states in a run."""

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
    """A node of a drawing, shown as a box."""

    id: str
    label: str | None = None
    """The text in the box; by default the id."""
    note: str | None = None
    """A smaller line of text below the label, such as `3 visits · $0.012`."""
    state: NodeState = "plain"
    """The state of the node in a run; `plain` without a run, or if the run has not come to the node."""
    kind: NodeKind = "step"
    """The kind of node: `pause` waits for people; `graph` has nodes of its own inside."""
    inside: Drawing | None = None
    """The nodes inside of it, if the node is shown open. `svg` draws them in its box; `mermaid` does not."""

    @property
    def text(self) -> str:
        """The text in the box."""
        return self.id if self.label is None else self.label


@dataclass(frozen=True)
class DrawnEdge:
    """An edge of a drawing, shown as an arrow. Several edges between two nodes are drawn side by side."""

    source: str
    target: str
    label: str | None = None
    style: EdgeStyle = "solid"
    """`dashed` for unusual ways, such as after a failure."""
    taken: int = 0
    """Number of times that a run went this way."""

    @property
    def text(self) -> str:
        """The text at the arrow: the label, after the number of times taken if that is more than one."""
        times = f"{self.taken}\N{MULTIPLICATION SIGN}" if self.taken > 1 else ""
        return " ".join(part for part in (times, self.label) if part)


@dataclass(frozen=True)
class Drawing:
    """A directed graph, which `mermaid` or `svg` turn into text. It may have cycles and unconnected parts.

        drawing = Drawing(
            [DrawnNode("write", state="succeeded", note="2 visits"), DrawnNode("judge", state="succeeded")],
            [DrawnEdge("write", "judge", taken=2), DrawnEdge("judge", "write", "retry", taken=1)],
            starts=["write"],
            ends=["judge"],
        )
        Path("graph.svg").write_text(svg(drawing), encoding="utf-8")

    Here a run wrote, was sent back by the judge, and wrote again. `starts` and `ends` are the ids of nodes
    where a run begins and may end. `title` describes the drawing to people who cannot see it.

    Raises:
        ConfigurationError: Two nodes have the same id, or an edge, `starts` or `ends` name a node that is not
            there.
    """

    nodes: Sequence[DrawnNode]
    edges: Sequence[DrawnEdge] = ()
    starts: Collection[str] = ()
    """Ids of the nodes where a run begins."""
    ends: Collection[str] = ()
    """Ids of the nodes where a run may end."""
    title: str = "graph"
    """The subject of the drawing, for people who cannot see it."""

    def __post_init__(self) -> None:
        ids = Counter(node.id for node in self.nodes)
        twice = [node_id for node_id, times in ids.items() if times > 1]
        if twice:
            raise ConfigurationError("Drawing.nodes", twice, "a different id for each node")
        named = {
            "edges": dict.fromkeys(end for edge in self.edges for end in (edge.source, edge.target)),
            "starts": self.starts,
            "ends": self.ends,
        }
        for option, node_ids in named.items():
            unknown = [node_id for node_id in node_ids if node_id not in ids]
            if unknown:
                raise ConfigurationError(f"Drawing.{option}", unknown, f"ids of its nodes, {list(ids)!r}")
