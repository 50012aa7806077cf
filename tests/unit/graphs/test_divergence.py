"""Where a graph would have decided otherwise than the run that is on record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from support.counted_nodes import Counted

from fastroai import StepContext
from fastroai.errors import RunCorrupt
from fastroai.graphs import Edge, Graph, Node
from fastroai.graphs.facts import EdgesResolved
from fastroai.runtime.fact_base import FailureFacts
from fastroai.runtime.facts import AnyFact, RunFinished, StepFailed, StepFinished, StepSkipped
from fastroai.store import RunTrace


def turning(limit: int | None = None, **options: Any) -> Graph[Any, Any]:
    """Turns three times and ends."""
    counted = Counted()

    async def turn(ctx: StepContext[Any]) -> dict[str, int]:
        return {"turn": ctx.visit}

    async def count(ctx: StepContext[Any]) -> dict[str, int]:
        return {"count": ctx.visit}

    nodes = {
        "turn": Node(counted.node("turn", turn), writes=["turn"], max_visits=limit),
        "count": Node(counted.node("count", count), writes=["count"]),
        **counted.nodes("end"),
    }
    edges = [
        Edge("turn", "count"),
        Edge("count", "turn", "conditional", "count < 3"),
        Edge("count", "end", "always"),
    ]
    return Graph("turning", nodes=nodes, edges=edges, entry="turn", **options)


async def entries_of(graph: Graph[Any, Any]) -> list[AnyFact]:
    return [*(await graph.run({"x": 1})).trace.entries]


def told(graph: Graph[Any, Any], entries: Sequence[AnyFact]) -> str:
    return str(RunTrace(entries).replay(graph))


async def test_a_skip_that_is_not_decided_and_one_that_is() -> None:
    skipping = await entries_of(turning(1))
    assert told(turning(1), skipping) == "None"
    assert "the replay has no skip of 'turn'; on record is 'turn' skipped" in told(turning(), skipping)
    without = [entry for entry in skipping if not isinstance(entry, StepSkipped)]
    assert "has 'turn' skipped, because max_visits=1 was reached; on record is the run finished" in told(
        turning(1), without
    )


async def test_outputs_and_inputs_that_do_not_fit() -> None:
    entries = await entries_of(turning())
    spoiled = [
        replace(e, output=3) if isinstance(e, StepFinished) and e.place == "end" else e for e in entries
    ]
    end = Counted().node("end", returns=str)
    typed = Graph(
        "turning", nodes={**turning().nodes, "end": end}, edges=turning().edges, entry="turn", goal="other"
    )
    assert told(typed, entries) == "None"
    assert "not of the type" in told(typed, spoiled)
    assert told(typed, spoiled).endswith("on record is an output of 'end'")
    with pytest.raises(RunCorrupt, match="the graph does not accept its inputs"):
        told(turning(accepts={"x": str}), entries)
    assert told(turning(accepts={"x": int}), entries) == "None"


async def test_ends_that_are_not_those_of_the_run() -> None:
    *entries, ended = await entries_of(turning())
    assert isinstance(ended, RunFinished)
    assert told(turning(), entries) == "None", "it goes on"
    assert told(turning(), [*entries, replace(ended, status="cancelled")]) == "None", "from outside"
    assert "the run finished, because reached 'end'" in told(
        turning(), [*entries, replace(ended, status="failed")]
    )
    cut = [entry for entry in entries if not (isinstance(entry, StepFinished) and entry.place == "end")]
    assert "the run waiting for 'end'; on record is the run finished" in told(turning(), [*cut, ended])
    assert told(turning(), [*cut, replace(ended, status="paused")]) == "None", "it was paused"


async def test_edges_that_are_resolved_although_nothing_ended() -> None:
    entries = await entries_of(turning())
    twice = next(entry for entry in entries if isinstance(entry, EdgesResolved))
    assert "has no end of 'turn'; on record is 'turn' followed by 'count'" in told(
        turning(), [*entries, twice]
    )
    facts = FailureFacts(error_type="E", message="gone", failure_class="terminal")
    failure = StepFailed("nowhere", facts)
    assert told(turning(), [entries[0], failure]).endswith("on record is a failure of 'nowhere'")
