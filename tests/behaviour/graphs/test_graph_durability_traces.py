"""What is told of runs of graphs: by their traces, replayed and compared, and on the command line."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.counted_nodes import Counted
from typer.testing import CliRunner, Result

from fastroai import PipelineConfig, StepContext
from fastroai.cli.app import app
from fastroai.graphs import Edge, Graph, Node
from fastroai.store import MemoryRunStore, RunTrace


@pytest.fixture
def counted() -> Counted:
    return Counted()


def looped(counted: Counted, store: Any = None, turns: int = 3, **options: Any) -> Graph[Any, Any]:
    """Turns, forks, and handles a failure."""

    async def turn(ctx: StepContext[Any]) -> dict[str, Any]:
        ctx.write("early", ctx.visit)
        return {"turn": ctx.visit}

    nodes: dict[str, Any] = counted.nodes("left", "right", "mend", "join")
    nodes["turn"] = Node(
        counted.node("turn", turn), writes=["turn", "early"], max_visits=options.pop("limit", None)
    )
    edges = [
        Edge("turn", "turn", "conditional", f"early < {turns} and turn == early"),
        Edge("turn", "left", "always"),
        Edge("turn", "right", "always"),
        Edge("left", "join"),
        Edge("right", "mend", "on_failure"),
        Edge("right", "join", "on_success"),
        Edge("mend", "join"),
    ]
    config = PipelineConfig(store=store)
    return Graph("looped", nodes=nodes, edges=edges, entry="turn", config=config, **options)


@pytest.mark.parametrize("stored", [True, False])
async def test_a_run_is_decided_again_from_its_trace_as_it_was(counted: Counted, stored: bool) -> None:
    graph = looped(counted, MemoryRunStore() if stored else None)
    counted.failing = {"right"}
    result = await graph.run({"x": 1})
    assert result.path == ["turn", "turn", "turn", {"left": ["left"], "right": ["right", "mend"]}, "join"]
    counted.take()
    assert result.trace.replay(graph) is None
    assert RunTrace.from_json(result.trace.to_json()).replay(graph) is None
    assert counted.take() == {}


async def test_a_graph_that_decides_otherwise_is_told_with_the_first_entry_that_differs(
    counted: Counted,
) -> None:
    trace = (await looped(counted).run()).trace
    found = trace.replay(looped(counted, turns=2))
    assert found is not None
    assert "'turn' followed by 'left', 'right'; on record is 'turn' followed by 'turn'" in str(found)
    assert "'turn' followed by 'left', 'right'" not in str(trace.entries[found.position - 1])
    found = trace.replay(looped(counted, limit=2))
    assert found is not None
    assert found.got.startswith("'turn' started, because ")
    name = trace.pipeline
    found = trace.replay(Graph(name, nodes=counted.nodes("a", "b"), edges=[Edge("a", "b")]))
    assert found is not None
    assert found.expected == "no start of 'turn'"
    longer = Graph(
        name,
        nodes={**looped(counted).nodes, "after": counted.node("after")},
        edges=[*looped(counted).edges, Edge("join", "after")],
        entry="turn",
    )
    found = trace.replay(longer)
    assert found is not None
    assert found.position == len(trace.entries)


async def test_a_run_that_failed_was_resumed_paused_and_answered_is_decided_again_too(
    counted: Counted,
) -> None:
    store = MemoryRunStore()
    nodes = {**counted.nodes("a", "b", "end"), "ask": Node(counted.node("ask"), answer_type=int)}
    edges = [Edge("a", "b"), Edge("a", "ask"), Edge("b", "end", "on_success"), Edge("ask", "end")]
    config = PipelineConfig(store=store)
    graph = Graph("g", nodes=nodes, edges=edges, pause_nodes=["ask"], config=config)
    counted.failing = {"end"}
    paused = await graph.run(run_id="r")
    assert paused.trace.replay(graph) is None
    failed = await graph.resume("r", input=3)
    assert failed.status == "failed"
    assert failed.trace.replay(graph) is None
    assert (await graph.resume("r")).trace.replay(graph) is None, "it has failed twice"
    counted.failing = set()
    ended = await graph.resume("r")
    assert ended.status == "finished"
    assert ended.trace.replay(graph) is None
    assert ended.trace.output == "end"
    assert "a person has answered" in ended.trace.explain()
    assert "ask: the on_success edge to 'end' is taken" in ended.trace.explain()


async def test_two_runs_are_compared_visit_by_visit(counted: Counted) -> None:
    graph = looped(counted)
    one, other = await graph.run({"x": 1}), await graph.run({"x": 1})
    assert one.trace.diff(other.trace) == ()
    counted.failing = {"right"}
    told = "\n".join(str(each) for each in one.trace.diff((await graph.run({"x": 2})).trace))
    assert "right: succeeded in the first, failed in the second" in told
    assert "input 'x'" in told
    turned = (await looped(counted, turns=4).run({"x": 1})).trace
    assert any(each.place == "turn#4" for each in one.trace.diff(turned))


# --- the command line ---

USER_CODE = """
from fastroai import PipelineConfig, StepContext, step
from fastroai.graphs import Edge, Graph, Node


