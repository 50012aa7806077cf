"""A graph that is resumed decodes the outputs that somebody reads, and no others."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, field_validator
from support.faulty_store import everything_in

from fastroai import Pipeline, PipelineConfig, StepContext, flow, step
from fastroai.errors import RunCorrupt, StepExecutionError
from fastroai.graphs import Edge, Graph, Node
from fastroai.store import MemoryRunStore

TURNS = 1_200


class Note(BaseModel):
    """How often each was read from JSON."""

    name: str
    read: ClassVar[Counter[str]] = Counter()

    @field_validator("name")
    @classmethod
    def _count(cls, name: str) -> str:
        cls.read[name] += 1
        return name


class Pair(BaseModel):
    """Two at once."""

    left: Note
    right: Note


class Other(BaseModel):
    """Another type."""

    size: int


class Nodes:
    """Nodes that give notes, and one that fails until it is told to go on."""

    def __init__(self) -> None:
        self.is_failing = True

    def note(self, returns: Any = Note) -> Any:
        async def noted(ctx: StepContext[Any]) -> Any:
            visit = ctx.visit
            return Note.model_construct(name=ctx.step_id if visit in (None, 1) else f"{ctx.step_id}{visit}")

        noted.__annotations__["return"] = returns
        return step(noted)

    def notes(self, names: Sequence[str]) -> dict[str, Any]:
        return {name: self.note() for name in names}

    def last(self, reads: str | None = None) -> Any:
        @step(retries=0)
        async def last(ctx: StepContext[Any]) -> str:
            if self.is_failing:
                raise ValueError("no")
            return "done" if reads is None else ctx.get_dependency(reads, Note).name

        return last

    async def go_on(self, runs: Any, **options: Any) -> Any:
        """What a run comes to that has failed and is resumed. Reads are counted from there on."""
        with suppress(StepExecutionError):
            await runs.execute({}, run_id="r")
        self.is_failing = False
        Note.read.clear()
        return await runs.resume("r", **options)


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


def graph_of(
    nodes: dict[str, Any], edges: Sequence[Edge], name: str = "g", **options: Any
) -> Graph[Any, Any]:
    config = PipelineConfig(store=MemoryRunStore(), **options.pop("config", {}))
    return Graph(name, nodes=nodes, edges=edges, config=config, **options)


def chain(nodes: Nodes, reads: str | None = None, **others: Any) -> Graph[Any, Any]:
    edges = [Edge("a", "b"), Edge("b", "c"), Edge("c", "last")]
    return graph_of(nodes.notes("abc") | others | {"last": nodes.last(reads)}, edges)


async def test_of_a_chain_the_output_before_the_node_that_runs_and_what_it_reads(nodes: Nodes) -> None:
    result = await nodes.go_on(chain(nodes, reads="b"))
    assert (result.output, Note.read) == ("b", {"b": 1, "c": 1})


async def test_what_nobody_has_read_is_in_the_result_and_is_decoded_once(nodes: Nodes) -> None:
    result = await nodes.go_on(chain(nodes))
    assert Note.read == {"c": 1}
    assert [*result.outputs] == [*result.memory] == ["a", "b", "c", "last"]
    assert result.outputs["a"] == result.memory["a"] == Note.model_construct(name="a")
    assert Note.read == {"a": 1, "c": 1}
    copy = pickle.loads(pickle.dumps(result.outputs))
    assert (type(copy), copy, result.outputs) == (dict, result.outputs, copy)
    assert result.model_dump()["memory"] == {**{one: {"name": one} for one in "abc"}, "last": "done"}
    assert Note.read == {"a": 1, "b": 1, "c": 1}


async def test_a_run_without_a_store_gives_plain_dictionaries(nodes: Nodes) -> None:
    nodes.is_failing = False
    graph: Graph[Any, Any] = Graph("g", nodes=nodes.notes("ab"), edges=[Edge("a", "b")])
    result = await graph.execute({})
    assert (type(result.outputs), type(result.memory)) == (dict, dict)


async def test_of_a_finished_graph_its_output(nodes: Nodes) -> None:
    graph = chain(nodes, reads="b")
    await nodes.go_on(graph)
    Note.read.clear()
    assert (await graph.resume("r")).output == "b"
    assert Note.read == {}


async def test_of_a_fork_the_branches_that_wait_for_their_join(nodes: Nodes) -> None:
    edges = [Edge("a", "b1"), Edge("a", "c"), Edge("b1", "b2"), Edge("b2", "d"), Edge("c", "last")]
    steps = nodes.notes(["a", "b1", "b2", "c"]) | {"last": nodes.last(), "d": nodes.last()}
    graph = graph_of(steps, [*edges, Edge("last", "d")], on_branch_failure="continue_others")
    result = await nodes.go_on(graph)
    assert (result.output, Note.read) == ("done", {"b2": 1, "c": 1})


async def test_of_a_loop_the_outputs_by_which_edges_are_chosen(nodes: Nodes) -> None:
    @step
    async def again(ctx: StepContext[Any]) -> dict[str, bool]:
        return {"again": ctx.visit != TURNS}

    edges = [
        Edge("work", "again"),
        Edge("again", "work", "conditional", condition="again"),
        Edge("again", "last", "always"),
    ]
    steps = {"work": nodes.note(), "again": again, "last": nodes.last("work")}
    graph = graph_of(steps, edges, entry="work", max_steps=3 * TURNS)
    result = await nodes.go_on(graph)
    assert (result.visits["work"], result.output, Note.read) == (TURNS, f"work{TURNS}", {f"work{TURNS}": 1})


def nothing(ctx: StepContext[Any]) -> dict[str, object]:
    """The inputs of a nested run; by default, those are all values of the run around it."""
    return {}


async def test_of_a_graph_in_a_pipeline_in_a_graph_in_a_pipeline_as_little(nodes: Nodes) -> None:
    inner: Graph[Any, Any] = Graph(
        "inner", nodes=nodes.notes("xy") | {"last": nodes.last()}, edges=[Edge("x", "y"), Edge("y", "last")]
    )
    middle = Pipeline("middle", {"p": nodes.note(), "q": inner.as_step(inputs=nothing)}, {"q": ["p"]})
    graph: Graph[Any, Any] = Graph(
        "graph",
        nodes=nodes.notes("ab") | {"in": middle.as_step(inputs=nothing)},
        edges=[Edge("a", "b"), Edge("b", "in")],
    )
    steps = {**nodes.notes(["one", "two"]), "graph": graph.as_step(inputs=nothing)}
    around: Pipeline[Any, Any] = Pipeline(
        "around", steps, {"two": ["one"], "graph": ["two"]}, config=PipelineConfig(store=MemoryRunStore())
    )
    result = await nodes.go_on(around)
    assert (result.output, Note.read) == ("done", {"two": 1})


async def test_a_codec_decodes_what_is_read_and_values_that_nodes_wrote_likewise(nodes: Nodes) -> None:
    class Counting:
        def __init__(self) -> None:
            self.decoded: list[bytes] = []

        def encode(self, payload: bytes) -> bytes:
            return payload

        def decode(self, payload: bytes) -> bytes:
            self.decoded.append(payload)
            return payload

    @step
    async def writing(ctx: StepContext[Any]) -> str:
        ctx.write("aside", "written at the side")
        return "given back"

    codec = Counting()
    edges = [Edge("a", "b"), Edge("b", "c"), Edge("c", "last")]
    steps = {"a": Node(writing, writes=["aside", "a"]), **nodes.notes("bc"), "last": nodes.last()}
    graph = graph_of(steps, edges, config={"codec": codec})
    result = await nodes.go_on(graph)
    read = b" ".join(codec.decoded)
    assert (b"given back" in read, b"written at the side" in read, b'{"name":"b"}' in read) == (
        False,
        False,
        False,
    )
    assert b'{"name":"c"}' in read
    assert result.memory["aside"] == "written at the side"
    assert b"written at the side" in b" ".join(codec.decoded)


async def test_fields_that_a_node_declares_to_write_are_decoded_together(nodes: Nodes) -> None:
    @step
    async def pair(ctx: StepContext[Any]) -> Pair:
        notes = (Note.model_construct(name=name) for name in ("left", "right"))
        return Pair.model_construct(left=next(notes), right=next(notes))

    steps = {"pair": Node(pair, writes=["left", "right"]), "a": nodes.note(), "last": nodes.last()}
    result = await nodes.go_on(graph_of(steps, [Edge("pair", "a"), Edge("a", "last")]))
    assert ([*result.memory], Note.read) == (["left", "right", "a", "last"], {"a": 1})
    assert result.memory["left"].name == "left"
    assert Note.read == {"a": 1, "left": 1, "right": 1}


async def test_a_flow_decodes_the_graphs_that_it_runs_again_when_it_uses_their_results(nodes: Nodes) -> None:
    inner = chain(nodes)

    @flow(config=PipelineConfig(store=MemoryRunStore()))
    async def outer() -> str:
        result = await inner.execute({})
        if result.error is not None:
            raise result.error
        return str(result.output)

    assert await nodes.go_on(_Flow(outer)) == "done"
    assert Note.read == {}


class _Flow:
    """A flow, begun and resumed as graphs are."""

    def __init__(self, of: Any) -> None:
        self._flow = of

    async def execute(self, inputs: Any, *, run_id: str) -> Any:
        return await self._flow.execute({}, run_id=run_id)

    async def resume(self, run_id: str) -> Any:
        return await self._flow.resume(run_id)


# --- outputs that cannot be decoded ---


async def test_an_output_of_another_type_is_refused_before_the_run_goes_on_if_the_next_node_comes_from_it(
    nodes: Nodes,
) -> None:
    graph = chain(nodes)
    store = graph.config.store
    await graph.execute({}, run_id="r")
    before = await everything_in(store)
    changed = chain(nodes, c=nodes.note(Other))
    with pytest.raises(RunCorrupt, match="the output of 'c' is not of the type that it declares"):
        await changed.resume("r", store=store)
    assert await everything_in(store) == before


async def test_an_output_of_another_type_that_nobody_needs_is_told_to_those_who_read_it(nodes: Nodes) -> None:
    graph = chain(nodes)
    await graph.execute({}, run_id="r")
    nodes.is_failing = False
    result = await chain(nodes, a=nodes.note(Other)).resume("r", store=graph.config.store)
    assert (result.status, result.output) == ("finished", "done")
    for values in (result.outputs, result.memory):
        with pytest.raises(RunCorrupt, match="the output of 'a' is not of the type that it declares"):
            values["a"]


async def test_a_node_that_reads_an_output_of_another_type_fails_once(nodes: Nodes) -> None:
    graph = chain(nodes, reads="a")
    await graph.execute({}, run_id="r")
    nodes.is_failing = False
    result = await chain(nodes, reads="a", a=nodes.note(Other)).resume("r", store=graph.config.store)
    assert result.status == "failed"
    assert isinstance(result.errors["last"], RunCorrupt)
    again = await graph.resume("r")
    assert (again.status, again.output) == ("finished", "a")


async def test_a_condition_on_what_cannot_be_decoded_is_told_before_anything_runs(nodes: Nodes) -> None:
    edges = [
        Edge("a", "b"),
        Edge("b", "last"),
        Edge("last", "c", "conditional", condition="a.name == 'a'"),
    ]

    def graph(**others: Any) -> Graph[Any, Any]:
        return graph_of(nodes.notes("abc") | others | {"last": nodes.last()}, edges)

    first = graph()
    await first.execute({}, run_id="r")
    nodes.is_failing = False
    with pytest.raises(RunCorrupt, match="the output of 'a' is not of the type that it declares"):
        await graph(a=nodes.note(Other)).resume("r", store=first.config.store)
    result = await first.resume("r")
    assert (result.status, result.path) == ("finished", ["a", "b", "last", "c"])
    assert len([one for one in result.trace.entries if one.kind == "step_finished"]) == 4, "nothing ran twice"
