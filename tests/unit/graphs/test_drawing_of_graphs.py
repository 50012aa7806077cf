"""A graph as a drawing, with the way that a run took."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from support.agents import paid_agent

from fastroai import Graph, Node, Pipeline, StepContext, step
from fastroai.drawing import Drawing, DrawnEdge, DrawnNode
from fastroai.graphs import Edge, GraphResult
from fastroai.store.reading.run_drawing import draw_shape


@step
async def turn(ctx: StepContext[Any]) -> dict[str, int]:
    return {"n": ctx.visit}


@step
async def ask(ctx: StepContext[Any]) -> str:
    return "Really?"


@step(retries=0)
async def fails(ctx: StepContext[Any]) -> None:
    raise ValueError("no")


def graph() -> Graph[Any, Any]:
    return Graph(
        "drawn",
        nodes={
            "turn": Node(turn, writes=["n"]),
            "fails": fails,
            "paid": paid_agent(7).as_step("hello"),
            "inner": Pipeline("inner", steps={"ask": ask}),
            "ask": ask,
            "never": ask,
        },
        edges=[
            Edge("turn", "turn", when="conditional", condition="n < 3"),
            Edge("turn", "fails", "always"),
            Edge("fails", "paid", when="on_failure"),
            Edge("fails", "never", when="on_success"),
            Edge("paid", "inner"),
            Edge("inner", "ask", when="on_success"),
        ],
        entry="turn",
        pause_nodes=["ask"],
    )


@pytest.fixture
async def result() -> GraphResult[Any]:
    return await graph().run()


def drawn(result: GraphResult[Any] | None) -> Drawing:
    return draw_shape(graph().definition) if result is None else result.trace.drawing()


def test_a_graph_is_drawn_with_what_its_edges_say() -> None:
    drawing = drawn(None)
    assert (drawing.starts, drawing.ends, drawing.title) == (["turn"], ["ask", "never"], "drawn")
    assert [(node.id, node.kind, node.state, node.note) for node in drawing.nodes] == [
        ("turn", "step", "plain", None),
        ("fails", "step", "plain", None),
        ("paid", "step", "plain", None),
        ("inner", "graph", "plain", None),
        ("ask", "pause", "plain", None),
        ("never", "step", "plain", None),
    ]
    assert DrawnEdge("turn", "turn", label="n < 3") in drawing.edges
    assert DrawnEdge("turn", "fails", label="always") in drawing.edges
    assert DrawnEdge("paid", "inner") in drawing.edges
    assert DrawnEdge("fails", "paid", label="on_failure", style="dashed") in drawing.edges


async def test_with_a_result_the_way_that_it_took_is_marked(result: GraphResult[Any]) -> None:
    drawing = drawn(result)
    assert drawing.nodes == [
        DrawnNode("turn", note="3 visits", state="succeeded"),
        DrawnNode("fails", state="failed"),
        DrawnNode("paid", note="$0.000007", state="succeeded"),
        DrawnNode("inner", state="succeeded", kind="graph"),
        DrawnNode("ask", state="waiting", kind="pause"),
        DrawnNode("never"),
    ]
    assert [edge.taken for edge in drawing.edges] == [2, 1, 1, 0, 1, 1]


async def test_svg_and_mermaid_show_it(result: GraphResult[Any]) -> None:
    root = ElementTree.fromstring(graph().to_svg(result))
    assert {node.get("data-node") for node in root.iter() if node.get("data-node")} == set(graph().nodes)
    assert "stroke-width" in graph().to_mermaid(result)
    assert "stroke-width" not in graph().to_mermaid()