@step(retries=0)
async def work(ctx: StepContext) -> dict[str, int]:
    if ctx.deps == "broken":
        raise ConnectionError("no way")
    return {"turn": ctx.visit}


@step
async def ask(ctx: StepContext) -> str:
    return "go on?"


@step
async def end(ctx: StepContext) -> str:
    return f"answered {ctx.get_dependency('ask')}"


def graph(**options):
    return Graph(
        "desk",
        nodes={"work": Node(work, writes=["turn"]), "ask": Node(ask, answer_type=int), "end": end},
        edges=[
            Edge("work", "work", when="conditional", condition="turn < 2"),
            Edge("work", "ask", when="conditional", condition="turn >= 2"),
            Edge("ask", "end"),
        ],
        entry="work",
        pause_nodes=["ask"],
        **options,
    )


desk = graph()
other = graph(on_conflict="error")
broken = "broken"
"""


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "graph_app.py").write_text(USER_CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "graph_app", raising=False)
    sys.path.insert(0, str(tmp_path))
    import graph_app  # type: ignore[import-not-found]

    return graph_app


def command(*words: str) -> Result:
    return CliRunner().invoke(app, ["runs", *words, "--store", "runs.db"])


def test_runs_of_graphs_are_listed_shown_traced_compared_and_gone_on_with(user: Any) -> None:
    from fastroai.store import SQLiteRunStore

    async def begin() -> None:
        store = SQLiteRunStore("runs.db")
        await user.desk.run({"x": 1}, run_id="asks", store=store)
        await user.desk.run({"x": 1}, run_id="fails", store=store, deps="broken")
        await store.aclose()

    asyncio.run(begin())
    listed = command("list")
    assert listed.exit_code == 0, listed.output
    assert "paused" in listed.output
    assert "failed" in listed.output
    shown = command("show", "asks")
    assert shown.exit_code == 0, shown.output
    assert "of graph desk: paused" in shown.output
    (asked,) = json.loads(CliRunner().invoke(app, ["review", "list", "--json", "--store", "runs.db"]).output)
    assert f"waits for an answer to question {asked['id']}" in shown.output
    assert "work#2" in shown.output
    assert "asks a person" in command("trace", "asks").output
    compared = command("diff", "asks", "fails")
    assert compared.exit_code == 1
    assert "work" in compared.output

    told = command("resume", "asks", "--pipeline", "graph_app:desk")
    assert told.exit_code == 2
    assert "--answer needs the answer that node 'ask' of run 'asks' waits for" in told.output
    told = command("resume", "asks", "--pipeline", "graph_app:desk", "--answer", '"perhaps"')
    assert told.exit_code == 2
    assert "an answer that fits the question of node 'ask'" in told.output
    told = command("resume", "asks", "--pipeline", "graph_app:other", "--answer", "3")
    assert told.exit_code != 0
    assert "the graph has changed" in told.output
    told = command(
        "resume",
        "asks",
        "--pipeline",
        "graph_app:desk",
        "--answer",
        "3",
        "--node",
        "ask",
        "--inputs",
        '{"x": 2}',
    )
    assert told.exit_code == 0
    resumed = [
        one
        for one in RunTrace.from_json(command("trace", "asks", "--json").output).entries
        if one.kind == "run_resumed"
    ]
    assert resumed[-1].inputs == {"x": 2}
    assert told.output.endswith("run asks: finished\nanswered 3\n")
    again = command("resume", "fails", "--pipeline", "graph_app:desk", "--deps", "graph_app:broken")
    assert again.exit_code == 1
    assert "no way" in again.output
    asking = command("resume", "fails", "--pipeline", "graph_app:desk", "--json")
    assert asking.exit_code == 0, asking.output
    assert json.loads(asking.stdout)["status"] == "paused"
    told = command("fork", "asks", "--pipeline", "graph_app:desk", "--at", "end")
    assert told.exit_code == 0, told.output
    assert told.output.endswith(": finished\nanswered 3\n")
