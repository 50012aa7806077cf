"""A graph as a drawing, with the path that a run took."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fastroai.drawing import Drawing, DrawnEdge, DrawnNode, NodeKind, NodeState
from fastroai.graphs.facts import EdgesResolved
from fastroai.graphs.result import GraphResult
from fastroai.graphs.setup import GraphSetup
from fastroai.graphs.shape.edge import Edge
from fastroai.places import step_name
from fastroai.runs.nesting import NestedStep
from fastroai.store.reading.trace import RunTrace
from fastroai.usage import format_cost


def draw(setup: GraphSetup, result: GraphResult[Any] | None) -> Drawing:
    """Draw the nodes and edges. With a result, show what its run did with them."""
    plan = setup.plan
    taken = Counter[tuple[str, str, str]]() if result is None else _taken(setup.name, result.trace)
    return Drawing(
        nodes=[_node(setup, node, result) for node in plan.nodes],
        edges=[_edge(edge, taken) for node in plan.nodes for edge in plan.edges[node]],
        starts=[plan.entry],
        ends=plan.terminals,
        title=setup.name,
    )


def _taken(graph: str, trace: RunTrace) -> Counter[tuple[str, str, str]]:
    """Count how often each edge of the graph was taken. Edges of nested graphs are left out."""
    return Counter(
        (step_name(entry.place), edge.target, edge.when)
        for entry in trace.entries
        if isinstance(entry, EdgesResolved) and "/" not in entry.place
        for edge in entry.edges
        if edge.taken
    )


def _node(setup: GraphSetup, node: str, result: GraphResult[Any] | None) -> DrawnNode:
    kind: NodeKind = "pause" if node in setup.plan.pauses else "step"
    if isinstance(setup.nodes[node].step, NestedStep):
        kind = "graph"
    if result is None:
        return DrawnNode(node, kind=kind)
    return DrawnNode(node, note=_note(node, result), state=_state(node, result), kind=kind)


def _note(node: str, result: GraphResult[Any]) -> str | None:
    visits = result.visits.get(node, 0)
    if not visits:
        return None
    usage = result.usage.by_node.get(node)
    parts = [] if visits == 1 else [f"{visits} visits"]
    if usage is not None and usage.request_count:
        parts.append(format_cost(usage))
    return " · ".join(parts) or None


def _state(node: str, result: GraphResult[Any]) -> NodeState:
    if node in result.resume_at:
        return "waiting"
    if node in result.outputs:
        return "succeeded"
    if node in result.errors:
        return "failed"
    return "cancelled" if result.visits.get(node) else "plain"


def _edge(edge: Edge, taken: Counter[tuple[str, str, str]]) -> DrawnEdge:
    label = edge.condition if edge.when == "conditional" else None if edge.when == "on_success" else edge.when
    if edge.fallback:
        label = "llm_decide (fallback)"
    return DrawnEdge(
        edge.source,
        edge.target,
        label=label,
        style="dashed" if edge.when == "on_failure" or edge.fallback else "solid",
        taken=taken[edge.source, edge.target, edge.when],
    )
