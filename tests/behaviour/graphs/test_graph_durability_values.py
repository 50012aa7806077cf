"""What a run of a graph stores: what has no form in JSON fails its node, and a codec seals all of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from support.counted_nodes import Counted
from support.faulty_store import everything_in

from fastroai import FastroAgent, PipelineConfig, StepContext
from fastroai.errors import RunNotFound, ValueNotStorable
from fastroai.graphs import Edge, Graph, Node
from fastroai.store import MemoryRunStore, RunHistory, SQLiteRunStore

DAY = date(2026, 1, 2)


@pytest.fixture
def counted() -> Counted:
    return Counted()


def mended(counted: Counted, bad: Any, **options: Any) -> Graph[Any, Any]:
    """`bad` has retries, and an edge that handles its failure."""
    edges = [Edge("bad", "mend", "on_failure"), Edge("bad", "end", "on_success"), Edge("mend", "end")]
    nodes = {"bad": bad, **counted.nodes("mend", "end")}
    return Graph("g", nodes=nodes, edges=edges, **options)


async def gives_day(ctx: StepContext[Any]) -> Any:
    return {"when": {"due": DAY}}


async def writes_day(ctx: StepContext[Any]) -> Any:
    ctx.write("when", {"due": DAY})


class Holder:
    """Nothing that JSON knows."""


@pytest.mark.parametrize(
    ("does", "says"),
    [
        (gives_day, "the output of node 'bad' cannot be stored: date at when.due"),
        (writes_day, "'when', which node 'bad' wrote, cannot be stored: date at due"),
    ],
)
async def test_a_node_whose_values_cannot_be_stored_fails_at_once_and_its_edges_say_what_comes(
    counted: Counted, does: Any, says: str
) -> None:
    graph = mended(counted, counted.node("bad", does, retries=3, retry_delay=0.0))
    result = await graph.run(store=MemoryRunStore())
    assert (result.status, result.quality, result.path) == ("finished", "degraded", ["bad", "mend", "end"])
    assert counted.take() == {"bad": 1, "mend": 1, "end": 1}, "trying again would not change it"
    assert isinstance(result.errors["bad"], ValueNotStorable)
    assert says in str(result.errors["bad"])
    assert (await graph.run()).path == ["bad", "end"], "without a store nothing has to be stored"


async def test_a_question_that_cannot_be_stored_fails_its_node(counted: Counted) -> None:
    graph = mended(counted, counted.node("bad", gives_day), pause_nodes=["bad"])
    result = await graph.run(store=MemoryRunStore())
    assert result.path == ["bad", "mend", "end"]
    assert "the question of node 'bad' cannot be stored: date at when.due" in str(result.errors["bad"])


async def test_an_answer_that_cannot_be_stored_is_refused_and_the_question_stays_open(
    counted: Counted,
) -> None:
    store = MemoryRunStore()
    graph = mended(counted, counted.node("bad"), pause_nodes=["bad"], config=PipelineConfig(store=store))
    await graph.run(run_id="r")
    before = await everything_in(store)
    with pytest.raises(ValueNotStorable, match="the answer to node 'bad' cannot be stored: date at due"):
        await graph.resume("r", input={"due": DAY})
    assert await everything_in(store) == before
    assert (await graph.resume("r", input={"due": "later"})).memory["bad"] == {"due": "later"}


async def test_an_input_that_cannot_be_stored_begins_no_run(counted: Counted) -> None:
    store = MemoryRunStore()
    graph = mended(counted, counted.node("bad"), config=PipelineConfig(store=store))
    with pytest.raises(ValueNotStorable, match="input 'when' cannot be stored: date at due"):
        await graph.run({"when": {"due": DAY}}, run_id="r")
    assert await everything_in(store) == {}
    with pytest.raises(RunNotFound):
        await graph.resume("r")


async def test_a_tool_result_that_cannot_be_stored_fails_the_node_that_asked_for_it(counted: Counted) -> None:
    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) > 1:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("hold", {})])

    def hold() -> Any:
        return Holder()

    agent = FastroAgent(FunctionModel(respond), tools=[hold])
    graph = mended(counted, agent.as_step("hold it"))
    result = await graph.run(store=MemoryRunStore())
    assert result.path == ["bad", "mend", "end"]
    error = result.errors["bad"]
    assert isinstance(error, ValueNotStorable), error
    assert "Holder" in str(error)


# --- a codec ---


@asynccontextmanager
async def aclosing_store(folder: Path) -> AsyncIterator[SQLiteRunStore]:
    store = SQLiteRunStore(folder / "runs.db")
    yield store
    await store.aclose()


def everything_below(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


class Reversed:
    def encode(self, payload: bytes) -> bytes:
        return payload[::-1]

    decode = encode


class Verdict(BaseModel):
    text: str


SECRET = "Elderberry"


async def talk(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Calls the tool once, and says its secret; as decider, decides with a secret reason."""
    if info.output_tools:
        said = {"reasoning": f"{SECRET} is a reason", "target": "ask"}
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, said)])
    if not any(part.part_kind == "tool-return" for part in messages[-1].parts):
        return ModelResponse(parts=[ToolCallPart("look", {})])
    return ModelResponse(parts=[TextPart(f"{SECRET} was said")])


