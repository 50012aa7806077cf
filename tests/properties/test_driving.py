"""Runs that are driven from outside have the facts of live runs, and no call is cut off half-way."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.faulty_store import FaultyStore, Write
from support.schedules import Schedule, schedules

from fastroai.errors import RunConflict, RunExists, StepExecutionError
from fastroai.graphs import Edge, Graph, Node
from fastroai.graphs.facts import EdgesResolved, ValueWritten
from fastroai.pipelines import Pipeline, PipelineConfig, StepConfig, StepContext, step
from fastroai.runs.driving import DrivenRuns
from fastroai.runtime.facts import (
    AnswerGiven,
    AnyFact,
    QuestionAsked,
    RunFinished,
    RunResumed,
    RunStarted,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepSkipped,
    StepStarted,
)
from fastroai.store import MemoryRunStore, RunHistory

REPORTED = (StepFinished, StepFailed, StepCancelled, QuestionAsked, AnswerGiven)


def told(fact: AnyFact) -> object:
    """What two runs that did the same have in common: no ids, no times."""
    match fact:
        case RunStarted() | RunResumed():
            return fact.kind, fact.inputs, fact.definition
        case StepStarted() | StepSkipped():
            return fact.kind, fact.place, fact.branch, fact.cause
        case StepFinished():
            return fact.kind, fact.place, fact.branch, fact.output, fact.conversation
        case StepFailed():
            return fact.kind, fact.place, fact.branch, fact.failure
        case StepCancelled():
            return fact.kind, fact.place, fact.branch, fact.cause
        case QuestionAsked():
            return fact.kind, fact.place, fact.question
        case AnswerGiven():
            return fact.kind, fact.place, fact.answer
        case EdgesResolved():
            return fact.kind, fact.place, fact.branch, fact.edges, fact.after
        case RunFinished():
            return fact.kind, fact.status, fact.resume_at
        case _:
            return None


async def facts_of(store: Any, run_id: str) -> Sequence[AnyFact]:
    return (await RunHistory(store).trace(run_id)).entries


def shown(facts: Sequence[AnyFact]) -> list[object]:
    return [one for fact in facts if (one := told(fact)) is not None]


async def drive(runs: DrivenRuns, run_id: str, facts: Sequence[AnyFact]) -> None:
    """Report what a run on record has come to, in that order."""
    opened = facts[0]
    assert isinstance(opened, RunStarted)
    state = await runs.begin(opened.inputs, run_id=run_id)
    written: defaultdict[str, dict[str, object]] = defaultdict(dict)
    for fact in facts:
        if isinstance(fact, ValueWritten):
            written[fact.place][fact.key] = fact.value
        if isinstance(fact, REPORTED):
            given = replace(fact, branch="", conversation=None) if isinstance(fact, StepFinished) else fact
            if not isinstance(given, AnswerGiven):
                given = replace(given, written=written.pop(f"{fact.place}@{fact.attempt}", {}))
            state = await runs.report(run_id, given, expecting=state.revision)


def pipeline_of(schedule: Schedule) -> Pipeline[Any, Any]:
    def made(name: str) -> Any:
        @step
        async def works(ctx: StepContext[Any]) -> list[str]:
            for _ in range(schedule.seconds[name]):
                await asyncio.sleep(0)
            if name in schedule.failing:
                raise ValueError(name)
            return [name, *ctx.dependencies]

        return works

    return Pipeline(
        "p",
        {name: made(name) for name in schedule.needs},
        schedule.needs,
        output_step=next(iter(schedule.needs)),
        config=PipelineConfig(max_concurrency=schedule.limit),
        step_configs={name: StepConfig(on_error="continue") for name in schedule.exempt},
    )


@settings(max_examples=examples(30))
@given(schedules(size=8))
def test_a_driven_pipeline_has_the_facts_of_a_live_one(schedule: Schedule) -> None:
    async def run() -> None:
        store, pipeline = MemoryRunStore(), pipeline_of(schedule)
        try:
            await pipeline.execute({"n": 1}, run_id="live", store=store)
        except StepExecutionError:
            assert schedule.stopping
        live = await facts_of(store, "live")
        await drive(pipeline.driven(store=store), "driven", live)
        driven = await facts_of(store, "driven")
        assert shown(driven) == shown(live)
        assert pipeline.replay(await RunHistory(store).trace("driven")) is None

    asyncio.run(run())


def graph_of(
    turns: int, waits: Sequence[int], fails: bool, on_failure: Any, limit: int | None
) -> Graph[Any, Any]:
    """With a loop, a fork, a failure that is handled or not, values written on the way, and a question."""

    def made(name: str, number: int) -> Any:
        @step(retries=0)
        async def works(ctx: StepContext[Any]) -> dict[str, Any]:
            for _ in range(waits[number]):
                await asyncio.sleep(0)
            ctx.write("way", name)
            if fails and name == "c":
                raise ValueError(name)
            return {"turn": ctx.visit}

        return works

    @step
    async def asks(ctx: StepContext[Any]) -> str:
        return "sure?"

    names = ("count", "b", "c", "d", "mend", "join")
    nodes: dict[str, Any] = {
        name: Node(made(name, number), writes=["turn", "way"]) for number, name in enumerate(names)
    }
    nodes["ask"] = asks
    edges = [
        Edge("count", "count", "conditional", f"turn < {turns}"),
        Edge("count", "b", "conditional", f"turn >= {turns}"),
        Edge("b", "c"),
        Edge("b", "d"),
        Edge("c", "mend", "on_failure"),
        Edge("c", "join"),
        Edge("mend", "join"),
        Edge("d", "join"),
        Edge("join", "ask"),
    ]
    if on_failure is not None:
        edges = [edge for edge in edges if "mend" not in (edge.source, edge.target)]
        del nodes["mend"]
    return Graph(
        "g",
        nodes=nodes,
        edges=edges,
        entry="count",
        pause_nodes=["ask"],
        on_branch_failure=on_failure or "fail_all",
        max_concurrency=limit,
    )


@settings(max_examples=examples(30))
@given(
    st.integers(1, 3),
    st.lists(st.integers(0, 4), min_size=6, max_size=6),
    st.booleans(),
    st.sampled_from([None, "fail_all", "continue_others", "wait_all"]),
    st.none() | st.integers(1, 2),
)
def test_a_driven_graph_has_the_facts_of_a_live_one(
    turns: int, waits: list[int], fails: bool, on_failure: Any, limit: int | None
) -> None:
    async def run() -> None:
        store, graph = MemoryRunStore(), graph_of(turns, waits, fails, on_failure, limit)
        result = await graph.run({"n": 1}, run_id="live", store=store)
        if result.status == "paused":
            await graph.resume("live", input="yes", store=store)
        live = await facts_of(store, "live")
        await drive(graph.driven(store=store), "driven", live)
        driven = await facts_of(store, "driven")
        assert shown(driven) == shown(live)
        assert graph.replay(await RunHistory(store).trace("driven")) is None

    asyncio.run(run())


# --- calls that are cut off ---


class Died(BaseException):
    """The process of a driver."""


@pytest.mark.parametrize("happened", [False, True])
@pytest.mark.parametrize("number", range(1, 28))
async def test_a_run_whose_driver_died_at_any_write_is_driven_on(number: int, happened: bool) -> None:
    """Each call is made again by another driver, who first reads how far the run is."""
    store = FaultyStore()
    died = False

    def die(write: Write) -> None:
        nonlocal died
        if write.number == number:
            died = True
            raise Died

    if happened:
        store.after = die
    else:
        store.before = die

    async def once_more(call: Any) -> Any:
        try:
            return await call()
        except Died:
            return await call()

    runs = graph_of(1, [0] * 6, False, None, None).driven(store=store)

    async def begin() -> None:
        try:
            await runs.begin({"n": 1}, run_id="r")
        except RunExists:
            assert died

    await once_more(begin)
    reports: list[AnyFact] = [
        *(StepFinished(name, {"turn": 1, "way": name}) for name in ("count", "b", "d", "c", "join")),
        QuestionAsked("ask", "sure?"),
        AnswerGiven("ask", "yes"),
    ]
    for fact in reports:

        async def report(fact: Any = fact) -> None:
            state = await runs.state("r")
            known = {due.step_id for due in state.due} | {node for node, _ in state.questions}
            if fact.step_id in known and not (isinstance(fact, QuestionAsked) and state.questions):
                await runs.report("r", fact, expecting=state.revision)

        await once_more(report)
    state = await runs.state("r")
    assert state.finish is not None
    assert state.finish.status == "finished"
    facts = await facts_of(store, "r")
    assert [fact.step_id for fact in facts if isinstance(fact, StepFinished)] == [
        "count",
        "b",
        "d",
        "c",
        "join",
    ]
    assert (await RunHistory(store).summary("r")).status == "finished"
    assert [run.run_id for run in await RunHistory(store).list(pipeline="g", limit=3)] == ["r"]
    assert died == (len(store.writes) >= number)


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=40))
def test_of_drivers_that_overtake_each_other_each_report_has_one_winner(
    schedule: list[tuple[int, bool]],
) -> None:
    """Three drivers read and report in any order; what was read too long ago is refused."""

    async def run() -> None:
        store = MemoryRunStore()
        pipeline = pipeline_of(
            Schedule(
                needs={"a": (), "b": (), "c": ("a",), "d": ("a", "b"), "e": ("c", "d")},
                seconds={},
                failing=frozenset(),
                exempt=frozenset(),
                limit=None,
            )
        )
        drivers = [pipeline.driven(store=store) for _ in range(3)]
        begun = await drivers[0].begin(run_id="r")
        states = [begun] * 3
        newest, won = begun.revision, 0
        for number, reads in schedule:
            state = states[number]
            if reads or not state.due:
                states[number] = await drivers[number].state("r")
                continue
            fact = StepFinished(state.due[-1].step_id, [f"of driver {number}"])
            try:
                states[number] = await drivers[number].report("r", fact, expecting=state.revision)
            except RunConflict:
                assert state.revision < newest
            else:
                assert state.revision == newest
                newest, won = states[number].revision, won + 1
        facts = await facts_of(store, "r")
        assert len(facts) == newest
        assert len({fact.step_id for fact in facts if isinstance(fact, StepFinished)}) == won
        assert pipeline.replay(await RunHistory(store).trace("r")) is None

    asyncio.run(run())
