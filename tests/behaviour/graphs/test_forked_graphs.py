"""Forks of runs of graphs, and of runs with others inside: what was before a point is kept, at no cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fastroai.errors import ConfigurationError, ContractViolation, RunDefinitionChanged, RunExists
from fastroai.graphs import Edge, Graph, Node
from fastroai.pipelines import BasePipeline, Pipeline, StepContext, step
from fastroai.store import MemoryRunStore, RunHistory, RunStore, SQLiteRunStore

ran: list[str] = []


def noted(name: str, *, cost: str = "0.5") -> Any:
    @step
    async def one(ctx: StepContext) -> str:
        ran.append(name)
        ctx.record_usage(model="printer", cost_usd=cost)
        return f"{name} of {ctx.get_input('topic', str)}"

    return one


def essay() -> Graph[Any, Any]:
    """Drafts until the third draft, then prints."""

    @step
    async def draft(ctx: StepContext) -> dict[str, Any]:
        ran.append(f"draft#{ctx.visit}")
        ctx.record_usage(model="printer", cost_usd="0.5")
        before = ctx.get_input("text", str)
        return {"draft": f"{before}{ctx.get_input('letter', str)}", "drafts": ctx.visit}

    @step
    async def review(ctx: StepContext) -> str:
        ran.append(f"review#{ctx.visit}")
        return ctx.get_input("draft", str)

    @step
    async def publish(ctx: StepContext) -> str:
        ran.append("publish")
        return f"{ctx.get_input('text', str)}!"

    return Graph(
        "essay",
        nodes={
            "draft": Node(draft, writes=["draft", "drafts"]),
            "review": Node(review, writes=["text"]),
            "publish": publish,
        },
        edges=[
            Edge("draft", "review"),
            Edge("review", "draft", when="conditional", condition="drafts < 3"),
            Edge("review", "publish", when="conditional", condition="drafts >= 3"),
        ],
        entry="draft",
    )


START = {"text": "", "letter": "a"}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RunStore]:
    ran.clear()
    store = SQLiteRunStore(tmp_path / "runs.db")
    yield store
    await store.aclose()


async def essay_on_record(store: RunStore) -> Any:
    result = await essay().run(START, run_id="e", store=store)
    assert result.output == "aaa!"
    ran.clear()
    return result


async def test_a_fork_has_the_path_before_a_visit_and_goes_on_from_there(store: RunStore) -> None:
    original = await essay_on_record(store)
    forked = await essay().fork("e", at="draft#2", inputs={"letter": "b"}, new_run_id="f", store=store)
    assert forked.output == "abb!"
    assert ran == ["draft#2", "review#2", "draft#3", "review#3", "publish"]
    assert forked.path == original.path
    assert forked.visits == original.visits
    assert forked.usage.cost_usd == 1
    summary = await RunHistory(store).summary("f")
    assert (summary.forked_from, summary.status, summary.cost_usd) == ("e", "finished", 1)
    assert (await RunHistory(store).summary("e")).cost_usd == original.usage.cost_usd
    trace = await RunHistory(store).trace("f")
    assert trace.replay(essay()) is None
    assert {fact.run_id for fact in trace.entries} == {"f"}


async def test_a_name_is_the_last_visit_to_a_node(store: RunStore) -> None:
    await essay_on_record(store)
    forked = await essay().fork("e", at="draft", inputs={"text": "x"}, store=store)
    assert (forked.output, ran) == ("xa!", ["draft#3", "review#3", "publish"])
    assert forked.run_id.startswith("e-fork-")


async def test_the_first_visit_begins_anew(store: RunStore) -> None:
    await essay_on_record(store)
    forked = await essay().fork("e", at="draft#1", inputs={"letter": "z"}, store=store)
    assert (forked.output, ran[0], len(ran)) == ("zzz!", "draft#1", 7)


async def test_an_output_that_is_replaced_decides_what_comes_next(store: RunStore) -> None:
    await essay_on_record(store)
    edited = {"draft": "edited", "drafts": 3}
    forked = await essay().fork("e", outputs={"draft#1": edited}, new_run_id="f", store=store)
    assert (forked.output, ran) == ("edited!", ["review#1", "publish"])
    assert [*forked.path] == ["draft", "review", "publish"]
    assert (await RunHistory(store).trace("f")).replay(essay()) is None


async def test_a_fork_is_resumed_and_forked_like_any_run(store: RunStore) -> None:
    await essay_on_record(store)
    await essay().fork("e", at="draft#3", inputs={"letter": "b"}, new_run_id="f", store=store)
    ran.clear()
    again = await essay().resume("f", store=store)
    assert (again.output, ran) == ("aab!", [])
    twice = await essay().fork("f", at="review#3", inputs={"draft": "c"}, new_run_id="g", store=store)
    assert (twice.output, ran) == ("c!", ["review#3", "publish"])


async def test_a_run_that_was_resumed_can_be_forked_before_and_after(store: RunStore) -> None:
    fails = True

    @step
    async def shaky(ctx: StepContext) -> str:
        ran.append("shaky")
        if fails:
            raise ValueError("not today")
        return ctx.get_input("topic", str)

    def door() -> Graph[Any, Any]:
        nodes = {"first": noted("first"), "shaky": shaky, "last": noted("last")}
        return Graph("g", nodes=nodes, edges=[Edge("first", "shaky"), Edge("shaky", "last")])

    failed = await door().run({"topic": "tea"}, run_id="r", store=store)
    assert failed.status == "failed"
    fails = False
    assert (await door().resume("r", inputs={"topic": "ink"}, store=store)).output == "last of ink"
    ran.clear()
    assert (await door().fork("r", at="last", store=store)).output == "last of ink"
    assert ran == ["last"]
    ran.clear()
    forked = await door().fork("r", at="shaky", inputs={"topic": "soap"}, store=store)
    assert (forked.output, forked.outputs["shaky"], ran) == ("last of soap", "soap", ["shaky", "last"])


async def test_branches_that_had_ended_by_then_are_kept_and_others_run_again(store: RunStore) -> None:
    ended = asyncio.Event()

    @step
    async def quick(ctx: StepContext) -> str:
        ran.append("quick")
        ended.set()
        return "quick"

    @step
    async def slow(ctx: StepContext) -> str:
        ran.append("slow")
        await ended.wait()
        await asyncio.sleep(0)
        return f"slow {ctx.get_input('topic', str)}"

    def door() -> Graph[Any, Any]:
        return Graph(
            "g",
            nodes={
                "split": noted("split"),
                "quick": quick,
                "after": noted("after"),
                "slow": slow,
                "join": noted("join"),
            },
            edges=[
                Edge("split", "quick"),
                Edge("split", "slow"),
                Edge("quick", "after"),
                Edge("after", "join"),
                Edge("slow", "join"),
            ],
        )

    await door().run({"topic": "tea"}, run_id="r", store=store)
    ran.clear()
    assert (await door().fork("r", at="join", store=store)).output == "join of tea"
    assert ran == ["join"]
    ran.clear()
    forked = await door().fork("r", at="quick", inputs={"topic": "ink"}, store=store)
    assert (forked.outputs["slow"], sorted(ran)) == ("slow ink", ["after", "join", "quick", "slow"])


async def test_an_answer_is_kept_and_a_pause_node_asks_again(store: RunStore) -> None:
    @step
    async def ask(ctx: StepContext) -> str:
        return "which one?"

    def door() -> Graph[Any, Any]:
        return Graph(
            "g",
            nodes={"ask": ask, "print": noted("print")},
            edges=[Edge("ask", "print")],
            pause_nodes=["ask"],
        )

    await door().run({"topic": "tea"}, run_id="r", store=store)
    await door().resume("r", input="the first", store=store)
    ran.clear()
    forked = await door().fork("r", at="print", store=store)
    assert (forked.outputs["ask"], ran) == ("the first", ["print"])
    asked = await door().fork("r", at="ask", store=store)
    assert (asked.status, [one.question for one in asked.questions]) == ("paused", ["which one?"])
    assert (await door().resume(asked.run_id, input="the other", store=store)).outputs["ask"] == "the other"
    with pytest.raises(ConfigurationError, match="fork with at='ask', and answer the new run"):
        await door().fork("r", outputs={"ask": "the other"}, store=store)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"at": "drat"}, "Did you mean 'draft'"),
        ({"at": "draft#9"}, "draft#1, review#1"),
        ({}, "the step before which"),
        ({"at": "draft", "outputs": {"review": ""}}, "the step before which"),
        (
            {"outputs": {"publish": "", "review": ""}},
            r"outputs=\['publish', 'review'\]: expected the output of one node",
        ),
        ({"outputs": ["draft"]}, "a mapping"),
    ],
)
async def test_a_point_that_is_not_on_the_path_is_refused(store: RunStore, options: Any, what: str) -> None:
    await essay_on_record(store)
    with pytest.raises(ConfigurationError, match=what):
        await essay().fork("e", store=store, **options)
    assert [run.run_id for run in await RunHistory(store).list()] == ["e"]


async def test_what_a_node_cannot_give_and_a_graph_that_has_changed_are_refused(store: RunStore) -> None:
    await essay_on_record(store)
    with pytest.raises(ContractViolation, match="draft"):
        await essay().fork("e", outputs={"draft": {"draft": "no count"}}, store=store)
    with pytest.raises(RunExists):
        await essay().fork("e", at="draft", new_run_id="e", store=store)
    other = Graph[Any, Any]("essay", nodes={"draft": noted("draft")})
    with pytest.raises(RunDefinitionChanged):
        await other.fork("e", at="draft", store=store)


# --- inside of pipelines and routers ---


class Desk(BasePipeline[None, str]):
    asked = 0

    def __init__(self) -> None:
        super().__init__("desk")
        inner = {"read": noted("read"), "side": noted("side"), "check": noted("check")}
        one = Pipeline("one", inner, {"check": ["read", "side"]})
        self.register_pipeline("one", one)
        self.register_pipeline("other", Pipeline("other", {"never": noted("never")}))

    async def route(self, inputs: Mapping[str, Any], deps: None) -> str:
        Desk.asked += 1
        return "one" if Desk.asked == 1 else "other"


async def test_a_fork_begins_inside_of_the_variant_that_was_taken() -> None:
    ran.clear()
    Desk.asked, store = 0, MemoryRunStore()
    steps = {"first": noted("first"), "write": Desk().as_step(), "last": noted("last"), "more": noted("more")}
    outer = Pipeline[Any, Any]("outer", steps, {"write": ["first"], "last": ["write"]}, output_step="last")
    await outer.run({"topic": "tea"}, run_id="r", store=store)
    assert Desk.asked == 1
    ran.clear()
    trace = await RunHistory(store).trace("r")
    places = [one.place for one in trace.entries if getattr(one, "step_id", "") == "side"]
    forked = await outer.fork("r", at=places[0], inputs={"topic": "ink"}, new_run_id="f", store=store)
    assert (forked.output, Desk.asked) == ("last of ink", 1)
    assert ran == ["side", "check", "last"]
    assert (await RunHistory(store).trace("f")).replay(outer) is None
    with pytest.raises(ConfigurationError, match="Did you mean"):
        await outer.fork("r", at="write/one/sied", store=store)


async def test_a_router_is_forked_before_it_routes() -> None:
    ran.clear()
    Desk.asked, store = 0, MemoryRunStore()
    await Desk().run({"topic": "tea"}, run_id="r", store=store)
    ran.clear()
    forked = await Desk().fork("r", at="route", store=store)
    assert (forked.output, ran, Desk.asked) == ("never of tea", ["never"], 2)


async def test_a_fork_does_not_begin_inside_of_a_graph_that_is_a_step() -> None:
    store = MemoryRunStore()
    inner = Graph[Any, Any]("inner", nodes={"read": noted("read")})
    outer = Pipeline[Any, Any]("outer", {"write": inner.as_step()})
    await outer.run({"topic": "tea"}, run_id="r", store=store)
    with pytest.raises(ConfigurationError, match="the step that runs the graph"):
        await outer.fork("r", at="write/inner/read", store=store)


async def test_a_graph_that_a_fork_runs_anew_begins_at_its_entry(store: RunStore) -> None:
    nodes = {"read": noted("read"), "sum": noted("sum")}
    inner = Graph[Any, Any]("inner", nodes=nodes, edges=[Edge("read", "sum")])
    steps = {"first": noted("first"), "write": inner.as_step()}
    outer = Pipeline[Any, Any]("outer", steps, {"write": ["first"]})
    await outer.run({"topic": "tea"}, run_id="r", store=store)
    ran.clear()
    forked = await outer.fork("r", at="write", inputs={"topic": "ink"}, store=store)
    assert (forked.output, ran) == ("sum of ink", ["read", "sum"])


async def test_a_graph_that_a_fork_runs_anew_asks_again_and_goes_on_with_the_answer(store: RunStore) -> None:
    @step
    async def ask(ctx: StepContext) -> str:
        return f"about {ctx.get_input('topic', str)}?"

    nodes = {"ask": ask, "print": noted("print")}
    inner = Graph[Any, Any]("inner", nodes=nodes, edges=[Edge("ask", "print")], pause_nodes=["ask"])
    steps = {"first": noted("first"), "write": inner.as_step()}
    outer = Pipeline[Any, Any]("outer", steps, {"write": ["first"]})
    begun = await outer.run({"topic": "tea"}, run_id="r", store=store)
    await outer.resume("r", answers={begun.questions[0].id: "yes"}, store=store)
    forked = await outer.fork("r", at="write", inputs={"topic": "ink"}, store=store)
    assert [one.question for one in forked.questions] == ["about ink?"]
    answers = {forked.questions[0].id: "no"}
    assert (await outer.resume(forked.run_id, answers=answers, store=store)).output == "print of ink"


async def test_a_place_that_cannot_be_forked_is_refused_with_those_that_can() -> None:
    store = MemoryRunStore()
    inner = Graph[Any, Any]("inner", nodes={"read": noted("read")})
    outer = Pipeline[Any, Any]("outer", {"write": inner.as_step()})
    await outer.run({"topic": "tea"}, run_id="r", store=store)
    with pytest.raises(ConfigurationError, match=r"the run has reached: 'write'\.$"):
        await outer.fork("r", at="inner/read", store=store)
    with pytest.raises(ConfigurationError, match=r"a step of this pipeline: 'write'\.$"):
        await outer.fork("r", at="other", store=store)
