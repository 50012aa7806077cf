"""Runs of graphs that are cut off: at every moment, from everywhere, and whatever nodes do about it."""

from __future__ import annotations

import asyncio
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import pytest
from support.agents import paid_agent
from support.leftovers import assert_no_task_is_left
from support.patience import PATIENCE
from support.virtual_time import VirtualTimeLoop, in_virtual_time, now

from fastroai import (
    Budget,
    MemoryRunStore,
    Pipeline,
    PipelineConfig,
    RetryPolicy,
    StepContext,
    budget_scope,
    step,
)
from fastroai.errors import CancelledInside, RunNotFound, TimeBudgetExceeded, TimeLimitExceeded
from fastroai.graphs import Edge, Graph, GraphResult
from fastroai.pipelines import StepFinished, StepStarted

How = Literal["task", "signal"]
EVERY = 7
"""Turns of the loop between the moments at which runs are cut off; each case begins with another one."""


@step
async def quick(ctx: StepContext) -> str:
    ctx.write(f"{ctx.step_id} began", value=True)
    return ctx.step_id


@step
async def slow(ctx: StepContext) -> str:
    ctx.write(f"{ctx.step_id} began", value=True)
    try:
        await asyncio.sleep(1)
    finally:
        await asyncio.sleep(0.1)
    return ctx.step_id


@step
async def sleeps(ctx: StepContext) -> None:
    await asyncio.sleep(1)


@step(retries=0)
async def failing(ctx: StepContext) -> None:
    await asyncio.sleep(0.5)
    raise ValueError("no")


def chain(*names: str) -> list[Edge]:
    return [Edge(source, target) for source, target in itertools.pairwise(names)]


def all_of_it(**options: Any) -> Graph[Any, Any]:
    """A fork, an agent, a failure that is handled, and a graph in a pipeline."""
    inner = Graph("inner", nodes={"x": slow, "y": quick, "z": slow}, edges=[Edge("x", "y"), Edge("x", "z")])
    pipeline: Pipeline[Any, Any] = Pipeline(
        "p", {"first": sleeps, "second": inner.as_step()}, {"second": ["first"]}
    )
    agent = paid_agent(10, before=lambda prompt: asyncio.sleep(0.3))
    nodes: dict[str, Any] = {
        "begin": quick,
        "slow": slow,
        "agent": agent.as_step("?"),
        "pipeline": pipeline,
        "failing": failing,
        "handler": quick,
        "join": slow,
    }
    return Graph(
        "g",
        nodes=nodes,
        edges=[
            *(Edge("begin", target) for target in ("slow", "agent", "pipeline", "failing")),
            Edge("failing", "handler", when="on_failure"),
            Edge("failing", "join", when="on_success"),
            *(Edge(source, "join") for source in ("slow", "agent", "pipeline", "handler")),
        ],
        **options,
    )


async def cut_off(graph: Graph[Any, Any], turns: int, how: How, *, streamed: bool, store: object) -> object:
    """What a run gives that is cut off after so many turns of the loop; `None` if it has ended before."""

    async def read() -> object:
        async with graph.stream(run_id="r", store=store) as stream:
            async for _ in stream:
                pass
        return stream.result

    run = asyncio.ensure_future(read() if streamed else graph.run(run_id="r", store=store))
    for _ in range(turns):
        await asyncio.sleep(0)
    if run.done():
        return None
    if how == "task":
        run.cancel()
    else:
        await graph.cancel("r", store=store)
    [ended] = await asyncio.gather(run, return_exceptions=True)
    await asyncio.sleep(0)
    assert_no_task_is_left()
    return ended


