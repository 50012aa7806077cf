"""Runs drawn from their traces, without the code that ran."""

from __future__ import annotations

import asyncio
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime, timedelta
from time import process_time
from typing import Any

import pytest
from support.agents import paid_agent

from fastroai import FastroAgent, Graph, Inbox, MemoryRunStore, Node, Pipeline, StepContext, Workflow, step
from fastroai.drawing import Drawing, DrawnEdge
from fastroai.errors import StepExecutionError
from fastroai.functions import compute, flow, parallel
from fastroai.graphs import Edge
from fastroai.records import Usage
from fastroai.store import trace_of
from fastroai.store.reading.run_drawing import RunDrawing
from fastroai.store.reading.timeline_rows import TimelineBar, TimelineRow
from fastroai.store.reading.trace import RunTrace


@step
async def quick(ctx: StepContext[Any]) -> str:
    return "quick"


@step(retries=0)
async def fails(ctx: StepContext[Any]) -> str:
    raise ValueError("no")


@compute()
async def double(number: int) -> int:
    await asyncio.sleep(0.002)  # those that run beside each other overlap
    return 2 * number


@flow()
async def sums(number: int) -> int:
    one, other = await parallel(double(number), double(number + 1))
    return await double(one + other)


def pipeline() -> Pipeline[Any, Any, str]:
    inner = Pipeline[Any, Any, str](
        "inner", {"look": quick, "say": paid_agent(3, name="sayer").as_step("hello")}, {"say": ["look"]}
    )
    return Pipeline[Any, Any, str](
        "outer",
        {
            "a/b": quick,
            "sums": sums.as_step(lambda ctx: {"number": 1}),
            "review": inner.as_step(),
            "bad": fails,
            "after": quick,
        },
        {"review": ["a/b", "sums"], "bad": ["review"], "after": ["bad", "review"]},
        output_step="after",
    )


@pytest.fixture
async def trace() -> RunTrace:
    with pytest.raises(StepExecutionError) as failed:
        await pipeline().execute({})
    found = trace_of(failed.value)
    assert found is not None
    return RunTrace.from_json(found.to_json())


def states(drawing: Drawing) -> dict[str, str]:
    return {node.text: node.state for node in drawing.nodes}


async def test_a_trace_alone_is_drawn_as_its_pipeline_with_what_happened(trace: RunTrace) -> None:
    drawing = trace.drawing()
    assert states(drawing) == {
        "a/b": "succeeded",
        "sums": "succeeded",
        "review": "succeeded",
        "bad": "failed",
        "after": "skipped",
    }
    assert [(edge.source, edge.target, edge.taken) for edge in drawing.edges] == [
        ("a%2Fb", "review", 1),
        ("sums", "review", 1),
        ("review", "bad", 1),
        ("bad", "after", 0),
        ("review", "after", 0),
    ]
    assert [node.kind for node in drawing.nodes] == ["step", "graph", "graph", "step", "step"]


async def test_what_is_inside_of_nodes_is_drawn_in_place(trace: RunTrace) -> None:
    opened = trace.drawing(["review", "review@1/inner/say", "sums"])
    nodes = {node.id: node for node in opened.nodes}
    inner = nodes["review"].inside
    assert inner is not None
    assert states(inner) == {"look": "succeeded", "say": "succeeded"}
    assert inner.edges == [DrawnEdge("review@1/inner/look", "review@1/inner/say", taken=1)]
    agent = inner.nodes[1].inside
    assert agent is not None
    assert [(node.text, node.note) for node in agent.nodes] == [("sayer", "$0.000003")]
    calls = nodes["sums"].inside
    assert calls is not None
    assert [node.text for node in calls.nodes] == ["double"] * 3
    assert {edge.target for edge in calls.edges} == {calls.nodes[2].id}, "the third waited for both others"
    assert nodes["bad"].inside is None


async def test_each_node_of_each_level_is_in_the_picture_once(trace: RunTrace) -> None:
    root = ElementTree.fromstring(trace.to_svg([row.id for row in trace.timeline]))
    ids = [node.get("data-node") for node in root.iter() if node.get("data-node")]
    flow_body = {row.id for row in trace.timeline if row.name == "body"}
    assert sorted(map(str, ids)) == sorted({row.id for row in trace.timeline} - flow_body)


async def test_a_flow_is_drawn_as_its_calls() -> None:
    store = MemoryRunStore()
    await sums.run(1, run_id="sums", store=store)
    drawing = (await store.trace("sums")).drawing()
    assert [(node.text, node.state) for node in drawing.nodes] == [("double", "succeeded")] * 3
    assert len(drawing.edges) == 2


