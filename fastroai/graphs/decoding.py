"""The outputs of nodes that a graph is sure to read when its run is taken up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pydantic import JsonValue

from fastroai.graphs.facts import EdgesResolved, ResolvedEdge
from fastroai.runtime.facts import StepFinished, StepStarted
from fastroai.store.record.memo import Memo

_BY_OUTPUT: Final = ("conditional", "send")
"""Kinds of edges for which the output of their node decides whether they are taken."""


def needed_by_graph(recorded: Memo, definition: JsonValue) -> Iterable[StepFinished]:
    """Return the latest outputs that a graph is sure to read.

    These are outputs of terminals, of nodes whose taken edges lead to nodes that have not finished, and of
    nodes whose output decides which edges are taken.
    """
    latest: dict[str, StepFinished] = {}
    edges: dict[str, Sequence[ResolvedEdge]] = {}
    left: set[str] = set()
    for _, entry in recorded.history(""):
        if isinstance(entry, StepStarted):
            left.add(entry.step_id)
            edges.pop(entry.step_id, None)
        elif isinstance(entry, StepFinished):
            latest[entry.step_id] = entry
            left.discard(entry.step_id)
        elif isinstance(entry, EdgesResolved):
            edges[entry.step_id] = entry.edges
            if any(edge.taken for edge in entry.edges):  # an edge taken after a failure handles the failure
                left.discard(entry.step_id)
    return [
        entry
        for node, entry in latest.items()
        if node not in edges
        or any(
            edge.when in _BY_OUTPUT or (edge.taken and (edge.target in left or edge.target not in latest))
            for edge in edges[node]
        )
    ]
