"""What is on record of a run is what happened: with and without a store, whoever stops it."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
from support.agents import paid_agent

from fastroai import Budget, Graph, MemoryRunStore, Pipeline, PipelineConfig, StepConfig, StepContext, step
from fastroai.errors import BudgetExceeded, StepExecutionError, TimeLimitExceeded
from fastroai.pipelines import RunFinished, StepSkipped
from fastroai.store import RunHistory, trace_of


@step
async def greedy(ctx: StepContext) -> None:
    for _ in range(9):
        await ctx.run(paid_agent(1), "more")


@step
async def asks_twice(ctx: StepContext) -> None:
    for _ in range(2):
        await ctx.run(paid_agent(1), "more")


@step
async def fails(ctx: StepContext) -> None:
    raise ValueError("no")


@step
async def works(ctx: StepContext) -> int:
    return 1


OWN = StepConfig(budget=Budget(requests=1), on_error="continue")


async def test_a_run_has_the_same_facts_with_and_without_a_store() -> None:
    inner = Pipeline(
        "inner",
        {"fails": fails, "works": works},
        output_step="works",
        step_configs={"fails": StepConfig(on_error="continue")},
    )
    pipeline: Pipeline[Any, Any] = Pipeline(
        "p",
        {"own": asks_twice, "nested": inner.as_step(), "after": works},
        {"after": ["own"]},
        output_step="nested",
        step_configs={"own": OWN},
    )
    live = (await pipeline.execute()).trace
    kept = (await pipeline.execute(store=MemoryRunStore())).trace
    assert live.diff(kept) == ()
    assert [(one.place, one.status) for one in live.steps] == [(one.place, one.status) for one in kept.steps]
    assert live.replay(pipeline) is None
    assert kept.replay(pipeline) is None


@pytest.mark.parametrize("store", [None, MemoryRunStore()])
async def test_a_run_in_which_an_own_budget_and_then_an_outer_one_ran_out_replays(
    store: MemoryRunStore | None,
) -> None:
    pipeline: Pipeline[Any, Any] = Pipeline(
        "p",
        {"own": asks_twice, "greedy": greedy},
        {"greedy": []},
        output_step="greedy",
        config=PipelineConfig(budget=Budget(requests=4), max_concurrency=1),
        step_configs={"own": OWN},
    )
    with pytest.raises(BudgetExceeded) as caught:
        await pipeline.execute(store=store)
    trace = trace_of(caught.value)
    assert trace is not None
    assert trace.status == "failed"
    assert trace.replay(pipeline) is None


async def test_after_its_own_budget_ran_out_a_step_is_resumed_with_the_same_attempt() -> None:
    """So what it has paid for is not paid again."""
    attempts: list[int] = []

    @step
    async def own(ctx: StepContext) -> None:
        attempts.append(ctx.attempt)
        await ctx.run(paid_agent(1), "more")
        await ctx.run(paid_agent(1), "more")

    pipeline: Pipeline[Any, Any] = Pipeline(
        "p", {"own": own}, step_configs={"own": StepConfig(budget=Budget(requests=1))}
    )
    store = MemoryRunStore()
    with pytest.raises(StepExecutionError):
        await pipeline.execute(run_id="r", store=store)
    with pytest.raises(StepExecutionError):
        await pipeline.resume("r", store=store)
    assert attempts == [1, 1]


@pytest.mark.parametrize("store", [None, MemoryRunStore()])
async def test_each_step_that_a_stop_leaves_out_is_told_and_on_record(store: MemoryRunStore | None) -> None:
    pipeline: Pipeline[Any, Any] = Pipeline(
        "p", {"fails": fails, "next": works, "last": works}, {"next": ["fails"], "last": ["next"]}
    )
    seen: list[object] = []
    stream = pipeline.stream(store=store)
    with pytest.raises(StepExecutionError) as caught:
        async for event in stream:
            seen.append(event)
    skipped = [(event.step_id, event.cause) for event in seen if isinstance(event, StepSkipped)]
    assert skipped == [("next", "'fails' failed"), ("last", "'fails' failed")]
    assert isinstance(seen[-1], RunFinished)
    trace = trace_of(caught.value)
    assert trace is not None
    assert [one.step for one in trace.steps if one.status == "skipped"] == ["next", "last"]


@pytest.mark.parametrize("store", [None, MemoryRunStore()])
@pytest.mark.parametrize("kind", ["pipeline", "graph"])
async def test_the_end_of_a_failed_run_is_one_fact(kind: str, store: MemoryRunStore | None) -> None:
    told: list[object] = []
    if kind == "pipeline":
        pipeline: Pipeline[Any, Any] = Pipeline("p", {"fails": fails})
        with pytest.raises(StepExecutionError) as caught:
            async for event in pipeline.stream(run_id=kind, store=store):
                told.append(event)
        trace = trace_of(caught.value)
    else:
        stream = Graph("g", nodes={"fails": fails}).stream(run_id=kind, store=store)
        async for event in stream:
            told.append(event)
        trace = stream.result.trace
    assert trace is not None
    ended, heard = trace.ended, told[-1]
    assert isinstance(heard, RunFinished)
    assert ended is not None
    assert (ended.step_id, ended.reason, ended.failure) == (heard.step_id, heard.reason, heard.failure)
    assert ended.duration_ms == heard.duration_ms > 0
    assert ended.step_id == "fails"


@pytest.mark.parametrize("store", [None, MemoryRunStore()])
async def test_the_end_by_a_time_limit_says_how_long_the_run_was(store: MemoryRunStore | None) -> None:
    @step
    async def hangs(ctx: StepContext) -> None:
        await asyncio.Event().wait()

    pipeline: Pipeline[Any, Any] = Pipeline("p", {"hangs": hangs}, config=PipelineConfig(total_timeout=0.01))
    with pytest.raises(TimeLimitExceeded) as caught:
        await pipeline.execute(store=store)
    trace = trace_of(caught.value)
    assert trace is not None
    assert trace.ended is not None
    assert trace.ended.duration_ms >= 10


@pytest.mark.parametrize("way", ["execute", "stream"])
async def test_a_run_that_a_scope_of_anyio_cancels_ends_cancelled_on_record(way: str) -> None:
    scope = anyio.CancelScope()

    @step
    async def hangs(ctx: StepContext) -> None:
        scope.cancel()
        await asyncio.Event().wait()

    pipeline: Pipeline[Any, Any] = Pipeline("p", {"hangs": hangs})
    store = MemoryRunStore()
    with scope:
        if way == "execute":
            await pipeline.execute(run_id="r", store=store)
        else:
            async with pipeline.stream(run_id="r", store=store) as stream:
                async for _ in stream:
                    pass
    [run] = await RunHistory(store).list()
    assert run.status == "cancelled"
    assert run.lease_until is None
