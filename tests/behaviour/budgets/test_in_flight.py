"""Requests in flight when a step, a budget or a run ends, by the books of the server that has them."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Coroutine
from decimal import Decimal
from typing import Any

import pytest
from support.accounting import assert_account_matches, listed_cost
from support.leftovers import assert_no_task_is_left
from support.patience import PATIENCE

from fastroai import (
    Budget,
    Edge,
    FastroAgent,
    Graph,
    Node,
    Pipeline,
    SpendLimit,
    StepContext,
    StepExecutionError,
    budget_scope,
    step,
    usage_of,
)
from fastroai.errors import ScopeClosedError, records_of
from fastroai.store import MemoryRunStore, MemorySpendStore
from fastroai.testing import Fault, ModelServer, Reply, ToolCall

HANGS = "hangs"
"""The server never answers a prompt with this in it, and has billed it."""

tasks: list[asyncio.Task[Any]] = []
"""What code of users has left running."""


@pytest.fixture(autouse=True)
def left_tasks() -> None:
    tasks.clear()


@pytest.fixture
def agent(server: ModelServer) -> FastroAgent[Any, str]:
    server.rule(lambda request: HANGS in request.prompt, Reply("never", fault=Fault.hang()))
    server.rule(lambda request: "late" in request.prompt, Reply("at last", latency=0.2))
    server.rule(None, Reply("at once"))
    return FastroAgent(server.model("openai:gpt-5-mini"), name="asker", max_tokens=64)


def start(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    tasks.append(asyncio.create_task(work))
    return tasks[-1]


async def two_and_a_failure(agent: FastroAgent[Any, str], server: ModelServer) -> None:
    """Two requests side by side with code that fails once both are at the provider."""

    async def fail() -> None:
        await server.ledger.wait_for(2)
        raise ValueError("no")

    await asyncio.gather(*(start(agent.run(f"{HANGS} {number}")) for number in range(2)), fail())


async def ended_tasks() -> list[BaseException]:
    """How the requests ended in the tasks that had made them; none of them was cancelled."""
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert not any(task.cancelled() or task.cancelling() for task in tasks)
    return [end for end in ends if isinstance(end, BaseException)]


async def test_a_budget_scope_that_fails_says_what_its_failing_gather_has_left_running(
    agent: FastroAgent[Any, str], server: ModelServer
) -> None:
    scope = budget_scope(Budget(usd="0.01"))
    with pytest.raises(ValueError, match="no") as caught:
        async with scope:
            await two_and_a_failure(agent, server)
    usage = usage_of(caught.value)
    assert usage is not None
    assert (usage.request_count, usage.unmeasured_requests, usage.cost_complete) == (2, 2, False)
    assert usage.committed_usd >= sum(map(listed_cost, server.ledger.billed)) > 0
    assert usage == scope.usage
    assert scope.remaining.usd is not None
    assert scope.remaining.usd + usage.committed_usd == Decimal("0.01")
    assert [type(error) for error in await ended_tasks()] == [ScopeClosedError, ScopeClosedError]
    assert scope.usage == usage
    await server.ledger.wait_for(2, state="finished")
    assert all(entry.client_disconnected for entry in server.ledger.entries), "the provider is told"
    assert_account_matches(server.ledger, scope.records)


async def test_a_step_that_fails_says_so_too_and_so_does_its_pipeline(
    agent: FastroAgent[Any, str], server: ModelServer
) -> None:
    @step
    async def ask(ctx: StepContext) -> None:
        await two_and_a_failure(agent, server)

    pipeline = Pipeline("p", {"ask": ask})
    with pytest.raises(StepExecutionError) as caught:
        await pipeline.execute()
    assert caught.value.usage.unmeasured_requests == 2
    assert not caught.value.usage.cost_complete
    of_step = usage_of(caught.value.original_error)
    assert of_step is not None
    assert of_step.committed_usd == caught.value.usage.committed_usd > 0
    assert len(await ended_tasks()) == 2
    assert_account_matches(server.ledger, records_of(caught.value))


@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "on record"])
async def test_what_a_step_leaves_running_goes_on_and_counts_with_its_cost_in_the_pipeline(
    agent: FastroAgent[Any, str], server: ModelServer, kept: bool
) -> None:
    @step
    async def leave(ctx: StepContext) -> None:
        start(agent.run("late"))
        await server.ledger.wait_for(1)

    @step
    async def wait(ctx: StepContext) -> str:
        return (await tasks[0]).output

    pipeline = Pipeline("p", {"leave": leave, "wait": wait}, {"wait": ["leave"]})
    result = await pipeline.execute(store=MemoryRunStore() if kept else None)
    assert result.output == "at last"
    left = result.usage.steps["leave"]
    assert (left.unmeasured_requests, left.cost_usd, left.cost_complete) == (1, 0, False)
    assert left.committed_usd > listed_cost(server.ledger.entries[0])
    assert_account_matches(server.ledger, result.usage.records, result.usage.total)
    assert result.usage.cost_complete
    trace = result.trace
    assert trace is not None
    assert len([record for attempt in trace.attempts for record in attempt.records]) == 1


@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "on record"])
async def test_a_pipeline_that_ends_first_has_the_bound_and_ends_the_request(
    agent: FastroAgent[Any, str], server: ModelServer, kept: bool
) -> None:
    store = MemoryRunStore()

    @step
    async def leave(ctx: StepContext) -> str:
        start(agent.run(HANGS))
        await server.ledger.wait_for(1)
        return "done"

    pipeline = Pipeline("p", {"leave": leave})
    result = await pipeline.execute(run_id="r", store=store if kept else None)
    assert result.output == "done"
    assert (result.usage.total.unmeasured_requests, result.usage.cost_complete) == (1, False)
    assert result.usage.total.committed_usd == result.usage.steps["leave"].committed_usd > 0
    assert_account_matches(server.ledger, result.usage.records, result.usage.total)
    [error] = await ended_tasks()
    assert isinstance(error, ScopeClosedError)
    await server.ledger.wait_for(1, state="finished")
    if kept:
        again = await pipeline.resume("r", store=store)
        assert again.usage.total == result.usage.total
    assert_no_task_is_left()


async def test_inside_of_a_budget_scope_the_request_goes_on_after_its_pipeline(
    agent: FastroAgent[Any, str], server: ModelServer
) -> None:
    @step
    async def leave(ctx: StepContext) -> None:
        start(agent.run("late"))
        await server.ledger.wait_for(1)

    async with budget_scope(Budget(usd="0.01")) as scope:
        result = await Pipeline("p", {"leave": leave}).execute(store=MemoryRunStore())
        assert result.usage.total.unmeasured_requests == 1
        assert (await tasks[0]).output == "at last"
    assert_account_matches(server.ledger, scope.records, scope.usage)
    assert scope.usage.cost_complete


async def test_a_node_of_a_graph_leaves_a_request_to_its_graph(
    agent: FastroAgent[Any, str], server: ModelServer
) -> None:
    @step
    async def leave(ctx: StepContext) -> dict[str, str]:
        start(agent.run("late"))
        start(agent.run(HANGS))
        await server.ledger.wait_for(2)
        return {}

    @step
    async def wait(ctx: StepContext) -> dict[str, str]:
        await tasks[0]
        return {}

    graph: Graph[Any] = Graph(
        "g", nodes={"leave": Node(leave), "wait": Node(wait)}, edges=[Edge("leave", "wait")], entry="leave"
    )
    result = await graph.run()
    assert result.status == "finished"
    total = result.usage.total
    assert (total.request_count, total.unmeasured_requests) == (2, 1)
    assert_account_matches(server.ledger, result.usage.records, total)
    assert len(await ended_tasks()) == 1


async def test_an_agent_has_what_its_tools_have_left_running(
    agent: FastroAgent[Any, str], server: ModelServer
) -> None:
    async def leave() -> str:
        """Ask somebody, and wait for no answer."""
        start(agent.run(HANGS))
        await server.ledger.wait_for(2)
        return "asked"

    server.script(Reply(tool_calls=[ToolCall("leave", {})]))
    caller = FastroAgent(server.model("openai:gpt-5-mini"), tools=[leave], max_tokens=64)
    response = await caller.run("Go")
    assert (response.request_count, response.usage.unmeasured_requests) == (3, 1)
    assert not response.cost_complete
    assert_account_matches(server.ledger, response.records)
    assert len(await ended_tasks()) == 1


@pytest.mark.parametrize("way", ["stream", "handler"])
async def test_a_stream_in_flight_is_ended_at_its_source(
    agent: FastroAgent[Any, str], server: ModelServer, way: str
) -> None:
    server.reset()
    server.rule(None, Reply("one two three", chunk_size=4, fault=Fault.hang(after=2)))
    reading = asyncio.Event()

    async def read() -> None:
        async for _ in agent.run_stream("?"):
            reading.set()

    async def handle(ctx: Any, events: Any) -> None:
        async for _ in events:
            reading.set()

    async with budget_scope(Budget(usd="0.01")) as scope:
        start(read() if way == "stream" else agent.run("?", event_stream_handler=handle))
        await reading.wait()
    assert scope.usage.unmeasured_requests == 1
    [error] = await ended_tasks()
    assert isinstance(error, ScopeClosedError)
    await server.ledger.wait_for(1, state="finished")
    assert_account_matches(server.ledger, scope.records, scope.usage)


async def test_a_spend_limit_counts_the_bound_of_a_request_that_was_ended(
    agent: FastroAgent[Any, str], server: ModelServer
) -> None:
    limit = SpendLimit(usd=1, store=MemorySpendStore())
    async with budget_scope(limit) as scope:
        start(agent.run(HANGS))
        await server.ledger.wait_for(1)
    await ended_tasks()
    status = await limit.status()
    assert (status.reserved_usd, status.spent_usd) == (0, scope.usage.committed_usd)


def test_threads_that_go_on_after_a_budget_are_told(
    agent: FastroAgent[Any, str], server: ModelServer
) -> None:
    heard: list[BaseException] = []

    def ask() -> None:
        try:
            agent.run_sync(HANGS)
        except ScopeClosedError as error:
            heard.append(error)

    with budget_scope(Budget(usd="0.01")) as scope:
        thread = threading.Thread(target=contextvars.copy_context().run, args=(ask,), daemon=True)
        thread.start()
        server.ledger.wait_for_sync(1)
    thread.join(PATIENCE)
    assert len(heard) == 1
    assert_account_matches(server.ledger, scope.records, scope.usage)
