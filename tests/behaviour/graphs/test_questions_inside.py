"""A graph with pause nodes is a step: its questions are those of the run around it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from fastroai import Edge, Graph, Inbox, Node, Pipeline, PipelineConfig, StepContext, step
from fastroai.errors import (
    AnswerRejected,
    ConfigurationError,
    RunNotFound,
    RunStatusConflict,
    StepExecutionError,
)
from fastroai.runtime.facts import PauseRequested
from fastroai.store import MemoryRunStore, SQLiteRunStore

asked: list[str] = []


class Ruling(BaseModel):
    approved: bool


class Draft(BaseModel):
    text: str


@step
async def show(ctx: StepContext) -> Draft:
    asked.append(f"{ctx.step_id} {ctx.get_input('text')}")
    return Draft(text=ctx.get_input("text"))


@step
async def tell(ctx: StepContext) -> str:
    rulings = [ctx.get_dependency_or_none(node, Ruling) for node in ("boss", "lawyer")]
    return ", ".join("yes" if ruling.approved else "no" for ruling in rulings if ruling is not None)


@pytest.fixture(autouse=True)
def nobody_was_asked() -> None:
    asked.clear()


def review() -> Graph[Any, Any, str]:
    return Graph(
        "review",
        nodes={
            "boss": Node(show, answer_type=Ruling),
            "lawyer": Node(show, answer_type=Ruling),
            "both": tell,
            "begin": tell,
        },
        edges=[Edge("begin", "boss"), Edge("begin", "lawyer"), Edge("boss", "both"), Edge("lawyer", "both")],
        pause_nodes=["boss", "lawyer"],
    )


@step
async def send(ctx: StepContext) -> str:
    return f"sent: {ctx.get_dependency('review')}"


def in_a_pipeline(store: Any) -> Pipeline[Any, Any, Any]:
    steps = {"review": review().as_step(), "send": send}
    return Pipeline("outer", steps, {"send": ["review"]}, config=PipelineConfig(store=store))


def in_a_graph(store: Any) -> Graph[Any, Any, Any]:
    nodes = {"review": review().as_step(), "send": send}
    return Graph("outer", nodes=nodes, edges=[Edge("review", "send")], config=PipelineConfig(store=store))


@pytest.mark.parametrize("outer", [in_a_pipeline, in_a_graph])
async def test_the_run_around_halts_with_the_questions_and_goes_on_with_the_answers(
    outer: Any, tmp_path: Path
) -> None:
    store = SQLiteRunStore(tmp_path / "runs.db")
    first = await outer(store).execute({"text": "Hi"}, run_id="r")
    assert (first.status, first.resume_at) == ("paused", ("review",))
    assert [one.node for one in first.questions] == ["boss", "lawyer"]
    listed = await Inbox(store).list()
    assert [one.id for one in listed] == [one.id for one in first.questions]
    assert [one.question for one in first.questions] == [{"text": "Hi"}] * 2
    assert listed[0].answer_schema == Ruling.model_json_schema() == first.questions[0].answer_schema

    with pytest.raises(AnswerRejected):
        await Inbox(store).answer(listed[0].id, {"approved": "perhaps"})
    assert await Inbox(store).answer(listed[0].id, {"approved": True}) is False
    second = await outer(store).resume("r")
    assert [one.node for one in second.questions] == ["lawyer"]
    assert [one.node for one in await Inbox(store).list()] == ["lawyer"]
    last = await outer(store).resume("r", answers={second.questions[0].id: {"approved": False}})
    assert last.output == "sent: yes, no"
    assert asked == ["boss Hi", "lawyer Hi"], "each question is asked once"
    assert last.trace.replay(outer(store)) is None
    await store.aclose()


async def test_the_questions_of_a_run_are_told_wherever_they_are_asked() -> None:
    store = MemoryRunStore()
    graph = in_a_graph(store)
    await graph.run({"text": "Hi"}, run_id="r")
    assert [one.node for one in await graph.questions("r")] == ["boss", "lawyer"]
    with pytest.raises(ConfigurationError, match="waits for no answer"):
        await graph.resume("r", input={"approved": True})
    assert (await graph.resume("r")).status == "paused"


async def test_two_graphs_deep_and_in_what_was_started_by_hand() -> None:
    store = MemoryRunStore()

    @step
    async def by_hand(ctx: StepContext) -> str:
        result = await review().run({"text": ctx.get_input("text")})
        return str(result.output)

    middle = Graph[Any, Any, str](
        "middle", nodes={"deep": review().as_step(), "by_hand": by_hand}, edges=[Edge("deep", "by_hand")]
    )
    pipeline = Pipeline[Any, Any, str](
        "outer", {"middle": middle.as_step()}, config=PipelineConfig(store=store)
    )
    result = await pipeline.execute({"text": "Hi"}, run_id="r")
    for _ in range(2):
        assert [one.node for one in result.questions] == ["boss", "lawyer"]
        answers = {one.id: {"approved": True} for one in result.questions}
        result = await pipeline.resume("r", answers=answers)
    assert result.output == "yes, yes"
    assert len(asked) == 4


async def test_without_a_store_nobody_could_answer() -> None:
    with pytest.raises(StepExecutionError, match="a store that keeps the run"):
        await in_a_pipeline(None).execute({"text": "Hi"})


async def test_an_inner_question_is_asked_anew_at_each_visit_of_a_loop() -> None:
    @step
    async def count(ctx: StepContext) -> dict[str, Any]:
        return {"text": f"draft {ctx.visit + 1}", "again": ctx.visit < 2}

    graph = Graph[Any, Any, Any](
        "loop",
        nodes={"review": review().as_step(), "count": Node(count, writes=["text", "again"]), "send": send},
        edges=[
            Edge("review", "count"),
            Edge("count", "review", "conditional", "again"),
            Edge("count", "send", "always"),
        ],
        entry="review",
    )
    store = MemoryRunStore()
    result = await graph.run({"text": "draft 1"}, run_id="r", store=store)
    while result.status == "paused":
        answers = {one.id: {"approved": True} for one in result.questions}
        result = await graph.resume("r", store=store, answers=answers)
    assert asked == ["boss draft 1", "lawyer draft 1", "boss draft 2", "lawyer draft 2"]
    assert result.output == "sent: yes, yes"


async def test_a_pause_that_comes_too_late_for_a_run_that_an_answer_has_ended_is_replayed() -> None:
    @step
    async def approve(ctx: StepContext) -> str:
        return "ready?"

    desk: Graph[Any, Any, Any] = Graph("desk", nodes={"approve": approve}, edges=[], pause_nodes=["approve"])
    store = MemoryRunStore()
    paused = await desk.run(run_id="r", store=store)
    await Inbox(store).answer(paused.questions[0].id, "yes")
    resumed = asyncio.ensure_future(desk.resume("r", store=store))
    while not resumed.done():
        await asyncio.sleep(0)
        with suppress(RunStatusConflict, RunNotFound):
            await desk.pause("r")
    result = await resumed
    assert result.status == "finished"
    assert [fact for fact in result.trace.entries if isinstance(fact, PauseRequested)], (
        "it came in time to be noted"
    )
    assert result.trace.replay(desk) is None
    assert (await desk.resume("r", store=store)).trace.replay(desk) is None
