"""What branches write to one key, brought together: live, in loops, in runs that are resumed."""

from __future__ import annotations

import asyncio
import logging
from itertools import permutations
from typing import Any

import pytest
from support.virtual_time import in_virtual_time

from fastroai import MemoryRunStore, PipelineConfig, StepContext, step
from fastroai.errors import RunDefinitionChanged
from fastroai.graphs import Edge, Graph, Node
from fastroai.graphs.errors import MemoryConflict

BRANCHES = ("a", "b", "c")


def fan_out(seconds: dict[str, float], **options: Any) -> Graph[Any, Any]:
    """A fork of three branches that write their names to `notes`, each after its time."""

    def writing(name: str) -> Node[Any]:
        @step
        async def write(ctx: StepContext) -> str:
            await asyncio.sleep(seconds.get(name, 0))
            return name

        return Node(write, writes=["notes"])

    @step
    async def pause(ctx: StepContext) -> str:
        return "go on?"

    @step
    async def read(ctx: StepContext) -> object:
        return ctx.get_input("notes")

    nodes: dict[str, Any] = {"top": pause, **{name: writing(name) for name in BRANCHES}, "end": read}
    edges = [Edge("top", name) for name in BRANCHES] + [Edge(name, "end") for name in BRANCHES]
    return Graph("notes", nodes=nodes, edges=edges, **options)


@pytest.mark.parametrize("order", list(permutations([1.0, 2.0, 3.0])))
@pytest.mark.parametrize(
    ("how", "found"),
    [("append", ["a", "b", "c"]), ("add", "abc"), (lambda one, other: f"{one}-{other}", "a-b-c")],
)
def test_the_join_finds_the_same_whichever_branch_ends_first(
    order: tuple[float, ...], how: Any, found: object
) -> None:
    @in_virtual_time
    async def story() -> None:
        graph = fan_out(dict(zip(BRANCHES, order, strict=True)), reducers={"notes": how})
        assert (await graph.run()).output == found

    story()


@in_virtual_time
async def test_a_loop_collects_what_is_written_in_each_turn() -> None:
    def writing(name: str) -> Node[Any]:
        @step
        async def write(ctx: StepContext) -> str:
            return f"{name}{ctx.visit}"

        return Node(write, writes=["notes"])

    @step
    async def turn(ctx: StepContext) -> int:
        return ctx.visit

    graph = Graph(
        "loop",
        nodes={
            "top": turn,
            "a": writing("a"),
            "b": writing("b"),
            "join": Node(turn, writes=["turns"]),
            "end": turn,
        },
        edges=[
            Edge("top", "a"),
            Edge("top", "b"),
            Edge("a", "join"),
            Edge("b", "join"),
            Edge("join", "top", "conditional", "turns < 3"),
            Edge("join", "end", "always"),
        ],
        entry="top",
        reducers={"notes": "append"},
    )
    result = await graph.run({"notes": ["given"]})
    assert result.memory["notes"] == ["given", "a1", "b1", "a2", "b2", "a3", "b3"]


async def test_a_run_that_is_resumed_finds_what_one_at_a_stretch_does() -> None:
    store = MemoryRunStore()
    options: dict[str, Any] = {"reducers": {"notes": "append"}, "config": PipelineConfig(store=store)}
    graph = fan_out({}, pause_nodes=["b", "top"], **options)
    first = await graph.run({"notes": "given"}, run_id="r")
    assert first.status == "paused"
    second = await graph.resume("r", input=True)
    assert (second.status, second.memory["notes"]) == ("paused", ["given", "a", "c"])
    third = await graph.resume("r", input="from a person")
    assert third.output == ["given", "a", "from a person", "c"]


async def test_another_reducer_is_another_graph() -> None:
    store = MemoryRunStore()
    options: dict[str, Any] = {"pause_nodes": ["top"], "config": PipelineConfig(store=store)}
    await fan_out({}, reducers={"notes": "append"}, **options).run(run_id="r")
    with pytest.raises(
        RunDefinitionChanged, match=r"reducers is \{'notes': 'max'\} \(was \{'notes': 'append'\}\)"
    ):
        await fan_out({}, reducers={"notes": max}, **options).resume("r", input=True)


async def test_a_reducer_that_fails_ends_the_run_with_all_that_was_written() -> None:
    def refuse(one: str, other: str) -> str:
        raise ArithmeticError("not these")

    result = await fan_out({}, reducers={"notes": refuse}).run()
    assert result.status == "failed"
    assert isinstance(result.error, MemoryConflict)
    assert isinstance(result.error.__cause__, ArithmeticError)
    assert result.reason == (
        "the reducer of 'notes' failed on the values of parallel branches: ArithmeticError: not these"
    )
    assert result.memory["notes"] in BRANCHES


@in_virtual_time
async def test_what_the_last_branch_overwrites_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "fastroai.graphs")
    result = await fan_out({"a": 2, "b": 3, "c": 1}).run()
    assert result.output == "b"
    assert [record.getMessage() for record in caplog.records] == [
        "graph 'notes': branches after 'top' wrote 'notes'. The value of 'b' was the last, that of 'c', 'a' "
        "is overwritten. Keep all by reducers={'notes': 'append'} or 'merge', 'add', a function; 'last_wins' "
        "if it is meant"
    ]
    caplog.clear()
    await fan_out({}, reducers={"notes": "last_wins"}).run()
    await fan_out({}, on_conflict="first_wins").run()
    assert not caplog.records


def test_words_are_in_yaml_and_functions_are_not() -> None:
    graph = fan_out({}, reducers={"notes": "append"})
    assert "reducers: {notes: append}" in graph.to_yaml()
    again = Graph.from_yaml(graph.to_yaml(), nodes=graph.nodes)
    assert again.definition == graph.definition
    with pytest.raises(Exception, match="reducers=.*built-in reducers, by name, for YAML"):
        fan_out({}, reducers={"notes": max}).to_yaml()