@pytest.mark.parametrize("how", ["task", "signal"])
@pytest.mark.parametrize(
    ("places", "streamed", "stored", "shift"),
    [(None, False, False, 1), (None, True, True, 2), (1, False, True, 4)],
)
def test_a_run_that_is_cut_off_at_any_turn_ends_and_leaves_nothing_running(
    how: How, places: int | None, streamed: bool, stored: bool, shift: int
) -> None:
    turns, endings = shift, 0
    while turns < 300:
        graph = all_of_it(max_concurrency=places)
        store = MemoryRunStore() if stored else None
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            ended = runner.run(cut_off(graph, turns, how, streamed=streamed, store=store))
        if ended is None:
            break
        if how == "task":
            assert isinstance(ended, asyncio.CancelledError)
        else:
            assert isinstance(ended, GraphResult)
            assert ended.status == "cancelled"
            begun = {node for node in ended.visits if node in ("begin", "slow", "handler", "join")}
            assert {key.removesuffix(" began") for key in ended.memory if key.endswith(" began")} <= begun
        turns += EVERY
        endings += 1
    assert endings >= 20


# --- time limits ---


class SlowStore(MemoryRunStore):
    """Takes its time to write."""

    async def append(self, *args: Any, **options: Any) -> Any:
        await asyncio.sleep(1.5)
        return await super().append(*args, **options)


@pytest.mark.parametrize("around", ["total_timeout", "budget"])
def test_a_time_limit_gives_a_result_also_while_results_are_being_stored(around: str) -> None:
    options: dict[str, Any]
    for seconds in (2.7, 3.2, 4.2, 5.2, 6.2, 7.2, 8.2):
        if around == "budget":
            options = {"budget": Budget(ms=int(seconds * 1000))}
        else:
            options = {"config": PipelineConfig(total_timeout=seconds)}
        graph = Graph(
            "g", nodes={"a": slow, "b": slow, "c": quick}, edges=[Edge("a", "b"), Edge("a", "c")], **options
        )
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            result = runner.run(graph.run(store=SlowStore()))
        assert result.status == ("budget_exceeded" if around == "budget" else "failed")
        assert isinstance(result.error, TimeBudgetExceeded if around == "budget" else TimeLimitExceeded)
        assert result.reason == str(result.error)
        assert result.output is None


@in_virtual_time
async def test_a_time_limit_around_the_graph_is_raised_by_what_set_it() -> None:
    with pytest.raises(TimeBudgetExceeded):
        async with budget_scope(Budget(ms=1500)):
            await Graph("g", nodes={"a": slow, "b": slow}, edges=chain("a", "b")).run()
    assert_no_task_is_left()


# --- which run ---


@pytest.mark.parametrize("turns", [0, 1, 2])
@pytest.mark.parametrize("stored", [False, True])
async def test_a_run_can_be_cancelled_as_soon_as_it_has_begun(turns: int, stored: bool) -> None:
    graph = Graph("g", nodes={"a": quick, "b": slow}, edges=chain("a", "b"))
    run = asyncio.create_task(graph.run(run_id="r", store=SlowlyOpened() if stored else None))
    for _ in range(turns):
        await asyncio.sleep(0)
    await graph.cancel("r")
    assert (await run).status == "cancelled"
    with pytest.raises(RunNotFound):
        await graph.cancel("r", store=MemoryRunStore())


class SlowlyOpened(MemoryRunStore):
    """Lets others run before it writes."""

    async def append(self, *args: Any, **options: Any) -> Any:
        for _ in range(10):
            await asyncio.sleep(0)
        return await super().append(*args, **options)


@in_virtual_time
async def test_what_waits_for_its_next_attempt_is_cancelled_though_a_listener_is_slow() -> None:
    @step(retry=RetryPolicy(2, backoff=5, jitter="none"))
    async def again(ctx: StepContext) -> None:
        attempts.append(ctx.attempt)
        raise ValueError("not yet")

    attempts: list[int] = []
    nodes: dict[str, Any] = {"a": quick, "again": again, "beside": slow}
    graph = Graph("g", nodes=nodes, edges=[Edge("a", "again"), Edge("a", "beside")])
    async with graph.stream(run_id="r") as stream:
        async for event in stream:
            if isinstance(event, StepFinished) and event.step_id == "beside":
                await graph.cancel("r")
                await asyncio.sleep(60)
    assert stream.result is not None
    assert (stream.result.status, attempts) == ("cancelled", [1])


