"""The shape of a graph as plain data, kept with its runs.

The shape has everything that decides which nodes run after which others. It has no prompts, code, time
limits, retries, budgets and limits of visits: these may change before a run is resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from fastroai.graphs.shape.edge import Edge
from fastroai.graphs.shape.node import Node
from fastroai.graphs.shape.plan import GraphPlan, Reducer
from fastroai.runs.nesting import definition_inside


def define(
    name: str, nodes: Mapping[str, Node[Any]], plan: GraphPlan, conversation: str, version: str | None
) -> dict[str, JsonValue]:
    """Return the shape of a graph as plain data."""
    return {
        "name": name,
        "kind": "graph",
        "steps": {
            node_id: {
                "needs": [],
                "runs": definition_inside(node.step),
                "reads": [*sorted(node.reads)],
                "writes": [*node.writes],
                "edges": [_edge(edge) for edge in plan.edges[node_id]],
            }
            for node_id, node in nodes.items()
        },
        "entry": plan.entry,
        "terminals": [*plan.terminals],
        "pause_nodes": [*sorted(plan.pauses)],
        "on_branch_failure": plan.on_branch_failure,
        "on_conflict": plan.on_conflict,
        "conversation": conversation,
        **_reducers(plan.reducers),
        **({} if version is None else {"version": version}),
    }


def _reducers(reducers: Mapping[str, Reducer]) -> dict[str, JsonValue]:
    """Return the part of the shape that lists reducers, with functions by their names; empty without any."""
    if not reducers:
        return {}
    return {
        "reducers": {
            key: how if isinstance(how, str) else getattr(how, "__qualname__", type(how).__qualname__)
            for key, how in sorted(reducers.items())
        }
    }


def _edge(edge: Edge) -> str:
    condition = "" if edge.condition is None else f" {edge.condition}"
    fallback = " (fallback)" if edge.fallback else ""
    return f"{edge.when}{condition} to {edge.target!r}{fallback}"
