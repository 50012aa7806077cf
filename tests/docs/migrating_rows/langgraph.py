"""What users of LangGraph look for. Each function tries what is here instead."""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypedDict

import pytest
from support.migrating import Tried, assert_renamed, here_it_is

from fastroai import Edge, Graph, Inbox, MemoryRunStore, Node, Pipeline, RetryPolicy, StepContext, step
from fastroai.graphs import GraphResult, Send
from fastroai.pipelines import RunFinished

TRIED: Final = Tried()


class State(TypedDict):
    topic: str


@step
async def write(ctx: StepContext[None]) -> str:
    return f"on {ctx.get_input('topic', str)}"


@step
async def publish(ctx: StepContext[None]) -> str:
    return f"published {ctx.get_input('draft', str)}"


def essay(**options: object) -> Graph[None]:
    nodes = {"write": Node(write, writes=["draft"]), "publish": publish}
    return Graph[None]("essay", nodes=nodes, edges=[Edge("write", "publish")], **options)  # type: ignore[arg-type]


CATS: Final[State] = {"topic": "cats"}


@TRIED("`StateGraph(State)`")
async def state() -> None:
    assert (await essay(accepts=State).run(CATS)).output == "published on cats"
    with pytest.raises(Exception, match="topic"):
        await essay(accepts=State).run({"topic": 7})


@TRIED("`add_node`, `add_edge`")
@TRIED("what a node returns updates the state")
async def nodes_and_edges() -> None:
    result = await essay().run(CATS)
    assert (list(result.path), result.memory["draft"]) == (["write", "publish"], "on cats")


@TRIED("`add_conditional_edges`")
async def conditional_edges() -> None:
    @step
    async def grade(ctx: StepContext[None]) -> float:
        return 0.9

    edges = [
        Edge("grade", "publish", when="conditional", condition="score > 0.8"),
        Edge("grade", "write", when="always"),
    ]
    nodes = {"grade": Node(grade, writes=["score"]), "publish": publish, "write": write}
    result = await Graph[None]("g", nodes=nodes, edges=edges).run({**CATS, "draft": "it"})
    assert list(result.path) == ["grade", "publish"]


@step
async def begin(ctx: StepContext[None]) -> None:
    pass


@TRIED("`Annotated[list, add]`")
async def reducers() -> None:
    @step
    async def note(ctx: StepContext[None]) -> str:
        return ctx.step_id

    nodes = {"begin": begin, "one": Node(note, writes=["notes"]), "two": Node(note, writes=["notes"])}
    edges = [Edge("begin", "one"), Edge("begin", "two")]
    result = await Graph[None]("g", nodes=nodes, edges=edges, reducers={"notes": "append"}).run()
    assert sorted(result.memory["notes"]) == ["one", "two"]


@TRIED("`Send` to a node for each item")
async def sends() -> None:
    @step
    async def split(ctx: StepContext[None]) -> list[Send]:
        return [Send("grade", {"text": text}) for text in ("a", "b")]

    @step
    async def grade(ctx: StepContext[None]) -> str:
        return ctx.get_input("text", str).upper()

    nodes = {"split": split, "grade": Node(grade, writes=["grades"])}
    graph = Graph[None](
        "g", nodes=nodes, edges=[Edge("split", "grade", when="send")], reducers={"grades": "append"}
    )
    assert sorted((await graph.run()).memory["grades"]) == ["A", "B"]


@TRIED("a checkpointer, and `thread_id`")
@TRIED("`get_state`, `get_state_history`")
async def stores() -> None:
    store = MemoryRunStore()
    await essay().run(CATS, run_id="thread", store=store)
    assert (await essay().get_state("thread", store=store)).status == "finished"
    assert "write" in (await store.trace("thread")).explain()


@TRIED("`invoke(None, config)` after a failure")
async def resumed() -> None:
    store, fails = MemoryRunStore(), [True]

    @step(retries=0)
    async def fragile(ctx: StepContext[None]) -> str:
        if fails:
            fails.clear()
            raise ValueError("the first time")
        return "done"

    graph = Graph[None]("g", nodes={"write": write, "fragile": fragile}, edges=[Edge("write", "fragile")])
    assert (await graph.run(CATS, run_id="thread", store=store)).status == "failed"
    assert (await graph.resume("thread", store=store)).output == "done"


@TRIED("`interrupt(…)`, `Command(resume=…)`")
async def interrupts() -> None:
    store = MemoryRunStore()

    @step
    async def asks(ctx: StepContext[None]) -> bool:
        return await ctx.ask("Publish?", bool)

    graph = Graph[None]("g", nodes={"asks": asks}, edges=[])
    for run_id in ("one", "two"):
        assert (await graph.run(run_id=run_id, store=store)).status == "paused"
    by_run = {question.run_id: question.id for question in await Inbox(store).list()}
    await Inbox(store).answer(by_run["one"], True)
    assert (await graph.resume("one", store=store)).output is True
    assert (await graph.resume("two", answers={by_run["two"]: False}, store=store)).output is False