async def test_cancelling_reaches_the_run_though_nodes_run_the_same_graph_under_its_id() -> None:
    inner_is_over = asyncio.Event()

    @step
    async def again(ctx: StepContext) -> object:
        if ctx.get_input("depth") == 0:
            return "leaf"
        await graph.run({"depth": ctx.get_input("depth") - 1})
        inner_is_over.set()
        return await asyncio.Event().wait()

    graph = Graph("g", nodes={"again": again})
    run = asyncio.create_task(graph.run({"depth": 1}, run_id="r"))
    await inner_is_over.wait()
    await graph.cancel("r")
    assert (await run).status == "cancelled"
    with pytest.raises(RunNotFound):
        await graph.cancel("r")


async def test_cancelling_reaches_all_runs_that_share_an_id() -> None:
    started = asyncio.Barrier(4)

    @step
    async def hang(ctx: StepContext) -> None:
        await started.wait()
        await asyncio.Event().wait()

    graph = Graph("g", nodes={"hang": hang})
    runs = [asyncio.create_task(graph.run(run_id="r")) for _ in range(3)]
    await started.wait()
    await graph.cancel("r")
    assert [result.status for result in await asyncio.gather(*runs)] == ["cancelled"] * 3


@in_virtual_time
async def test_cancelling_through_a_nested_graph_cancels_the_run_that_has_the_id() -> None:
    inner = Graph("inner", nodes={"slow": slow})
    nodes: dict[str, Any] = {"begin": quick, "a": inner, "b": inner, "join": quick}
    graph = Graph(
        "g",
        nodes=nodes,
        edges=[
            *(Edge("begin", node) for node in ("a", "b")),
            *(Edge(node, "join", "always") for node in ("a", "b")),
        ],
    )
    run = asyncio.create_task(graph.run(run_id="r"))
    await asyncio.sleep(0.5)
    await inner.cancel("r")
    result = await run
    assert (result.status, result.quality, set(result.errors)) == ("cancelled", "failed", set())


async def test_a_run_in_another_thread_is_cancelled_from_here() -> None:
    started = threading.Event()

    @step
    async def hang(ctx: StepContext) -> None:
        started.set()
        await asyncio.Event().wait()

    graph = Graph("g", nodes={"begin": quick, "hang": hang}, edges=chain("begin", "hang"))
    with ThreadPoolExecutor() as threads:
        run = threads.submit(graph.run_sync, run_id="r")
        await asyncio.to_thread(started.wait, PATIENCE)
        await graph.cancel("r")
        result = await asyncio.wrap_future(run)
    assert (result.status, result.memory["begin began"]) == ("cancelled", True)


@in_virtual_time
async def test_what_waits_for_a_place_or_for_its_next_attempt_is_cancelled_too() -> None:
    @step(retry=RetryPolicy(2, backoff=50, jitter="none"))
    async def again(ctx: StepContext) -> None:
        ctx.write("attempt", ctx.attempt)
        raise ValueError("not yet")

    nodes: dict[str, Any] = {"begin": quick, "again": again, "queued": slow}
    graph = Graph(
        "g", nodes=nodes, edges=[Edge("begin", "again"), Edge("begin", "queued")], max_concurrency=1
    )
    run = asyncio.create_task(graph.run(run_id="r"))
    await asyncio.sleep(1)
    await graph.pause("r")
    await graph.cancel("r")
    result = await run
    assert (result.status, result.visits, now()) == ("cancelled", {"begin": 1, "again": 1}, 1)
    assert result.memory["attempt"] == 1


# --- what nodes do about it ---


