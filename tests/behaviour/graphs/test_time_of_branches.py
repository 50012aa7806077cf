"""`branch_timeout`: the time in which a branch works, and no other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.virtual_time import VirtualTimeLoop, in_virtual_time, now

from fastroai import MemoryRunStore, RetryPolicy, StepContext, step
from fastroai.errors import TimeLimitExceeded
from fastroai.graphs import Edge, Graph, Node
from fastroai.graphs.facts import BranchTimedOut
from fastroai.runtime.concurrency.clock import WorkClock


def working(seconds: float, *, fails: int = 0, wait: float = 0.0) -> Any:
    """A node that takes so long in each attempt, and fails so often, with waits in between."""

    @step(retry=RetryPolicy(3, backoff=wait, max_backoff=wait or 1.0, jitter="none"))
    async def work(ctx: StepContext) -> str:
        await asyncio.sleep(seconds)
        if ctx.attempt <= fails:
            raise ConnectionError("not yet")
        return ctx.step_id

    return work


@step
async def tell(ctx: StepContext) -> dict[str, str]:
    return {node: str(error) for node, error in ctx.errors.items()}


def forked(nodes: dict[str, Any], **options: Any) -> Graph[Any, Any]:
    options.setdefault("on_branch_failure", "continue_others")
    edges = [Edge("begin", node, "on_success") for node in nodes]
    edges += [Edge(node, "join", "on_success") for node in nodes]
    return Graph("g", nodes={"begin": working(0), **nodes, "join": tell}, edges=edges, **options)


@in_virtual_time
async def test_waiting_for_a_place_is_no_work() -> None:
    graph = forked({f"n{i}": working(2) for i in range(5)}, branch_timeout=3, max_concurrency=1)
    result = await graph.run()
    assert (result.quality, result.output, now()) == ("clean", {}, 10)


@in_virtual_time
async def test_waiting_for_the_next_attempt_is_no_work() -> None:
    graph = forked({"a": working(1), "b": working(1, fails=2, wait=1.5)}, branch_timeout=4)
    result = await graph.run()
    assert (result.quality, result.output, now()) == ("clean", {}, 1 + 1.5 + 1 + 1.5 + 1)


@in_virtual_time
async def test_attempts_are_work_all_together() -> None:
    graph = forked({"a": working(1), "b": working(2, fails=3, wait=0.5)}, branch_timeout=5)
    result = await graph.run()
    assert result.output == {"b": "branch 'begin#1/b' took longer than 5 s"}
    assert now() == 2 + 0.5 + 2 + 0.5 + 1


@in_virtual_time
async def test_no_wait_is_longer_than_the_time_that_the_branch_has_left() -> None:
    graph = forked({"a": working(1), "b": working(1, fails=3, wait=30)}, branch_timeout=10)
    result = await graph.run()
    assert (result.output, now()) == ({"b": "not yet"}, 1)
    assert "branch 'begin#1/b' has 9 s left" in result.errors["b"].__notes__[0]


@in_virtual_time
@pytest.mark.parametrize("policy", ["wait_all", "continue_others"])
async def test_a_person_has_all_the_time_they_need(policy: Any) -> None:
    def graph() -> Graph[Any, Any]:
        nodes = {"ask": Node(working(1), writes=["answer"]), "b": working(30)}
        return forked(nodes, branch_timeout=5, pause_nodes=["ask"], on_branch_failure=policy)

    store = MemoryRunStore()
    result = await graph().run(run_id="r", store=store)
    assert (result.status, [question.node for question in result.questions]) == ("paused", ["ask"])
    assert set(result.errors) == {"b"}
    assert now() == 5
    result = await graph().resume("r", store=store, input="yes")
    assert (result.status, result.memory["answer"], set(result.output)) == ("finished", "yes", {"b"})


@in_virtual_time
async def test_a_branch_works_as_long_as_one_node_in_its_forks_does() -> None:
    nodes = {
        "begin": working(0),
        "b": working(1),
        "c": working(1),
        "d": working(3),
        "e": working(1, fails=1, wait=2),
        "inner": working(2),
        "join": tell,
    }
    edges = [
        *(Edge("begin", node, "on_success") for node in ("b", "c")),
        *(Edge("b", node, "on_success") for node in ("d", "e")),
        *(Edge(node, "inner", "on_success") for node in ("d", "e")),
        *(Edge(node, "join", "on_success") for node in ("inner", "c")),
    ]

    def graph(seconds: float) -> Graph[Any, Any]:
        return Graph(
            "g", nodes=nodes, edges=edges, branch_timeout=seconds, on_branch_failure="continue_others"
        )

    # d works from 1 to 4 while e waits from 2 to 4, e works until 5, inner until 7
    assert (await graph(7.5).run()).output == {}
    assert now() == 7
    assert set((await graph(6.5).run()).output) == {"inner"}
    assert now() == 7 + 6.5


@in_virtual_time
async def test_branches_whose_time_is_up_at_one_moment_fail_in_the_order_of_their_edges() -> None:
    graph = forked({f"n{i}": working(9) for i in range(9)}, branch_timeout=2, on_branch_failure="fail_all")
    result = await graph.run()
    assert (result.status, set(result.errors), now()) == ("failed", {"n0"}, 2)
    assert isinstance(result.errors["n0"], TimeLimitExceeded)


@in_virtual_time
async def test_a_branch_has_no_more_time_than_the_branch_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, time passes between the starts of their clocks."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    call_later, clocks = loop.call_later, 0

    def slowly(delay: float, callback: Any, *values: Any, **options: Any) -> asyncio.TimerHandle:
        nonlocal clocks
        handle = call_later(delay, callback, *values, **options)
        if getattr(callback, "__func__", None) is WorkClock._ring:
            clocks += 1
            loop.now += 0 if clocks <= 2 else 1
        return handle

    graph = Graph(
        "g",
        nodes={name: working(0) for name in ("begin", "outer", "other", "ends")} | {"inner": working(9)},
        edges=[Edge("begin", "outer"), Edge("begin", "other"), Edge("outer", "inner"), Edge("outer", "ends")],
        branch_timeout=3,
        on_branch_failure="continue_others",
    )
    monkeypatch.setattr(loop, "call_later", slowly)
    result = await graph.run()
    assert [fact.branch for fact in result.trace.entries if isinstance(fact, BranchTimedOut)] == [
        "begin#1/outer"
    ]