async def test_with_a_codec_nothing_of_the_data_is_in_the_file_in_clear(
    counted: Counted, tmp_path: Path
) -> None:
    async def look() -> str:
        return f"{SECRET} was looked up"

    async def write(ctx: StepContext[Any]) -> dict[str, Any]:
        ctx.write("early", f"{SECRET} early")
        assert SECRET in ctx.get_input("given")
        return {"late": f"{SECRET} late", "level": 2}

    async def fail(ctx: StepContext[Any]) -> None:
        raise ValueError(f"{SECRET} is wrong")

    async def ask(ctx: StepContext[Any]) -> str:
        return f"is {SECRET} fine?"

    async def end(ctx: StepContext[Any]) -> str:
        return f"{SECRET}: {ctx.get_dependency('ask', Verdict).text}"

    agent = FastroAgent(FunctionModel(talk), tools=[look])
    nodes = {
        "write": Node(counted.node("write", write), writes=["early", "late", "level"]),
        "agent": agent.as_step(f"what of {SECRET}?"),
        "fail": counted.node("fail", fail),
        "decided": counted.node("decided"),
        "ask": Node(counted.node("ask", ask), answer_type=Verdict),
        "end": counted.node("end", end),
    }
    edges = [
        Edge("write", "agent", "conditional", f"late == 'no {SECRET[:4]}'"),
        Edge("write", "agent", "conditional", "late != 'none' and level == 2"),
        Edge("agent", "fail"),
        Edge("fail", "decided", "on_failure"),
        Edge("decided", "ask", "llm_decide"),
        Edge("decided", "end", "llm_decide", fallback=True),
        Edge("ask", "end"),
    ]
    codec = Reversed()
    async with aclosing_store(tmp_path) as store:
        graph = Graph(
            "sealed",
            nodes=nodes,
            edges=edges,
            decider=agent,
            pause_nodes=["ask"],
            config=PipelineConfig(store=store, codec=codec),
        )
        first = await graph.run({"given": f"{SECRET} given"}, run_id="r")
        assert first.status == "paused"
        result = await graph.resume("r", input=Verdict(text=f"{SECRET} approved"))
        assert result.output == f"{SECRET}: {SECRET} approved"
        assert result.path == ["write", "agent", "fail", "decided", "ask", "end"]
        trace = await RunHistory(store, codec=codec).trace("r")
        sealed = await RunHistory(store).trace("r")
    assert SECRET in trace.to_json()
    for told in (f"{SECRET} given", f"{SECRET} late", f"{SECRET} approved", f"{SECRET} is wrong"):
        assert told in trace.to_json(), told
    assert SECRET not in sealed.to_json()
    assert SECRET not in sealed.explain()
    assert "sealed" in sealed.explain()
    stored = everything_below(tmp_path)
    assert b"'agent'" in stored, "names are not data"
    assert SECRET.encode() not in stored
