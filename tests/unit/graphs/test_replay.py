"""What the log of a run says of a graph, also where it says what cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from support.counted_nodes import Counted

from fastroai import FastroAgent, PipelineConfig, StepContext
from fastroai.errors import RunCorrupt
from fastroai.graphs import Edge, Graph, Node
from fastroai.graphs.machine.replay import replayed
from fastroai.runtime.facts import AnyFact, QuestionAsked, RunFinished, RunResumed, RunStarted
from fastroai.store import MemoryRunStore
from fastroai.store.record.memo import Memo


async def choose_first(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    said = {"reasoning": "it is the first", "target": "b"}
    return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, said)])


def rich_graph(counted: Counted, store: MemoryRunStore) -> Graph[Any, Any]:
    """With a loop, a limit of visits, a decision, a fork, a failure that is handled, and a question."""

    async def count(ctx: StepContext[Any]) -> dict[str, Any]:
        ctx.write("seen", ctx.visit)
        return {"turn": ctx.visit}

    nodes = {
        **counted.nodes("once", "b", "c", "mend", "join", "end"),
        "count": Node(counted.node("count", count), writes=["turn", "seen"]),
        "ask": Node(counted.node("ask"), answer_type=int),
    }
    nodes["once"] = Node(nodes["once"], max_visits=1)
    edges = [
        Edge("once", "count"),
        Edge("count", "once", "conditional", "turn < 3"),
        Edge("count", "b", "llm_decide"),
        Edge("count", "c", "llm_decide", fallback=True),
        Edge("b", "mend", "on_failure"),
        Edge("b", "c", "on_failure"),
        Edge("b", "join", "on_success"),
        Edge("mend", "ask"),
        Edge("ask", "join"),
        Edge("c", "join"),
        Edge("join", "end"),
    ]
    edges = [edge for edge in edges if edge.when != "llm_decide"]
    edges[2:2] = [Edge("count", "way", "always")]
    nodes["way"] = counted.node("way")
    edges += [Edge("way", "b", "llm_decide"), Edge("way", "c", "llm_decide", fallback=True)]
    return Graph(
        "rich",
        nodes=nodes,
        edges=edges,
        entry="once",
        pause_nodes=["ask"],
        decider=FastroAgent(FunctionModel(choose_first)),
        config=PipelineConfig(store=store),
    )


async def log_of(graph: Graph[Any, Any], counted: Counted) -> tuple[AnyFact, ...]:
    counted.failing = {"b", "end"}
    assert (await graph.run({"x": 1}, run_id="r")).status == "paused"
    assert (await graph.resume("r", input=5)).status == "failed"
    counted.failing = {"b"}
    result = await graph.resume("r")
    assert result.status == "finished"
    assert result.path[:6] == ["once", "count", "count", "count", "way", "b"]
    return result.trace.entries


def spoiled(entries: Sequence[AnyFact]) -> Iterator[list[AnyFact]]:
    """The log with an entry missing, doubled, or in another place; and the beginnings of all that."""
    first, *rest = entries
    for number in range(len(rest)):
        yield [first, *rest[:number]]
        yield [first, *rest[:number], *rest[number + 1 :]]
        yield [first, *rest[: number + 1], *rest[number:]]
        yield [first, rest[number], *rest[:number], *rest[number + 1 :]]
        yield [first, *rest[:number], *rest[number + 1 :], rest[number]]
        if number:
            yield [first, *rest[: number - 1], rest[number], rest[number - 1], *rest[number + 1 :]]


async def test_a_log_that_cannot_be_is_refused_and_never_crashes_whatever_is_wrong_with_it() -> None:
    counted = Counted()
    graph = rich_graph(counted, MemoryRunStore())
    entries = await log_of(graph, counted)
    refused = 0
    for log in spoiled(entries):
        for forgiving in (False, True):
            try:
                recorded = Memo("r", [*log, RunResumed(part=entries[0].part)])
                replay = replayed(
                    graph._setup, {"x": 1}, recorded, recorded.opened.part, None, forgiving=forgiving
                )
            except RunCorrupt:
                refused += 1
            else:
                assert replay.finish or replay.due
    assert refused > 50


async def test_every_beginning_of_a_log_is_one_that_a_run_can_go_on_from() -> None:
    counted = Counted()
    graph = rich_graph(counted, MemoryRunStore())
    entries = await log_of(graph, counted)
    questions = next(number for number, entry in enumerate(entries) if isinstance(entry, QuestionAsked))
    for end in range(1, len(entries) + 1):
        replay = replayed(
            graph._setup,
            {"x": 1},
            Memo("r", [*entries[:end], RunResumed(part=entries[0].part)]),
            entries[0].part,
            None,
            forgiving=False,
        )
        assert replay.finish or replay.due
        if end > questions + 1 and replay.finish is not None:
            assert replay.finish.status in ("paused", "finished")
    assert replay.finish is not None
    assert replay.finish.status == "finished"


async def test_what_another_graph_has_done_is_refused_with_the_entry_that_does_not_fit() -> None:
    counted = Counted()
    store = MemoryRunStore()
    edges = [Edge("a", "b")]
    graph = Graph("g", nodes=counted.nodes("a", "b"), edges=edges, config=PipelineConfig(store=store))
    entries = (await graph.run(run_id="r")).trace.entries
    other = Graph("g", nodes=counted.nodes("b", "a"), edges=[Edge("b", "a")])
    with pytest.raises(RunCorrupt, match="the graph does not lead to 'a' there") as refused:
        replayed(other._setup, {}, Memo("r", entries), entries[0].part, None, forgiving=False)
    assert "StepFinished" in repr(entries[refused.value.position - 1])
    replay = replayed(other._setup, {}, Memo("r", entries), entries[0].part, None, forgiving=True)
    assert list(replay.machine.root.outputs) == ["b", "a"] or replay.due
    assert isinstance(entries[0], RunStarted)
    assert isinstance(entries[-1], RunFinished)
    assert not any(isinstance(entry, RunResumed) for entry in entries)