def call(name: str, start: float, end: float) -> TimelineRow:
    """The row of a call; times are in seconds."""
    midnight = datetime(2026, 1, 1, tzinfo=UTC)
    bar = TimelineBar(1, "succeeded", midnight + timedelta(seconds=start), midnight + timedelta(seconds=end))
    return TimelineRow(
        kind="function", place=f"{name}@1", name=name, status="succeeded", bars=(bar,), usage=Usage()
    )


def test_calls_side_by_side_are_drawn_in_their_order_whichever_ends_first() -> None:
    drawn = [
        RunDrawing({}, [call("a", 0, first), call("b", 0, second), call("c", 3, 4)], ()).of_run()
        for first, second in [(1, 2), (2, 1)]
    ]
    assert drawn[0].edges == drawn[1].edges
    assert [edge.source for edge in drawn[0].edges] == [node.id for node in drawn[0].nodes[:2]]


def test_a_flow_of_many_calls_is_drawn_in_time_that_grows_with_their_number() -> None:
    def seconds(count: int) -> float:
        rows = [call(f"call{number}", number, number + 0.5) for number in range(count)]
        began = process_time()
        drawing = RunDrawing({}, rows, ()).of_run()
        took = process_time() - began
        assert len(drawing.edges) == count - 1
        return took

    assert seconds(4_000) < 30 * seconds(500)  # 8 times as many; all pairs would take 64 times as long


async def test_the_rows_of_a_table_are_drawn_without_arrows_because_they_have_no_order() -> None:
    store = MemoryRunStore()
    await FastroAgent("test").map(["a", "b", "c"], run_id="rows", store=store, concurrency=1)
    drawing = (await store.trace("rows")).drawing()
    assert (len(drawing.nodes), drawing.edges) == (3, [])


async def test_a_run_in_the_midst_of_its_work_says_so(trace: RunTrace) -> None:
    begun = [entry.kind for entry in trace.entries].index("request_sent")
    drawing = RunTrace(trace.entries[: begun + 1]).drawing(["review"])
    assert states(drawing)["review"] == "running"
    (review,) = (node for node in drawing.nodes if node.id == "review")
    assert review.inside is not None
    assert states(review.inside) == {"look": "succeeded", "say": "running"}


async def test_a_step_that_has_not_run_can_be_opened_if_its_shape_is_known(trace: RunTrace) -> None:
    (review,) = (n for n in RunTrace(trace.entries[:1]).drawing(["review"]).nodes if n.id == "review")
    assert review.inside is not None
    assert states(review.inside) == {"look": "plain", "say": "plain"}


async def test_conditions_may_have_any_text() -> None:
    target = "it's \"here\" to 'x' (fallback)"
    graph = Graph[Any, Any](
        "g",
        nodes={"turn": Node(quick), target: quick},
        edges=[Edge("turn", target, when="conditional", condition="turn == \"to 'x'\" or turn == 'quick'")],
        entry="turn",
    )
    drawing = (await graph.run()).trace.drawing()
    assert [(edge.label, edge.taken) for edge in drawing.edges] == [
        ("turn == \"to 'x'\" or turn == 'quick'", 1)
    ]
    assert drawing.nodes[1].text == target


SPEC = """
version: "0.3"
contracts:
  Count:
    words: {type: integer}
functions:
  count: {mode: compute, intent: Count the words, input: {text: {type: string}}, output: Count}
  publish: {mode: gate, intent: May it be published?}
flows:
  review:
    input: {text: {type: string}}
    output: Count
    max_rounds: 2
    steps:
      - {id: words, function: count, inputs: {text: $.input.text}}
      - {id: approval, function: publish, on_approve: again, on_revise: words, on_kill: null}
      - {id: again, function: count, inputs: {text: $.input.text}}
"""


async def test_a_workflow_is_drawn_with_the_ways_that_it_took() -> None:
    workflow = Workflow.load(SPEC)
    store = MemoryRunStore()
    bound = workflow.bind(functions={"count": lambda text: {"words": len(text.split())}})
    paused = await bound.execute({"text": "a b"}, run_id="w", store=store)
    assert states(paused.trace.drawing())["approval"] == "waiting"
    (question,) = paused.questions
    await Inbox(store).answer(question.id, "approve")
    drawing = (await bound.resume("w", store=store)).trace.drawing()
    ways = {edge.label: edge.taken for edge in drawing.edges}
    assert (ways["approve"], ways["revise"]) == (1, 0)
    assert [node.kind for node in drawing.nodes] == ["step", "pause", "step"]
    assert workflow.to_svg().count('class="badge"') == 0
    assert workflow.to_svg(await bound.resume("w", store=store)).count('class="badge"') == 3
