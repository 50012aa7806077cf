"""A graph that has changed between two processes of a run: what is refused, and what goes on by force."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from support.agents import paid_agent
from support.counted_nodes import Counted
from support.faulty_store import everything_in

from fastroai import Budget, PipelineConfig
from fastroai.errors import FastroAIError, RunCorrupt, RunDefinitionChanged
from fastroai.graphs import Edge, Graph, Node
from fastroai.store import MemoryRunStore

EDGES = (
    Edge("top", "left"),
    Edge("top", "right"),
    Edge("left", "join", "on_success"),
    Edge("right", "join", "conditional", "right == 'right'"),
    Edge("right", "other", "conditional", "has(nothing)"),
    Edge("right", "other", "always"),
    Edge("other", "join"),
    Edge("join", "end"),
)
REMOVED = EDGES[:4] + EDGES[5:]
REORDERED = (*EDGES[:3], EDGES[4], EDGES[3], *EDGES[5:])
OTHER_CONDITION = (*EDGES[:3], Edge("right", "join", "conditional", "right != 'wrong'"), *EDGES[4:])
OTHER_WHEN = (*EDGES[:2], Edge("left", "join", "always"), *EDGES[3:])
WITHOUT_OTHER = tuple(edge for edge in EDGES if "other" not in (edge.source, edge.target))
NEW_NODE = (*EDGES[:-1], Edge("join", "new"), Edge("new", "end"))


def graph_of(counted: Counted, store: Any, edges: Sequence[Edge] = EDGES, **options: Any) -> Graph[Any, Any]:
    names = dict.fromkeys(name for edge in edges for name in (edge.source, edge.target))
    nodes: dict[str, Any] = {**counted.nodes(*names), **options.pop("nodes", {})}
    return Graph("g", nodes=nodes, edges=edges, config=PipelineConfig(store=store), **options)


@pytest.fixture
def counted() -> Counted:
    return Counted()


CHANGES: list[tuple[dict[str, Any], list[str]]] = [
    ({"edges": WITHOUT_OTHER}, ["'other' was removed", "to 'other', was removed"]),
    ({"edges": NEW_NODE}, ["'new' is new", "the edge of 'join', on_success to 'end', was removed"]),
    ({"edges": REMOVED}, ["the edge of 'right', conditional has(nothing) to 'other', was removed"]),
    ({"edges": (*EDGES, Edge("left", "other", "on_failure"))}, ["'left', on_failure to 'other', is new"]),
    ({"edges": REORDERED}, ["the edges of 'right' have another order"]),
    ({"edges": OTHER_CONDITION}, ["conditional right == 'right' to 'join', was removed", "right != 'wrong'"]),
    (
        {"edges": OTHER_WHEN},
        ["'left', on_success to 'join', was removed", "'left', always to 'join', is new"],
    ),
    ({"on_branch_failure": "wait_all"}, ["on_branch_failure is 'wait_all' (was 'fail_all')"]),
    ({"on_conflict": "error"}, ["on_conflict is 'error' (was 'last_wins')"]),
    ({"reducers": {"x": "append"}}, ["reducers is {'x': 'append'} (was None)"]),
    ({"edges": (*EDGES, Edge("end", "top", "on_failure")), "terminals": ["end"]}, ["to 'top', is new"]),
    ({"pause_nodes": ["end"]}, ["pause_nodes is ['end'] (was [])"]),
    ({"conversation": "isolated"}, ["conversation is 'isolated' (was 'continuous')"]),
    ({"reads": ["right"]}, ["node 'end' reads 'right' (it was nothing)"]),
    ({"writes": ["done"]}, ["node 'end' writes 'done' (it was nothing)"]),
]


def changed(counted: Counted, store: Any, change: dict[str, Any]) -> Graph[Any, Any]:
    """The same graph, with such a change."""
    change = dict(change)
    of_node = {name: change.pop(name) for name in ("reads", "writes") if name in change}
    if of_node:
        change["nodes"] = {"end": Node(counted.node("end"), **of_node)}
    if "terminals" in change:  # a terminal has no edges: so the run begins elsewhere instead
        change = {"entry": "left", "edges": WITHOUT_TOP}
    return graph_of(counted, store, **change)


WITHOUT_TOP = (*EDGES[2:], Edge("left", "right", "on_failure"))


@pytest.mark.parametrize(("change", "says"), CHANGES, ids=lambda one: str(one)[:40])
async def test_a_changed_graph_is_refused_and_told_and_goes_on_by_force_or_says_why_not(
    counted: Counted, change: dict[str, Any], says: list[str]
) -> None:
    store = MemoryRunStore()
    counted.failing = {"end"}
    assert (await graph_of(counted, store).run(run_id="r")).status == "failed"
    counted.take()
    before = await everything_in(store)
    other = changed(counted, store, change)
    with pytest.raises(RunDefinitionChanged) as refused:
        await other.resume("r")
    assert "the graph has changed" in str(refused.value)
    for line in says if "terminals" not in change else ["entry is 'left' (was 'top')", "'top' was removed"]:
        assert any(line in told for told in refused.value.changes), refused.value.changes
    assert await everything_in(store) == before
    assert counted.take() == {}

    counted.failing = set()
    result = await other.resume("r", force=True)
    assert result.status in ("finished", "failed", "paused")
    if "edges" not in change:
        assert counted.take() == {"end": 1}, "what was done is not done again"


async def test_terminals_and_names_are_part_of_the_shape_too(counted: Counted) -> None:
    store = MemoryRunStore()
    edges = [Edge("a", "b"), Edge("a", "c")]
    counted.failing = {"c"}
    await graph_of(counted, store, edges).run(run_id="r")
    with pytest.raises(RunDefinitionChanged, match=r"terminals is \['c', 'b'\] \(was \['b', 'c'\]\)"):
        await graph_of(counted, store, edges, terminals=["c", "b"]).resume("r")
    other = Graph(
        "other", nodes=counted.nodes("a", "b", "c"), edges=edges, config=PipelineConfig(store=store)
    )
    with pytest.raises(RunDefinitionChanged, match="the name is 'other'"):
        await other.resume("r")


async def test_texts_and_numbers_may_change(counted: Counted) -> None:
    store = MemoryRunStore()
    counted.failing = {"end"}
    assert (await graph_of(counted, store, goal="one", max_steps=10).run(run_id="r")).status == "failed"
    counted.take()
    counted.failing = set()
    agent = paid_agent()
    again = graph_of(
        counted,
        store,
        goal="another",
        max_steps=20,
        branch_timeout=60,
        max_concurrency=1,
        budget=Budget(usd=1),
        nodes={
            "end": Node(agent.as_step("another prompt"), focus="other", max_visits=3),
            "left": counted.node("left", retries=5, timeout=3),
        },
    )
    assert (await again.resume("r")).output == "answer to another prompt"
    assert counted.take() == {}


ANYTHING = [
    ("a", "b", "c"),
    ("c", "b", "a"),
    ("a", "c"),
    ("a", "x", "b", "c"),
    ("x", "a"),
    ("b",),
]


@pytest.mark.parametrize("names", ANYTHING, ids="".join)
@pytest.mark.parametrize("failing", ["a", "b", "c"])
async def test_force_never_crashes_or_hangs_whatever_the_graph_is_now(
    counted: Counted, names: tuple[str, ...], failing: str
) -> None:
    store = MemoryRunStore()

    def chain(names: Sequence[str], **options: Any) -> Graph[Any, Any]:
        edges = [Edge(one, other) for one, other in pairwise(names)]
        config = PipelineConfig(store=store)
        return Graph("chain", nodes=counted.nodes(*names), edges=edges, config=config, **options)

    counted.failing = {failing}
    await chain("abc").run(run_id="r")
    counted.failing = set()
    result = await chain(names).resume("r", force=True)
    assert (result.status, result.path) == ("finished", [*names])


async def test_other_declared_outputs_are_refused_by_what_they_say(counted: Counted) -> None:
    store = MemoryRunStore()
    edges = [Edge("a", "b")]
    counted.failing = {"b"}
    await graph_of(counted, store, edges).run(run_id="r")
    counted.failing = set()
    wrong = Node(counted.node("a", returns=int), writes=["a"])
    with pytest.raises(FastroAIError, match=r"node 'a' writes 'a'"):
        await graph_of(counted, store, edges, nodes={"a": wrong}).resume("r")
    with pytest.raises(RunCorrupt, match="not of the type"):
        await graph_of(counted, store, edges, nodes={"a": counted.node("a", returns=int)}).resume("r")
