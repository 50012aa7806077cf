"""How far a run is, as a function of the user is told."""

from __future__ import annotations

import logging
from decimal import Decimal
from typing import Any

import pytest
from support.agents import paid_agent

from fastroai.errors import BudgetExceeded, ConfigurationError, StepExecutionError
from fastroai.functions import compute, flow, parallel
from fastroai.graphs import Edge, Graph
from fastroai.pipelines import Pipeline, PipelineConfig, Progress, StepConfig, StepContext, step
from fastroai.store import MemoryRunStore
from fastroai.usage import Budget

agent = paid_agent(100)
broken = False


@step
async def ask(ctx: StepContext) -> str:
    return (await ctx.run(agent, "hello")).output


@step
async def think(ctx: StepContext) -> str:
    return "thought"


@step
async def fail(ctx: StepContext) -> str:
    if broken:
        raise ValueError("broken")
    return "mended"


NEEDS = {"think": ["ask"], "end": ["think"]}


async def test_progress_counts_steps_and_money_and_what_is_left() -> None:
    told = list[Progress]()
    config = PipelineConfig(budget=Budget(microcents=1_000))
    pipeline = Pipeline("desk", {"ask": ask, "think": think, "end": ask}, NEEDS, config=config)
    result = await pipeline.run(on_progress=told.append)
    assert [one.done for one in told] == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]
    first, last = told[0], told[-1]
    assert (first.name, first.run_id, first.noun, first.total) == ("desk", result.run_id, "step", 3)
    assert (first.status, first.rate, first.seconds_left, first.left_usd) == (
        "running",
        None,
        None,
        Decimal("0.001"),
    )
    assert told[1].running == ("ask",)
    assert (last.status, last.done, last.failed, last.running, last.requests) == ("finished", 3, 0, (), 2)
    assert (last.cost_usd, last.cost_complete, last.left_usd) == (Decimal("0.0002"), True, Decimal("0.0008"))
    assert last.rate == pytest.approx(3 / last.seconds)
    assert last.seconds_left == 0
    assert all(one.seconds_left == pytest.approx((3 - one.ended) / one.rate) for one in told if one.rate)


async def test_the_tightest_budget_around_counts_and_what_is_left_is_never_below_zero() -> None:
    told = list[Progress]()
    pipeline = Pipeline("desk", {"ask": ask}, config=PipelineConfig(budget=Budget(microcents=1_000)))
    await pipeline.run(on_progress=told.append, budget=Budget(microcents=150))
    assert told[-1].left_usd == Decimal("0.00005")
    with pytest.raises(BudgetExceeded):
        await pipeline.run(on_progress=told.append, budget=Budget(microcents=50))
    assert (told[-1].status, told[-1].failed, told[-1].left_usd) == ("failed", 1, Decimal("0.00005"))


async def test_failed_and_skipped_steps_are_counted_and_a_resumed_run_begins_with_what_is_done() -> None:
    global broken
    store, told = MemoryRunStore(), list[Progress]()
    pipeline = Pipeline("desk", {"ask": ask, "think": fail, "end": ask}, NEEDS)
    broken = True
    with pytest.raises(StepExecutionError):
        await pipeline.run(run_id="r", store=store, on_progress=told.append)
    last = told[-1]
    assert (last.status, last.done, last.failed, last.ended) == ("failed", 2, 1, 3), "the last one is skipped"
    told.clear()
    broken = False
    await pipeline.resume("r", store=store, on_progress=told.append)
    assert (told[0].done, told[0].failed, told[0].rate) == (2, 1, None)
    last = told[-1]
    assert (last.status, last.done, last.failed, last.total) == ("finished", 3, 0, 3)


async def test_a_step_whose_output_a_fork_replaces_is_counted_once() -> None:
    store, told = MemoryRunStore(), list[Progress]()
    pipeline = Pipeline("desk", {"ask": ask, "think": think, "end": ask}, NEEDS)
    await pipeline.run(run_id="r", store=store)
    await pipeline.fork("r", outputs={"ask": "other"}, store=store, on_progress=told.append)
    assert [told[0].done, told[-1].done, told[-1].total] == [1, 3, 3]


async def test_retries_are_not_counted() -> None:
    tries = 0

    @step
    async def flaky(ctx: StepContext) -> str:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise ConnectionError("gone")
        return "came"

    told = list[Progress]()
    pipeline = Pipeline(
        "desk", {"flaky": flaky}, step_configs={"flaky": StepConfig(retries=2, retry_delay=0)}
    )
    await pipeline.run(on_progress=told.append)
    assert (tries, told[-1].done, told[-1].failed) == (3, 1, 0)


async def test_a_graph_knows_no_total() -> None:
    told = list[Progress]()
    graph = Graph("essay", nodes={"write": think, "judge": think}, edges=[Edge("write", "judge")])
    await graph.run(on_progress=told.append)
    assert (told[-1].noun, told[-1].done, told[-1].total, told[-1].seconds_left) == ("step", 2, None, None)


async def test_a_flow_counts_calls() -> None:
    @compute
    def double(number: int) -> int:
        if number == 3:
            raise ValueError("not three")
        return 2 * number

    @flow
    async def doubled(count: int) -> int:
        answers = await parallel(*(double(one) for one in range(count)), require=0)
        return len([one for one in answers if one is not None])

    told = list[Progress]()
    await doubled.run(5, on_progress=told.append)
    last = told[-1]
    assert (last.noun, last.done, last.failed, last.total, last.status) == ("call", 4, 1, None, "finished")


async def test_a_run_with_one_step_counts_those_of_the_run_inside() -> None:
    told = list[Progress]()
    inner = Pipeline("inner", {"ask": ask, "think": think, "end": ask}, NEEDS)
    await Pipeline("outer", {"inner": inner.as_step()}).run(on_progress=told.append)
    assert (told[-1].name, told[-1].done, told[-1].total) == ("outer", 3, 3)
    two = Pipeline("two", {"inner": inner.as_step(), "think": think}, {"think": ["inner"]})
    await two.run(on_progress=told.append)
    assert (told[-1].name, told[-1].done, told[-1].total) == ("two", 2, 2)


async def test_the_function_may_be_async_and_its_exceptions_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def tell(progress: Progress) -> None:
        raise RuntimeError("no display")

    with caplog.at_level(logging.ERROR):
        assert (await Pipeline("desk", {"think": think}).run(on_progress=tell)).ok
    assert "on_progress failed on RunStarted; the run is not affected" in caplog.text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"progress": 1}, "progress=1: expected True, False or 'auto'"),
        ({"progress": "yes"}, "progress='yes'"),
        ({"on_progress": 5}, "on_progress=5: expected a function that takes a Progress"),
    ],
)
async def test_what_is_no_option_is_refused_before_anything_runs(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        await Pipeline("desk", {"think": think}).run(**options)
