"""`resume_at` has the nodes and steps with which a run goes on, whatever has stopped it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import assume, given, settings
from support.agents import paid_agent
from support.examples import examples
from support.graph_reference import Design
from support.graph_worlds import RUN, World
from support.interruptions import entries_of
from support.random_graphs import designs
from support.virtual_time import VirtualTimeLoop, in_virtual_time

from fastroai import Budget, Edge, Graph, Pipeline, PipelineConfig, StepContext, StepExecutionError, step
from fastroai.errors import TimeLimitExceeded
from fastroai.graphs import Send
from fastroai.runtime.facts import RunFinished, RunResumed, StepFact, StepStarted
from fastroai.store import MemoryRunStore


@step(retries=0)
async def fail(ctx: StepContext) -> str:
    raise ConnectionError(f"{ctx.step_id} is down")


@step
async def wait(ctx: StepContext) -> str:
    await asyncio.Event().wait()
    return ""


@step
async def quick(ctx: StepContext) -> str:
    return ctx.step_id


async def last_fact(store: MemoryRunStore) -> RunFinished:
    *_, last = await entries_of(store)
    assert isinstance(last, RunFinished)
    return last


def forking(**options: Any) -> Graph[Any, Any, Any]:
    nodes = {"top": quick, "wait": wait, "bad": options.pop("bad", fail), "end": quick}
    edges = [Edge("top", "wait"), Edge("top", "bad"), Edge("wait", "end"), Edge("bad", "end")]
    return Graph("forking", nodes=nodes, edges=edges, **options)


async def test_a_failed_graph_goes_on_with_what_failed_and_what_was_cancelled_for_it() -> None:
    store = MemoryRunStore()
    result = await forking().run(run_id=RUN, store=store)
    assert (result.status, result.resume_at) == ("failed", ("bad", "wait"))
    assert (await last_fact(store)).resume_at == result.resume_at


async def test_a_cancelled_graph_goes_on_with_what_ran_and_what_waited() -> None:
    graph, store = forking(bad=wait, max_concurrency=1), MemoryRunStore()
    stream = graph.stream(run_id=RUN, store=store)
    async for event in stream:
        if isinstance(event, StepStarted) and event.step_id == "wait":
            await graph.cancel(RUN)
    assert stream.result is not None
    assert (stream.result.status, stream.result.resume_at) == ("cancelled", ("wait", "bad"))


@in_virtual_time
async def test_a_graph_whose_time_is_over_goes_on_with_what_ran() -> None:
    store = MemoryRunStore()
    result = await forking(bad=wait, config=PipelineConfig(total_timeout=0.05)).run(run_id=RUN, store=store)
    assert (result.reason_code, result.resume_at) == ("timed_out", ("wait", "bad"))
    assert (await last_fact(store)).resume_at == ("wait", "bad")


async def test_a_graph_whose_budget_is_used_up_goes_on_with_what_it_stopped() -> None:
    node = paid_agent(10).as_step("go on")
    result = await forking(bad=node, budget=Budget(microcents=5)).run(run_id=RUN, store=MemoryRunStore())
    assert (result.status, result.resume_at) == ("budget_exceeded", ("bad", "wait"))


async def test_a_run_that_would_end_in_the_same_way_goes_on_with_nothing() -> None:
    graph = Graph[Any, Any, Any](
        "g", nodes={"a": quick, "b": quick}, edges=[Edge("a", "b", "conditional", "has(nothing)")],
        accepts={"nothing": int},
    )  # fmt: skip
    result = await graph.run({"nothing": 1})
    assert result.resume_at == ()


async def test_each_send_that_failed_is_there() -> None:
    @step
    async def split(ctx: StepContext) -> list[Send]:
        return [Send("bad"), Send("bad")]

    graph = Graph[Any, Any, Any](
        "g",
        nodes={"split": split, "bad": fail, "end": quick},
        edges=[Edge("split", "bad", "send"), Edge("bad", "end")],
        on_branch_failure="continue_others",
    )
    assert (await graph.run()).resume_at == ("bad", "bad")


async def test_a_failed_pipeline_says_on_record_with_which_steps_it_goes_on() -> None:
    store = MemoryRunStore()
    steps = {"a": quick, "bad": fail, "wait": wait, "end": quick}
    pipeline = Pipeline("p", steps, {"bad": ["a"], "wait": ["a"], "end": ["bad", "wait"]})
    with pytest.raises(StepExecutionError):
        await pipeline.execute({}, run_id=RUN, store=store)
    assert (await last_fact(store)).resume_at == ("bad", "wait")


@in_virtual_time
async def test_a_pipeline_whose_time_is_over_says_on_record_with_which_steps_it_goes_on() -> None:
    store = MemoryRunStore()
    config = PipelineConfig(total_timeout=0.05)
    pipeline = Pipeline(
        "p", {"a": quick, "wait": wait, "end": quick}, {"wait": ["a"], "end": ["wait"]}, config=config
    )
    with pytest.raises(TimeLimitExceeded):
        await pipeline.execute({}, run_id=RUN, store=store)
    assert (await last_fact(store)).resume_at == ("wait",)


async def test_a_graph_that_made_too_many_visits_goes_on_with_all_that_it_stopped() -> None:
    store = MemoryRunStore()

    @step
    async def slow(ctx: StepContext) -> str:
        await asyncio.sleep(0.01)
        return "slow"

    def graph(max_steps: int) -> Graph[Any, Any, Any]:
        nodes = {"top": quick, "slow": slow, "a": quick, "b": quick, "end": quick}
        edges = [Edge("top", "slow"), Edge("top", "a"), Edge("a", "b"), Edge("b", "end"), Edge("slow", "end")]
        return Graph("g", nodes=nodes, edges=edges, max_steps=max_steps)

    result = await graph(3).run(run_id=RUN, store=store)
    assert (result.reason_code, result.resume_at) == ("max_steps", ("b", "slow"))
    result = await graph(30).resume(RUN, store=store)
    assert (result.status, result.output, result.resume_at) == ("finished", "end", ())
    assert result.path == ["top", {"slow": ["slow"], "a": ["a", "b"]}, "end"]


@given(designs(limited=False))
@settings(max_examples=examples(10))
def test_what_is_said_is_what_starts_when_the_run_is_resumed(design: Design) -> None:
    async def check() -> tuple[object, tuple[str, ...], list[str]]:
        store = MemoryRunStore()
        result = await World(design).graph.run(dict(design.inputs), store=store, run_id=RUN)
        await World(design).graph.resume(RUN, store=store)
        entries = await entries_of(store)
        begin = next((at for at, one in enumerate(entries, 1) if isinstance(one, RunResumed)), len(entries))
        started: list[str] = []
        for entry in entries[begin:]:
            if isinstance(entry, StepStarted):
                started.append(entry.step_id.removeprefix("llm_decide(").removesuffix(")"))
            elif isinstance(entry, StepFact):
                break
        return result.reason_code, result.resume_at, started

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        code, said, started = runner.run(check())
    assume((said or started) and code != "max_steps")
    assert sorted(said) == sorted(started)
