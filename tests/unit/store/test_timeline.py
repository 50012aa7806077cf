"""When the steps and calls of a run worked and waited, and which of them decided how long it took."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from support.agents import paid_agent

from fastroai import Graph, MemoryRunStore, Pipeline, StepConfig, StepContext, step
from fastroai.functions import compute, flow, parallel
from fastroai.graphs import Edge
from fastroai.pipelines import PipelineResult
from fastroai.runtime import facts
from fastroai.runtime.events import BudgetWaiting, RequestWaited
from fastroai.store.reading.timeline_rows import TimelineRow
from fastroai.store.reading.trace import RunTrace

tries: list[str] = []


@step
async def quick(ctx: StepContext[Any]) -> str:
    return "quick"


@step(retries=1, retry_delay=0.001)
async def second_time(ctx: StepContext[Any]) -> str:
    tries.append("try")
    if len(tries) % 2:
        raise ConnectionError("not yet")
    return "done"


@step
async def asks(ctx: StepContext[Any]) -> str:
    return str(await ctx.ask("Really?"))


@compute()
async def double(number: int) -> int:
    await asyncio.sleep(0.002)  # those that run beside each other overlap
    return 2 * number


@flow()
async def sums(number: int) -> int:
    one, other = await parallel(double(number), double(number + 1))
    return await double(one + other)


def nested() -> Pipeline[Any, Any, str]:
    inner = Pipeline[Any, Any, str](
        "inner",
        {"again": second_time, "say": paid_agent(3, name="sayer").as_step("hello")},
        {"say": ["again"]},
    )
    return Pipeline[Any, Any, str](
        "outer",
        {"first": quick, "beside": quick, "review": inner.as_step(), "last": quick},
        {"review": ["first"], "last": ["review", "beside"]},
    )


@pytest.fixture
async def result() -> PipelineResult[str]:
    return await nested().execute({})


def rows_of(trace: RunTrace) -> dict[str, TimelineRow]:
    return {row.id: row for row in trace.timeline}


async def test_rows_are_beneath_the_rows_around_them(result: PipelineResult[str]) -> None:
    assert [(row.depth, row.kind, row.id, row.name) for row in result.trace.timeline] == [
        (0, "step", "first", "first"),
        (0, "step", "beside", "beside"),
        (0, "step", "review", "review"),
        (1, "step", "review@1/inner/again", "again"),
        (1, "step", "review@1/inner/say", "say"),
        (2, "agent", "review@1/inner/say@1:1", "sayer"),
        (0, "step", "last", "last"),
    ]


async def test_a_retry_is_two_bars_and_the_wait_between_them(result: PipelineResult[str]) -> None:
    again = rows_of(result.trace)["review@1/inner/again"]
    assert [bar.status for bar in again.bars] == ["retried", "succeeded"]
    (wait,) = again.waits
    assert (wait.what, wait.why) == ("retry", "ConnectionError: not yet")
    assert (wait.started_at, wait.ended_at) == (again.bars[0].ended_at, again.bars[1].started_at)


async def test_an_agent_call_has_its_cost(result: PipelineResult[str]) -> None:
    assert str(rows_of(result.trace)["review@1/inner/say@1:1"].usage.cost_usd) == "0.000003"


async def test_the_critical_path_goes_through_what_is_nested(result: PipelineResult[str]) -> None:
    path = result.trace.critical_path
    assert path == ("first", "review", "review@1/inner/again", "review@1/inner/say", "last")
    assert result.critical_path == tuple(place for place in path if "/" not in place)


async def test_the_critical_path_of_a_graph_has_each_visit() -> None:
    @step
    async def turn(ctx: StepContext[Any]) -> dict[str, int]:
        return {"n": ctx.visit}

    graph = Graph[Any, Any](
        "loop",
        nodes={"turn": turn, "end": quick},
        edges=[
            Edge("turn", "turn", when="conditional", condition="turn.n < 3"),
            Edge("turn", "end", when="conditional", condition="turn.n >= 3"),
        ],
        entry="turn",
    )
    assert (await graph.run()).trace.critical_path == ("turn", "turn#2", "turn#3", "end")


async def test_a_flow_has_a_row_for_each_call_of_a_function() -> None:
    store = MemoryRunStore()
    await sums.run(1, run_id="sums", store=store)
    trace = await store.trace("sums")
    body, *calls = trace.timeline
    assert (body.name, body.depth) == ("body", 0)
    assert [(row.kind, row.name, row.depth, row.status) for row in calls] == [
        ("function", "double", 1, "succeeded")
    ] * 3
    assert calls[-1].is_critical
    assert len(trace.critical_path) == 3


async def test_a_question_is_a_wait_until_it_is_answered() -> None:
    pipeline = Pipeline[Any, Any, str]("p", {"ask": asks})
    paused = await pipeline.execute({}, store=MemoryRunStore())
    (row,) = paused.trace.timeline
    assert [(wait.what, wait.ended_at) for wait in row.waits] == [("question", None)]


async def test_what_a_dead_process_left_behind_goes_on_until_the_run_is_resumed(
    result: PipelineResult[str],
) -> None:
    kinds = [entry.kind for entry in result.trace.entries]
    died = RunTrace(result.trace.entries[: kinds.index("request_sent") + 1])
    rows = rows_of(died)
    assert rows["review@1/inner/say@1:1"].status == "running"
    assert rows["review"].ended_at is None
    assert died.critical_path[-1] == "review@1/inner/say"
    assert "last" in rows


async def test_one_step_can_be_explained_by_itself(result: PipelineResult[str]) -> None:
    told = result.trace.explain("review@1/inner/again").splitlines()
    assert [line.split(" s  ")[1].split(" (")[0] for line in told] == [
        "review@1/inner/again: started, because it needs no other step",
        "review@1/inner/again: attempt 1 failed",
        "review@1/inner/again: finished at attempt 2",
    ]
    assert set(told) < set(result.trace.explain().splitlines())


async def test_a_request_that_waited_for_a_limit_has_a_wait(result: PipelineResult[str]) -> None:
    waited = [
        replace(entry, record=replace(entry.record, waited_ms=5000.0))
        if isinstance(entry, facts.RequestEnded)
        else entry
        for entry in result.trace.entries
    ]
    sent = next(entry for entry in waited if isinstance(entry, facts.RequestSent))
    why = RequestWaited(place=sent.where, waits_for="$0.02 of a budget", seconds=5.0)
    trace = RunTrace([*waited[: waited.index(sent)], why, *waited[waited.index(sent) :]])
    (wait,) = rows_of(trace)["review@1/inner/say@1:1"].waits
    assert (wait.what, wait.why) == ("limit", "$0.02 of a budget")
    assert wait.ended_at is not None
    assert (wait.ended_at - wait.started_at).total_seconds() == 5


async def test_a_request_in_line_waits_until_it_is_told_that_it_went_on(
    result: PipelineResult[str],
) -> None:
    entries = result.trace.entries
    sent = next(entry for entry in entries if isinstance(entry, facts.RequestSent))
    waiting = BudgetWaiting(
        place=sent.where, scope_path=("outer",), waits_for="$0.02 of a budget", held_by=(), advice="more"
    )
    before = [*entries[: entries.index(sent)], waiting]
    (wait,) = rows_of(RunTrace(before))["review@1/inner/say"].waits
    assert (wait.what, wait.ended_at) == ("limit", None)
    on = RequestWaited(place=sent.where, waits_for="$0.02 of a budget", seconds=1.5)
    assert rows_of(RunTrace([*before, on]))["review@1/inner/say"].waits == ()


async def test_a_run_that_went_on_after_a_failure_is_degraded() -> None:
    @step(retries=0)
    async def fails(ctx: StepContext[Any]) -> str:
        raise ValueError("no")

    shape = {"fails": fails, "quick": quick}
    going_on = Pipeline[Any, Any, str](
        "p", shape, output_step="quick", step_configs={"fails": StepConfig(on_error="continue")}
    )
    degraded = await going_on.execute({})
    clean = await nested().execute({})
    assert (degraded.trace.quality, degraded.quality) == ("degraded", "degraded")
    assert (clean.trace.quality, clean.quality) == ("clean", "clean")
    assert RunTrace(clean.trace.entries[:-1]).quality is None


async def test_a_failure_has_the_lines_of_the_users_code_that_led_to_it(result: PipelineResult[str]) -> None:
    (failed,) = RunTrace.from_json(result.trace.to_json()).failures()
    assert failed.failure is not None
    where, line = failed.failure.traceback.splitlines()
    assert where.strip().startswith(f'File "{__file__}"')
    assert line.strip() == 'raise ConnectionError("not yet")'