@TRIED("`interrupt_before=[…]`, `interrupt_after=[…]`")
async def pauses() -> None:
    store = MemoryRunStore()
    graph = essay(pause_nodes=["write"])
    paused: GraphResult = await graph.run(CATS, run_id="thread", store=store)
    assert paused.status == "paused"
    (question,) = await graph.questions("thread", store=store)
    assert question.question == "on cats", "the node has run"
    resumed = await graph.resume("thread", input="on dogs", store=store)
    assert resumed.output == "published on dogs"

    @step
    async def approve(ctx: StepContext[None]) -> str:
        return "approved" if await ctx.ask("Go on?", bool) else "refused"

    asks = Graph[None]("g", nodes={"approve": approve}, edges=[])
    before = await asks.run(run_id="before", store=store)
    assert before.status == "paused"
    answers = {before.questions[0].id: True}
    assert (await asks.resume("before", answers=answers, store=store)).output == "approved"


@TRIED("`update_state`, and continuing from an earlier checkpoint")
async def forks() -> None:
    store = MemoryRunStore()
    await essay().run(CATS, run_id="thread", store=store)
    other = await essay().fork("thread", at="publish", inputs={"draft": "another"}, store=store)
    assert other.output == "published another"


@TRIED("`stream_mode=…`")
async def streams() -> None:
    store = MemoryRunStore()
    async with essay().stream(CATS, run_id="thread", store=store) as stream:
        events = [event async for event in stream]
    assert isinstance(events[-1], RunFinished)
    facts = [fact async for _, fact in essay().follow("thread", store=store)]
    assert isinstance(facts[-1], RunFinished)


@TRIED("`recursion_limit`")
async def loops() -> None:
    nodes = {"begin": begin, "again": Node(begin, max_visits=2), "end": begin}
    edges = [
        Edge("begin", "again"),
        Edge("again", "end", when="conditional", condition="never == 1"),
        Edge("again", "again", when="always"),
    ]
    for max_steps, visits in ((10, 2), (2, 1)):
        stopped = await Graph[None]("g", nodes=nodes, edges=edges, max_steps=max_steps).run({"never": 0})
        assert list(stopped.path) == ["begin", *["again"] * visits]


@TRIED("`RetryPolicy`, node timeouts")
async def retries() -> None:
    @step(retries=1, retry_delay=0, timeout=0.5)
    async def hangs_once(ctx: StepContext[None]) -> int:
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return ctx.attempt

    assert (await Graph[None]("g", nodes={"hangs": hangs_once}, edges=[]).run()).output == 2


@TRIED("`context_schema`, `Runtime.context`")
async def deps() -> None:
    @step
    async def reads(ctx: StepContext[str]) -> str:
        return ctx.deps

    assert (await Graph[str]("g", nodes={"reads": reads}, edges=[]).run(deps="Mia")).output == "Mia"


@TRIED("a subgraph")
async def subgraphs() -> None:
    outer = Graph[None]("outer", nodes={"essay": essay().as_step()}, edges=[])
    assert (await outer.run(CATS)).output == "published on cats"


@TRIED("`from fastroai import StateGraph`, `END`, `interrupt`, …")
def names() -> None:
    assert_renamed(
        StateGraph="Graph(",
        START="Graph(entry=",
        END="Graph(terminals=",
        interrupt="StepContext.ask(",
        MemorySaver="MemoryRunStore()",
    )


@TRIED("`graph.compile()`, `invoke`, `ainvoke`, `astream`")
async def calls() -> None:
    for door in (essay(), Pipeline("p", {"write": write})):
        untyped: Any = door
        for name, here in {"invoke": "run_sync(", "ainvoke": "run(", "astream": "stream("}.items():
            with pytest.raises(AttributeError, match=here_it_is(here)):
                getattr(untyped, name)
            assert callable(getattr(untyped, here[:-1]))
    compiled: Any = essay()
    with pytest.raises(AttributeError, match=here_it_is("left out")):
        compiled.compile()


@TRIED("`RetryPolicy(max_attempts=3, initial_interval=0.5)`")
def retry_policies() -> None:
    untyped: Any = RetryPolicy
    for name, here in {"max_attempts": "max_retries=", "initial_interval": "backoff="}.items():
        with pytest.raises(TypeError, match=here_it_is(here)):
            untyped(**{name: 3})
    assert RetryPolicy(max_retries=2, backoff=0.5).backoff == 0.5


@TRIED("`checkpointer=`, `recursion_limit=`, `interrupt_before=` of a graph")
def options() -> None:
    for name, here in {
        "checkpointer": "config=PipelineConfig(store=…)",
        "recursion_limit": "max_steps=",
        "interrupt_before": "ctx.ask(…)",
    }.items():
        with pytest.raises(TypeError, match=here_it_is(here)):
            essay(**{name: 3})
