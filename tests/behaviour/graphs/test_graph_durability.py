"""Runs of graphs that stopped, in whatever way, go on where they were."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from pydantic import BaseModel
from support.agents import paid_agent
from support.counted_nodes import Counted
from support.faulty_store import FaultyStore, everything_in, fails_at
from support.stored_runs import raw_log
from support.virtual_time import in_virtual_time

from fastroai import Budget, Pipeline, PipelineConfig, StepConfig, StepContext
from fastroai.errors import (
    ConfigurationError,
    RunExists,
    RunNotFound,
    RunStoreUnavailable,
    StepExecutionError,
)
from fastroai.graphs import Edge, Graph, Node, OnBranchFailure
from fastroai.runtime.facts import StepCancelled
from fastroai.store import MemoryRunStore, RunHistory


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def store() -> MemoryRunStore:
    return MemoryRunStore()


def forked(counted: Counted, store: Any, policy: OnBranchFailure, **options: Any) -> Graph[Any, Any]:
    """`top` forks to `a` and `b`, after which `b2`; they meet in `join`."""
    edges = [Edge("top", "a"), Edge("top", "b"), Edge("a", "join", "on_success")]
    edges += [Edge("b", "b2", "on_success"), Edge("b2", "join", "on_success")]
    nodes = {**counted.nodes("top", "a", "b", "b2", "join"), **options.pop("nodes", {})}
    return Graph(
        "forked",
        nodes=nodes,
        edges=edges,
        on_branch_failure=policy,
        config=PipelineConfig(store=store),
        **options,
    )


# --- what ended ---


async def test_a_run_that_is_completed_gives_its_result_again_and_runs_nothing(
    counted: Counted, store: MemoryRunStore
) -> None:
    graph = forked(counted, store, "fail_all")
    first = await graph.run({"x": 1}, run_id="r")
    counted.take()
    again = await graph.resume("r")
    assert counted.take() == {}
    for name in ("status", "quality", "output", "outputs", "memory", "path", "visits", "errors", "reason"):
        assert getattr(again, name) == getattr(first, name), name
    with pytest.raises(RunExists):
        await graph.run(run_id="r")


@pytest.mark.parametrize("policy", ["fail_all", "continue_others"])
async def test_a_failed_fork_tries_what_failed_again_and_nothing_else(
    counted: Counted, store: MemoryRunStore, policy: OnBranchFailure
) -> None:
    graph = forked(counted, store, policy)
    counted.failing = {"b2", "a"} if policy == "continue_others" else {"b2"}
    first = await graph.run(run_id="r")
    assert first.status == "failed"
    assert counted.take() == {"top": 1, "a": 1, "b": 1, "b2": 1}
    counted.failing = set()
    again = await graph.resume("r")
    assert (again.status, again.path) == ("finished", ["top", {"a": ["a"], "b": ["b", "b2"]}, "join"])
    failed = {"a", "b2"} if policy == "continue_others" else {"b2"}
    assert counted.take() == {**dict.fromkeys(failed, 1), "join": 1}
    assert again.errors == {}
    assert again.quality == "clean"


async def test_of_a_fork_that_waits_for_all_only_the_join_is_tried_again(
    counted: Counted, store: MemoryRunStore
) -> None:
    graph = forked(counted, store, "wait_all")
    counted.failing = {"a", "b", "join"}
    assert (await graph.run(run_id="r")).status == "failed"
    counted.take()
    counted.failing = set()
    again = await graph.resume("r")
    assert counted.take() == {"join": 1}
    assert again.status == "finished"
    assert set(again.errors) == {"a", "b"}, "the join has made something of these"
    assert again.quality == "degraded"


async def test_a_fork_that_failed_in_two_processes_tells_the_failures_of_both() -> None:
    """The first is on record, as the process died before the second."""
    counted, store = Counted(), FaultyStore()
    hanging = asyncio.Event()

    async def hang(ctx: StepContext[Any]) -> None:
        hanging.set()
        await asyncio.Event().wait()

    graph = forked(counted, store, "continue_others", nodes={"b": counted.node("b", hang)})
    counted.failing = {"a"}
    dying = asyncio.create_task(graph.run(run_id="r"))
    await hanging.wait()
    while not any(b"step_failed" in value for value in await raw_log(store, "r")):
        await asyncio.sleep(0.01)
    dying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dying
    counted.failing = {"b"}
    again = await graph.resume("r")
    assert (again.status, set(again.errors)) == ("failed", {"a", "b"})
    assert str(again.error) == "step 'a' failed: ConnectionError: a is down"


async def test_a_run_that_fails_again_and_again_is_tried_again_each_time(
    counted: Counted, store: MemoryRunStore
) -> None:
    graph = forked(counted, store, "continue_others")
    counted.failing = {"a", "b2"}
    for number in range(3):
        result = await graph.run(run_id="r") if not number else await graph.resume("r")
        assert result.status == "failed"
        assert {"a", "b2"} <= set(counted.take())
    counted.failing = {"a"}
    again = await graph.resume("r")
    assert (again.status, again.quality) == ("finished", "degraded")
    assert set(again.errors) == {"a"}
    assert counted.take() == {"a": 1, "b2": 1, "join": 1}


async def test_a_branch_that_was_left_out_stays_so_when_a_later_node_fails(
    counted: Counted, store: MemoryRunStore
) -> None:
    graph = forked(counted, store, "continue_others")
    counted.failing = {"a", "join"}
    assert (await graph.run(run_id="r")).status == "failed"
    counted.take()
    counted.failing = set()
    again = await graph.resume("r")
    assert counted.take() == {"join": 1}
    assert (again.status, set(again.errors)) == ("finished", {"a"})


async def test_max_steps_may_be_raised_when_a_run_has_reached_it(
    counted: Counted, store: MemoryRunStore
) -> None:
    def chain(max_steps: int) -> Graph[Any, Any]:
        return Graph(
            "chain",
            nodes=counted.nodes("a", "b", "c"),
            edges=[Edge("a", "b"), Edge("b", "c")],
            max_steps=max_steps,
            config=PipelineConfig(store=store),
        )

    first = await chain(2).run(run_id="r")
    assert first.status == "failed"
    assert "max_steps=2" in first.reason
    counted.take()
    assert (await chain(3).resume("r")).status == "finished"
    assert counted.take() == {"c": 1}
    assert (await chain(1).resume("r")).status == "finished", "what is done is done"


async def test_nothing_runs_again_in_a_run_that_reaches_the_same_limit_at_once(
    counted: Counted, store: MemoryRunStore
) -> None:
    def graph(max_steps: int) -> Graph[Any, Any]:
        return Graph(
            "g",
            nodes=counted.nodes("top", "a", "then", "waits", "end"),
            edges=[
                *(Edge("top", "a"), Edge("a", "then"), Edge("then", "end")),
                *(Edge("top", "waits"), Edge("waits", "end")),
            ],
            max_steps=max_steps,
            max_concurrency=1,
            config=PipelineConfig(store=store),
        )

    first = await graph(3).run(run_id="r")
    assert (first.reason_code, first.resume_at) == ("max_steps", ("then", "waits"))
    counted.take()
    again = await graph(3).resume("r")
    assert counted.take() == {}
    assert (again.reason, again.resume_at, again.path) == (first.reason, first.resume_at, first.path)
    assert (await graph(9).resume("r")).status == "finished"
    assert counted.take() == {"waits": 1, "then": 1, "end": 1}


@in_virtual_time
async def test_a_node_that_had_no_place_when_its_branch_took_too_long_does_not_count_as_started() -> None:
    store = MemoryRunStore()

    async def slow(ctx: StepContext[Any]) -> None:
        await asyncio.sleep(10)

    counted = Counted()
    graph: Graph[Any, Any] = Graph(
        "g",
        nodes={**counted.nodes("top", "a", "waits", "c", "end"), "slow": counted.node("slow", slow)},
        edges=[
            *(Edge("top", "a"), Edge("a", "slow"), Edge("a", "waits")),
            *(Edge("slow", "end"), Edge("waits", "end"), Edge("top", "c"), Edge("c", "end")),
        ],
        on_branch_failure="continue_others",
        branch_timeout=1,
        max_concurrency=1,
        config=PipelineConfig(store=store),
    )
    first = await graph.run(run_id="r")
    assert (first.status, first.visits.get("waits")) == ("finished", None)
    assert first.trace.replay(graph) is None
    assert (await graph.resume("r")).path == first.path


def looped(counted: Counted, store: Any, max_visits: int) -> Graph[Any, Any]:
    nodes: dict[str, Any] = {**counted.nodes("a", "check", "end")}
    nodes["a"] = Node(nodes["a"], max_visits=max_visits)

    async def check(ctx: StepContext[Any]) -> dict[str, Any]:
        return {"turn": ctx.visit}

    nodes["check"] = Node(counted.node("check", check), writes=["turn"])
    edges = [
        Edge("a", "check"),
        Edge("check", "a", when="conditional", condition="turn < 4"),
        Edge("check", "end", "always"),
    ]
    return Graph("looped", nodes=nodes, edges=edges, entry="a", config=PipelineConfig(store=store))


@pytest.mark.parametrize("after", [1, 3, 9])
async def test_limits_of_visits_may_change_although_nodes_were_skipped_for_them(
    counted: Counted, store: MemoryRunStore, after: int
) -> None:
    counted.failing = {"end"}
    first = await looped(counted, store, 2).run(run_id="r")
    assert first.status == "failed"
    assert first.visits == {"a": 2, "check": 4, "end": 1}
    counted.take()
    counted.failing = set()
    again = await looped(counted, store, after).resume("r")
    assert (again.status, again.path, again.visits) == ("finished", first.path, first.visits)
    assert counted.take() == {"end": 1}


@pytest.mark.parametrize(("before", "after"), [(None, 1), (1, None), (1, 3), (3, 1)])
async def test_max_concurrency_may_change_while_branches_go_on(
    counted: Counted, store: MemoryRunStore, before: int | None, after: int | None
) -> None:
    names = [f"b{number}" for number in range(6)]

    def fork(limit: int | None) -> Graph[Any, Any]:
        nodes = counted.nodes("top", *names, "join")
        edges = [Edge("top", name) for name in names] + [Edge(name, "join", "on_success") for name in names]
        config = PipelineConfig(store=store)
        return Graph("fork", nodes=nodes, edges=edges, max_concurrency=limit, config=config)

    counted.failing = {"b3"}
    assert (await fork(before).run(run_id="r")).status == "failed"
    counted.failing = set()
    again = await fork(after).resume("r")
    assert again.status == "finished"
    assert again.visits == dict.fromkeys(["top", *names, "join"], 1)
    assert again.path == ["top", {name: [name] for name in names}, "join"]


# --- budgets ---


async def test_a_run_that_its_budget_stopped_goes_on_with_a_larger_one_and_pays_nothing_twice(
    store: MemoryRunStore,
) -> None:
    asked: list[str] = []

    async def note(prompt: str) -> None:
        asked.append(prompt)

    agent = paid_agent(100, before=note)

    def chain(microcents: int) -> Graph[Any, Any]:
        nodes = {name: agent.as_step(name) for name in ("a", "b", "c", "d")}
        edges = [Edge("a", "b"), Edge("a", "c"), Edge("b", "d"), Edge("c", "d")]
        return Graph(
            "chain",
            nodes=nodes,
            edges=edges,
            budget=Budget(microcents=microcents),
            conversation="isolated",
            config=PipelineConfig(store=store),
        )

    first = await chain(200).run(run_id="r")
    assert first.status == "budget_exceeded"
    assert first.usage.total.cost_microcents == 200
    assert len(asked) == 2
    still = await chain(200).resume("r")
    assert (still.status, still.usage.total.cost_microcents) == ("budget_exceeded", 200)
    again = await chain(400).resume("r")
    assert again.status == "finished"
    assert again.usage.total.cost_microcents == 400
    assert sorted(asked) == ["a", "b", "c", "d"]
    assert {name: usage.cost_microcents for name, usage in again.usage.by_node.items()} == dict.fromkeys(
        "abcd", 100
    )


async def test_a_node_that_its_own_budget_stopped_and_that_an_edge_handled_stays_so(
    counted: Counted, store: MemoryRunStore
) -> None:
    poor = paid_agent(100).as_step("x", config=StepConfig(cost_budget=1, retries=0))
    nodes = {"poor": poor, **counted.nodes("mend", "end")}
    edges = [Edge("poor", "end", "on_success"), Edge("poor", "mend", "on_failure"), Edge("mend", "end")]
    graph = Graph("poor", nodes=nodes, edges=edges, config=PipelineConfig(store=store))
    counted.failing = {"end"}
    assert (await graph.run(run_id="r")).path == ["poor", "mend", "end"]
    counted.take()
    counted.failing = set()
    again = await graph.resume("r")
    assert (again.status, again.path, counted.take()) == ("finished", ["poor", "mend", "end"], {"end": 1})


# --- questions ---


class Answer(BaseModel):
    approved: bool
    limit: int = 0


def asking(counted: Counted, store: Any, **options: Any) -> Graph[Any, Any]:
    async def ask(ctx: StepContext[Any]) -> str:
        return f"is {ctx.get_input('x')} fine?"

    async def use(ctx: StepContext[Any]) -> str:
        answer = ctx.get_dependency("ask")
        assert isinstance(answer, Answer)
        return f"{answer.approved} {answer.limit}"

    nodes = {"ask": Node(counted.node("ask", ask), answer_type=Answer), "use": counted.node("use", use)}
    return Graph(
        "asking",
        nodes=nodes,
        edges=[Edge("ask", "use")],
        pause_nodes=["ask"],
        config=PipelineConfig(store=store),
        **options,
    )


async def test_an_answer_of_the_declared_type_is_given_once(counted: Counted, store: MemoryRunStore) -> None:
    graph = asking(counted, store)
    first = await graph.run({"x": "it"}, run_id="r")
    assert (first.status, first.resume_at) == ("paused", ("ask",))
    assert [(one.node, one.question) for one in first.questions] == [("ask", "is it fine?")]
    counted.take()
    again = await graph.resume("r", input={"approved": True, "limit": 3})
    assert (again.status, again.output) == ("finished", "True 3")
    assert counted.take() == {"use": 1}
    with pytest.raises(ConfigurationError, match="does not wait for an answer"):
        await graph.resume("r", input={"approved": True})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"input": {"approved": "perhaps"}}, "an answer that fits the question of node 'ask': approved"),
        ({"input": None}, "an answer that fits the question of node 'ask'"),
        ({"input": {"approved": True}, "node": "aks"}, "Did you mean 'ask'"),
        ({"node": "ask"}, r"input= \(the answer\) too"),
        ({}, "the answer that node 'ask' of run 'r' waits for"),
    ],
)
async def test_an_answer_that_is_none_leaves_the_run_as_it_was(
    counted: Counted, store: MemoryRunStore, given: Mapping[str, Any], says: str
) -> None:
    graph = asking(counted, store)
    await graph.run({"x": "it"}, run_id="r")
    before = await everything_in(store)
    counted.take()
    with pytest.raises(ConfigurationError, match=says):
        await graph.resume("r", **given)
    assert await everything_in(store) == before
    assert counted.take() == {}
    assert (await graph.resume("r", input=Answer(approved=False))).output == "False 0"


# --- what is on record of what was cut off, or went on after failures ---


class Hanging:
    """A decider that never says anything."""

    async def dispatch(self, call: Any) -> Any:
        await asyncio.Event().wait()

    def dispatch_stream(self, call: Any) -> Any:
        raise NotImplementedError


def slow_decision(counted: Counted, store: Any) -> Graph[Any, Any]:
    """A branch whose decision takes too long, and one that does not."""
    nodes = counted.nodes("top", "slow", "quick", "join")
    edges = [Edge("top", "slow"), Edge("top", "quick"), Edge("quick", "join")]
    edges += [Edge("slow", "join", "llm_decide", fallback=True)]
    return Graph(
        "slow",
        nodes=nodes,
        edges=edges,
        decider=Hanging(),
        on_branch_failure="continue_others",
        branch_timeout=30.0,
        config=PipelineConfig(store=store),
    )


@in_virtual_time
async def test_a_decision_that_a_branch_timeout_cut_off_is_over_in_later_processes_too() -> None:
    counted, store = Counted(), MemoryRunStore()
    graph = slow_decision(counted, store)
    counted.failing = {"join"}
    assert (await graph.run(run_id="r")).status == "failed"
    counted.take()
    counted.failing = set()
    again = await graph.resume("r")
    assert (again.status, again.quality) == ("finished", "degraded")
    assert counted.take() == {"join": 1}
    assert "llm_decide(slow): cancelled" in again.explain()
    assert "\nslow: cancelled" not in again.explain()


@in_virtual_time
async def test_a_node_that_is_done_is_not_told_as_cancelled_when_its_decision_is() -> None:
    counted = Counted()
    stream = slow_decision(counted, None).stream()
    told = [event async for event in stream]
    assert [event.step_id for event in told if isinstance(event, StepCancelled)] == ["llm_decide(slow)"]
    assert "llm_decide(slow): cancelled" in stream.result.explain()


async def test_what_was_degraded_inside_of_a_node_is_so_after_it_is_resumed(
    counted: Counted, store: MemoryRunStore
) -> None:
    counted.failing = {"bad", "end"}
    inner = Graph("inner", nodes=counted.nodes("bad", "mend"), edges=[Edge("bad", "mend", "on_failure")])
    graph = Graph(
        "outer",
        nodes={"inner": inner, **counted.nodes("end")},
        edges=[Edge("inner", "end", "on_success")],
        config=PipelineConfig(store=store),
    )
    pipeline = Pipeline(
        "outer",
        {"inner": inner.as_step(), "end": counted.node("end")},
        {"end": ["inner"]},
        config=graph.config,
    )
    assert (await graph.run(run_id="graph")).status == "failed"
    with pytest.raises(StepExecutionError):
        await pipeline.execute(run_id="pipeline")
    counted.failing = set()
    counted.take()
    assert (await graph.resume("graph")).quality == "degraded"
    assert (await pipeline.resume("pipeline")).quality == "degraded"
    assert counted.take() == {"end": 2}


@pytest.mark.parametrize("happens", ["before", "after"])
@in_virtual_time
async def test_a_run_whose_process_died_after_it_had_asked_waits_when_it_is_resumed_without_an_answer(
    counted: Counted, happens: str
) -> None:
    calm = FaultyStore()
    await asking(counted, calm).run({"x": "it"}, run_id="r")
    came_to: Counter[str] = Counter()
    for number in range(1, len(calm.writes) + 1):
        store = FaultyStore()
        setattr(store, happens, fails_at(*range(number, 100)))
        with suppress(RunStoreUnavailable):
            await asking(counted, store).run({"x": "it"}, run_id="r")
        try:
            status = (await RunHistory(store.inner).summary("r")).status
        except RunNotFound:
            continue
        came_to[status] += 1
        graph = asking(counted, store.inner)
        if status == "interrupted":
            assert (await graph.resume("r")).status == "paused"
        assert [one.node for one in await graph.questions("r")] == ["ask"]
        assert (await graph.resume("r", input={"approved": True, "limit": 3})).output == "True 3"
    assert came_to["interrupted"]
