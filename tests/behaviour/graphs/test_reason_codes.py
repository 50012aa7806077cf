"""Why runs ended or paused, as a word for programs: in the result, in the last event, on record."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
from typing import Any

import pytest
from support.agents import paid_agent
from support.virtual_time import in_virtual_time

from fastroai import Budget, MemoryRunStore, Pipeline, PipelineConfig, RunHistory, StepContext, step
from fastroai.errors import BudgetExceeded, StepExecutionError, TimeLimitExceeded
from fastroai.graphs import Edge, Graph, Node
from fastroai.pipelines import ConversationState, ConversationStatus, ReasonCode, RunFinished
from fastroai.runtime import facts


@step
async def work(ctx: StepContext) -> str:
    return "done"


@step
async def fail(ctx: StepContext) -> str:
    raise ValueError("no")


@step
async def hang(ctx: StepContext) -> str:
    await asyncio.sleep(60)
    return "late"


@step
async def ask(ctx: StepContext) -> str:
    return (await ctx.run(paid_agent(100), "?")).output


@step
async def stop(ctx: StepContext) -> str:
    await graph_of_stop[0].cancel(ctx.run_id)
    return "stopped"


@step
async def wait(ctx: StepContext) -> str:
    await graph_of_stop[0].pause(ctx.run_id)
    return "waits"


@step
async def nap(ctx: StepContext) -> str:
    await ctx.sleep(3600)
    return "awake"


@step
async def receive(ctx: StepContext) -> str:
    return await ctx.receive("paid", str)


graph_of_stop: list[Graph[Any, Any]] = []

QUICK = {"retries": 0}
FORK = [Edge("top", "a"), Edge("top", "b"), Edge("a", "end"), Edge("b", "end")]
CIRCLE = [Edge("top", "a"), Edge("a", "b"), Edge("b", "a"), Edge("a", "end", "on_failure")]


def forking(a: Any = work, b: Any = work) -> dict[str, Any]:
    return {"nodes": {"top": work, "a": a, "b": b, "end": work}, "edges": FORK}


GRAPHS: dict[ReasonCode, dict[str, Any]] = {
    "completed": {"nodes": {"a": work}},
    "question": {"nodes": {"a": work}, "pause_nodes": ["a"]},
    "message": {**forking(a=nap, b=receive)},
    "sleep": {"nodes": {"a": nap}},
    "pause_requested": {"nodes": {"a": wait, "b": work}, "edges": [Edge("a", "b")]},
    "cancelled": {"nodes": {"a": stop, "b": work}, "edges": [Edge("a", "b")]},
    "step_failed": {"nodes": {"a": fail}},
    "branch_timeout": {**forking(a=hang), "branch_timeout": 1},
    "max_visits": {
        "nodes": {"top": work, "a": Node(work, max_visits=1), "b": Node(work, max_visits=1), "end": work},
        "edges": CIRCLE,
    },
    "max_steps": {**forking(), "max_steps": 2},
    "no_terminal": {
        "nodes": {"a": work, "b": work},
        "edges": [Edge("a", "b", "conditional", condition="1 > 2")],
    },
    "memory_conflict": {
        **forking(Node(work, writes=["k"]), Node(work, writes=["k"])),
        "on_conflict": "error",
    },
    "budget_exceeded": {"nodes": {"a": ask}, "budget": Budget(microcents=50)},
    "timed_out": {"nodes": {"a": hang}, "config": {"total_timeout": 1}},
}


@pytest.mark.parametrize("code", GRAPHS)
def test_a_graph_says_in_a_word_why_it_ended(code: ReasonCode) -> None:
    @in_virtual_time
    async def story() -> None:
        options = {**GRAPHS[code]}
        store = MemoryRunStore()
        config = PipelineConfig(store=store, **QUICK, **options.pop("config", {}))
        graph: Graph[Any, Any] = Graph("g", config=config, **options)
        graph_of_stop[:] = [graph]
        stream = graph.stream(run_id="r")
        events = [event async for event in stream]
        result = stream.result
        assert result.reason_code == code, result.reason
        [finished] = [event for event in events if isinstance(event, RunFinished)]
        assert finished.reason_code == code
        recorded = [
            one for one in (await RunHistory(store).trace("r")).entries if isinstance(one, RunFinished)
        ]
        assert [one.reason_code for one in recorded] == [code]

    story()


@step
async def incomplete(ctx: StepContext) -> ConversationState[str]:
    return ConversationState(ConversationStatus.INCOMPLETE)


@pytest.mark.parametrize(
    ("only", "options", "code"),
    [
        (work, {}, "completed"),
        (incomplete, {}, "incomplete"),
        (receive, {}, "message"),
        (nap, {}, "sleep"),
        (fail, {}, "step_failed"),
        (ask, {"cost_budget": 50}, "budget_exceeded"),
        (hang, {"total_timeout": 1}, "timed_out"),
    ],
)
def test_so_does_a_pipeline(only: Any, options: dict[str, Any], code: ReasonCode) -> None:
    @in_virtual_time
    async def story() -> None:
        store = MemoryRunStore()
        pipeline = Pipeline[Any, Any]("p", {"only": only}, config=PipelineConfig(store=store, **options))
        with contextlib.suppress(StepExecutionError, BudgetExceeded, TimeLimitExceeded):
            assert (await pipeline.execute(run_id="r")).reason_code == code
        recorded = [
            one for one in (await RunHistory(store).trace("r")).entries if isinstance(one, RunFinished)
        ]
        assert [one.reason_code for one in recorded] == [code]

    story()


def test_every_code_that_the_reference_names_is_tested_here() -> None:
    told = inspect.getsource(facts).partition("ReasonCode: TypeAlias")[2].split('"""')[1]
    named = set(re.findall(r"`([a-z_]+)`", told))
    of_workflows = {"killed", "max_rounds"}
    assert named - {*GRAPHS} == {"incomplete", "error"} | of_workflows