@in_virtual_time
async def test_what_a_node_gives_that_swallows_its_cancellation_is_kept_and_nothing_comes_after_it() -> None:
    @step
    async def stubborn(ctx: StepContext) -> str:
        for _ in range(2):
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                ctx.write("asked to stop", value=True)
        return "all the same"

    graph = Graph("g", nodes={"stubborn": stubborn, "after": quick}, edges=chain("stubborn", "after"))
    run = asyncio.create_task(graph.run(run_id="r"))
    await asyncio.sleep(1)
    await graph.cancel("r")
    result = await run
    assert (result.status, result.path, now()) == ("cancelled", ["stubborn"], 11)
    assert dict(result.memory) == {"asked to stop": True, "stubborn": "all the same"}
    run = asyncio.create_task(graph.run())
    await asyncio.sleep(1)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert_no_task_is_left()


@in_virtual_time
@pytest.mark.parametrize("policy", ["fail_all", "continue_others", "wait_all"])
async def test_a_node_whose_own_task_was_cancelled_has_failed(policy: Any) -> None:
    attempts = []

    @step(retries=2, retry_delay=0)
    async def leaves(ctx: StepContext) -> None:
        attempts.append(ctx.attempt)
        inside = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        inside.cancel()
        await inside

    nodes: dict[str, Any] = {"begin": quick, "leaves": leaves, "beside": slow, "handler": quick}
    edges = [Edge("begin", "leaves"), Edge("begin", "beside"), Edge("leaves", "handler", "always")]
    result = await Graph("g", nodes=nodes, edges=edges, on_branch_failure=policy).run()
    assert (result.status, result.quality, attempts) == ("finished", "degraded", [1, 2, 3])
    assert isinstance(result.errors["leaves"], CancelledInside)
    assert_no_task_is_left()


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), SystemExit(3)])
def test_what_ends_the_process_ends_the_run_whatever_its_edges_say(raised: BaseException) -> None:
    cleaned_up = False

    @step
    async def ends(ctx: StepContext) -> None:
        raise raised

    @step
    async def beside(ctx: StepContext) -> None:
        nonlocal cleaned_up
        try:
            await asyncio.Event().wait()
        finally:
            cleaned_up = True

    nodes: dict[str, Any] = {"begin": quick, "beside": beside, "ends": ends, "handler": quick}
    edges = [Edge("begin", "beside"), Edge("begin", "ends"), Edge("ends", "handler", "always")]
    with pytest.raises(type(raised)):
        Graph("g", nodes=nodes, edges=edges).run_sync()
    assert cleaned_up


async def test_a_thread_that_goes_on_after_the_cancellation_writes_nothing_any_more() -> None:
    started, go_on, refused = threading.Event(), threading.Event(), threading.Event()

    @step
    def in_a_thread(ctx: StepContext) -> None:
        ctx.write("early", value=True)
        started.set()
        go_on.wait(PATIENCE)
        try:
            ctx.write("late", value=True)
        except Exception:
            refused.set()

    graph = Graph("g", nodes={"thread": in_a_thread})
    run = asyncio.create_task(graph.run(run_id="r"))
    await asyncio.to_thread(started.wait, PATIENCE)
    await graph.cancel("r")
    result = await run
    go_on.set()
    assert await asyncio.to_thread(refused.wait, PATIENCE)
    assert dict(result.memory) == {"early": True}


@in_virtual_time
async def test_leaving_a_stream_at_any_event_ends_the_run() -> None:
    for last in itertools.count(1):
        async with all_of_it().stream() as stream:
            seen = 0
            async for _ in stream:
                seen += 1
                if seen == last:
                    break
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # in which asyncio ends the iterator that was left
        assert_no_task_is_left()
        if seen < last:
            break
    assert last > 20


@in_virtual_time
async def test_a_listener_can_cancel_the_run_that_it_listens_to() -> None:
    graph = Graph("g", nodes={"a": slow, "b": slow}, edges=chain("a", "b"))
    async with graph.stream(run_id="r") as stream:
        async for event in stream:
            if isinstance(event, StepStarted) and event.step_id == "b":
                await graph.cancel("r")
    assert stream.result is not None
    assert (stream.result.status, stream.result.outputs) == ("cancelled", {"a": "a"})
