"""Requests in batches: under the budgets of the runs that make them, at the prices of batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.capabilities import BatchModelRequests
from pydantic_ai.messages import ModelMessage, ModelRequest
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.batch import BatchRequest, EncodedBatchRequest
from pydantic_ai.models.test import TestModel
from pydantic_ai.output import PendingModelResponse
from support import stored_runs
from support.interruptions import assert_the_sum_of_the_log, go_on, interrupt, nth
from support.jobs import JobProvider
from support.patience import PATIENCE

from fastroai import (
    Budget,
    BudgetExceeded,
    CostBudgetExceeded,
    FastroAgent,
    Pipeline,
    RunHistory,
    SpendLimit,
    StepContext,
    budget_scope,
    step,
)
from fastroai.agent import Metered
from fastroai.errors import RunNotFound, StepExecutionError, UnmeteredRequestError
from fastroai.runtime import Scope
from fastroai.runtime.facts import RequestInBatch, StepFinished
from fastroai.store import MemoryRunStore

SOON = timedelta(milliseconds=1)


def batching(max_requests: int = 20, **options: Any) -> BatchModelRequests:
    options = {"max_wait": timedelta(milliseconds=20), "max_resubmissions": 0, **options}
    return BatchModelRequests(
        max_requests=max_requests, poll_interval=SOON, max_poll_interval=timedelta(milliseconds=5), **options
    )


def batching_agent(provider: JobProvider, **options: Any) -> FastroAgent[Any, str]:
    options = {"capabilities": [batching()], "max_tokens": 100, **options}
    return FastroAgent(provider.model(), **options)


async def ask(agent: FastroAgent[Any, str], count: int, **options: Any) -> list[object]:
    """What comes of so many questions at once."""
    runs = (agent.run(f"question {number}", **options) for number in range(count))
    return list(await asyncio.gather(*runs, return_exceptions=True))


def answers(outcomes: list[object]) -> int:
    return sum(not isinstance(outcome, BaseException) for outcome in outcomes)


@asynccontextmanager
async def run_around() -> AsyncIterator[Scope]:
    async with Scope("pipeline", "test", parent=None) as scope:
        yield scope


# --- the account ---


async def test_every_request_of_a_batch_is_in_the_account_at_the_price_of_batches() -> None:
    provider = JobProvider()
    capability = batching(max_requests=20, max_wait=timedelta(seconds=PATIENCE))
    async with run_around() as scope:
        outcomes = await ask(batching_agent(provider, capabilities=[capability]), 20)
    assert answers(outcomes) == 20
    assert [len(batch) for batch in provider.batches] == [20]
    assert scope.spending.usage.request_count == len(provider.ledger) == 20
    assert scope.spending.usage.cost_usd == provider.billed_usd == 20 * Decimal("0.00000975")
    assert scope.spending.usage.cost_complete
    assert {record.response_id for record in scope.spending.records} == {
        entry.id for entry in provider.ledger
    }


async def test_each_run_is_charged_its_own_request() -> None:
    provider = JobProvider()
    agent = batching_agent(provider)
    async with run_around() as one, asyncio.TaskGroup() as tasks:
        first = tasks.create_task(agent.run("?"))
        async with Scope("pipeline", "other", parent=None) as two:
            second = await agent.run("the other question")
    assert [scope.spending.usage.request_count for scope in (one, two)] == [1, 1]
    assert first.result().cost_usd == second.cost_usd == Decimal("0.00000975")


async def test_the_same_question_in_two_batches_is_charged_twice() -> None:
    provider = JobProvider()
    agent = batching_agent(provider, capabilities=[batching(max_requests=1)])
    async with run_around() as scope:
        await asyncio.gather(*(agent.run("?") for _ in range(4)))
    assert len(provider.batches) == scope.spending.usage.request_count == 4
    assert scope.spending.usage.cost_usd == provider.billed_usd


async def test_a_model_for_tests_batches_in_memory_and_costs_nothing() -> None:
    agent = FastroAgent(TestModel(custom_output_text="hi"), capabilities=[batching()])
    async with run_around() as scope:
        outcomes = await ask(agent, 3, budget=Budget(usd="0.01", requests=1))
    assert answers(outcomes) == 3
    assert (scope.spending.usage.request_count, scope.spending.usage.cost_usd) == (3, 0)


# --- budgets ---


async def test_a_spend_limit_holds_in_a_batch_and_has_what_was_billed() -> None:
    provider = JobProvider(output_tokens=100)
    limit = SpendLimit(usd="0.0003", window="total", key="batches")
    outcomes = await ask(batching_agent(provider, budget=limit), 20)
    assert 0 < answers(outcomes) <= len(provider.ledger) < 20
    assert (await limit.status()).spent_usd == provider.billed_usd <= Decimal("0.0003")


async def test_a_request_without_max_tokens_is_lowered_before_it_joins_a_batch() -> None:
    provider = JobProvider(output_tokens=5_000)
    async with budget_scope(Budget(usd="0.001")) as scope:
        [outcome] = await ask(batching_agent(provider, max_tokens=None), 1)
    assert isinstance(outcome, CostBudgetExceeded)  # what came is the beginning of an answer
    assert outcome.partial_response is not None
    [[body]] = provider.batches
    assert body["max_output_tokens"] < 2_000  # type: ignore[index]
    assert scope.usage.cost_usd == provider.billed_usd <= Decimal("0.001")


# --- ends that bring no answer ---


async def test_a_request_that_is_put_into_another_batch_is_counted_once_where_it_ran_once() -> None:
    tries = iter(["500", "expired", "succeeded"])
    provider = JobProvider(outcome=lambda body: next(tries))
    async with budget_scope(Budget(requests=1)) as scope:
        await batching_agent(provider, capabilities=[batching(max_resubmissions=2)]).run("?")
    assert len(provider.batches) == 3
    assert (scope.usage.request_count, scope.usage.failed_requests) == (1, 2)
    assert scope.usage.cost_usd == provider.billed_usd


async def test_a_run_that_is_cancelled_in_line_for_a_batch_costs_nothing_and_makes_room() -> None:
    provider = JobProvider()
    capability = batching(max_wait=None)
    agent = batching_agent(provider, capabilities=[capability])
    async with budget_scope(Budget(requests=1)) as scope:
        first = asyncio.create_task(agent.run("first"))
        while scope.remaining.requests != 0:
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        second = asyncio.create_task(agent.run("second"))
        while not second.done():
            await capability.flush()
            await asyncio.sleep(0.001)
    assert second.result().output == "answer"
    assert [record.outcome for record in scope.records] == ["released", "settled"]
    assert len(provider.ledger) == 1


async def test_a_plain_run_that_is_cancelled_makes_room_before_the_step_around_it_ends() -> None:
    provider = JobProvider()
    capability = batching(max_wait=None)
    agent = Agent(provider.model(), capabilities=[Metered(), capability])
    async with budget_scope(Budget(requests=1)) as scope:
        first = asyncio.create_task(agent.run("first"))
        while scope.remaining.requests != 0:
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        assert scope.remaining.requests == 1


async def test_a_run_that_ends_while_its_batch_goes_on_is_charged_its_bound() -> None:
    provider = JobProvider(held=asyncio.Event())
    agent = Agent(
        provider.model(), capabilities=[Metered(), batching()], output_type=[str, PendingModelResponse]
    )
    async with run_around() as scope:
        pending = await agent.run("?")
        assert isinstance(pending.output, PendingModelResponse)
        assert [record.outcome for record in scope.spending.records] == ["unmeasured"]
    assert scope.spending.usage.committed_usd >= provider.billed_usd > 0


# --- what the account cannot follow ---


async def test_a_batch_of_another_run_is_collected_outside_of_runs_only() -> None:
    provider = JobProvider(held=asyncio.Event())
    capability = batching()
    first = Agent(provider.model(), capabilities=[capability], output_type=[str, PendingModelResponse])
    pending = await first.run("?")
    assert provider.held is not None
    provider.held.set()
    agent = FastroAgent(provider.model(), capabilities=[capability], output_type=str)
    history: list[ModelMessage] = pending.all_messages()
    with pytest.raises(UnmeteredRequestError, match="collect it outside of any run") as refused:
        await agent.run(message_history=history)
    assert refused.value.usage.request_count == 0
    assert (await first.run(message_history=history)).output == "answer"


async def test_a_batch_that_was_made_outside_of_runs_passes_beside_those_of_runs() -> None:
    """A task that sends a batch belongs to whichever run was last; what it sends does not."""
    provider = JobProvider()
    model = Metered().get_wrapper_model(provider.model())
    assert model is not None
    outside = await model.batch_encode(
        BatchRequest(custom_id="", messages=[ModelRequest.user_text_prompt("outside")])
    )
    assert type(outside) is EncodedBatchRequest
    async with run_around() as scope:
        inside = await model.batch_encode(
            BatchRequest(
                custom_id="",
                messages=[ModelRequest.user_text_prompt("inside")],
                model_request_parameters=ModelRequestParameters(),
            )
        )
        await model.batch_create([outside, inside])
    assert [record.outcome for record in scope.spending.records] == ["unmeasured"]


async def test_a_stop_is_told_by_all_kinds_of_runs() -> None:
    provider = JobProvider()
    with pytest.raises(BudgetExceeded):
        await batching_agent(provider, budget=Budget(usd="0.000001")).run("?")
    assert provider.batches == []


# --- runs on record ---


def alone(execute: Any) -> Pipeline[Any, Any]:
    """A pipeline of one step, as a new process has it."""
    return Pipeline("p", {"alone": step(execute)})


def talking(provider: JobProvider) -> Pipeline[Any, Any]:
    async def talk(ctx: StepContext[None]) -> str:
        return (await ctx.run(batching_agent(provider), "?")).output

    return alone(talk)


@pytest.mark.parametrize("is_ready", [True, False], ids=["the batch has ended", "the batch goes on"])
async def test_a_batch_on_record_is_collected_when_the_run_is_resumed(is_ready: bool) -> None:
    provider, store = JobProvider(held=asyncio.Event()), MemoryRunStore()
    assert provider.held is not None
    await interrupt(talking(provider), store, nth(RequestInBatch), written=True)
    if is_ready:
        provider.held.set()
    going = asyncio.create_task(go_on(talking(provider), store))
    await asyncio.sleep(0.05)
    provider.held.set()
    result = await going
    assert result.output == "answer"
    assert (len(provider.batches), provider.cancelled) == (1, [])
    assert result.usage.total.request_count == len(provider.of("batch")) == 1
    assert result.usage.total.cost_usd == provider.billed_usd == Decimal("0.00000975")
    assert result.usage.total.cost_complete
    await assert_the_sum_of_the_log(result, store)


async def test_the_bound_of_a_batch_on_record_stays_reserved() -> None:
    provider, store = JobProvider(held=asyncio.Event()), MemoryRunStore()
    assert provider.held is not None
    await interrupt(talking(provider), store, nth(RequestInBatch), written=True)
    provider.held.set()
    result = await go_on(talking(provider), store, budget=Budget(requests=1))
    assert (result.output, len(provider.batches)) == ("answer", 1)


async def test_a_result_on_record_is_not_asked_for_again() -> None:
    provider, store = JobProvider(), MemoryRunStore()
    await interrupt(talking(provider), store, nth(StepFinished), written=False)
    result = await go_on(talking(provider), store)
    assert (result.output, len(provider.batches)) == ("answer", 1)
    assert result.usage.total.cost_usd == provider.billed_usd
    assert result.usage.total.request_count == 1


async def test_a_batch_that_was_sent_when_the_process_died_counts_at_its_bound() -> None:
    provider, store = JobProvider(), MemoryRunStore()
    await interrupt(talking(provider), store, nth(RequestInBatch), written=False)
    result = await go_on(talking(provider), store)
    assert result.output == "answer"
    assert result.usage.total.request_count == len(provider.of("batch")) == 2
    assert result.usage.total.cost_usd < provider.billed_usd <= result.usage.total.committed_usd
    await assert_the_sum_of_the_log(result, store)


async def test_a_batch_on_record_that_ran_nothing_is_sent_again() -> None:
    provider, store = JobProvider(outcome=lambda body: "expired"), MemoryRunStore()
    await interrupt(talking(provider), store, nth(RequestInBatch), written=True)

    async def talk(ctx: StepContext[None]) -> str:
        provider.outcome = lambda body: "succeeded"
        agent = batching_agent(provider, capabilities=[batching(max_resubmissions=1)])
        return (await ctx.run(agent, "?")).output

    result = await go_on(alone(talk), store)
    assert (result.output, len(provider.batches)) == ("answer", 2)
    assert (result.usage.total.request_count, result.usage.total.failed_requests) == (1, 1)
    assert result.usage.total.cost_usd == provider.billed_usd
    await assert_the_sum_of_the_log(result, store)


async def test_an_interrupt_leaves_a_batch_on_record_running_and_a_cancellation_does_not() -> None:
    provider, store = JobProvider(held=asyncio.Event()), MemoryRunStore()
    assert provider.held is not None
    for run_id in ("interrupted", "cancelled"):
        running = asyncio.create_task(talking(provider).execute(None, run_id=run_id, store=store))
        while not any(isinstance(one, RequestInBatch) for one in await logged_in(store, run_id)):
            await asyncio.sleep(0.001)
        if run_id == "cancelled":
            await RunHistory(store).cancel(run_id)
        else:
            running.cancel()
        await asyncio.wait([running])
    provider.held.set()
    result = await talking(provider).resume("interrupted", store=store)
    assert result.usage.total.cost_usd == Decimal("0.00000975")
    assert result.usage.total.cost_complete
    assert (len(provider.batches), len(provider.cancelled)) == (2, 1)


async def logged_in(store: Any, run_id: str) -> list[Any]:
    """The facts of a run, which may not have begun."""
    try:
        return list(await stored_runs.entries_of(store, run_id))
    except RunNotFound:
        return []


BOUND = Decimal("0.00010625")
"""The most that a request of `talking` can cost in a batch, in US dollars."""


async def leave_in_batch(
    provider: JobProvider, store: Any, limit: SpendLimit, *, cancels: bool = False
) -> None:
    """Begin the run `r`, and end it in this process once its request is in a batch."""
    running = asyncio.create_task(talking(provider).execute(None, run_id="r", store=store, budget=limit))
    while not any(isinstance(one, RequestInBatch) for one in await logged_in(store, "r")):
        await asyncio.sleep(0.001)
    if cancels:
        await RunHistory(store).cancel("r")
    else:
        running.cancel()
    await asyncio.wait([running])


async def counted_by(limit: SpendLimit) -> Decimal:
    status = await limit.status()
    return status.spent_usd + status.reserved_usd


async def test_a_spend_limit_learns_what_a_batch_cost_that_a_later_process_collects() -> None:
    provider, store = JobProvider(held=asyncio.Event()), MemoryRunStore()
    limit = SpendLimit(usd="0.01", window="total", key="collected later")
    await leave_in_batch(provider, store, limit)
    assert await counted_by(limit) == BOUND
    assert provider.held is not None
    provider.held.set()
    result = await talking(provider).resume("r", store=store, budget=limit)
    assert (
        await counted_by(limit) == result.usage.total.cost_usd == provider.billed_usd == Decimal("0.00000975")
    )


async def test_a_spend_limit_counts_nothing_for_a_request_that_a_batch_did_not_run() -> None:
    provider, store = JobProvider(held=asyncio.Event(), outcome=lambda body: "expired"), MemoryRunStore()
    limit = SpendLimit(usd="0.01", window="total", key="expired later")
    await leave_in_batch(provider, store, limit)
    assert provider.held is not None
    provider.held.set()
    with pytest.raises(StepExecutionError):
        await talking(provider).resume("r", store=store, budget=limit)
    assert await counted_by(limit) == provider.billed_usd == 0


async def test_a_spend_limit_keeps_the_bound_of_a_batch_that_nobody_collects() -> None:
    provider, store = JobProvider(held=asyncio.Event()), MemoryRunStore()
    limit = SpendLimit(usd="0.01", window="total", key="cancelled later")
    await leave_in_batch(provider, store, limit, cancels=True)
    status = await limit.status()
    assert (status.spent_usd, status.reserved_usd) == (BOUND, 0)
