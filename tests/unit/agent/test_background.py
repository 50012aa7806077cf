"""Background responses: what is reserved for one stays reserved until its answer is collected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai import Agent, ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelRequest
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.output import PendingModelResponse
from support.interruptions import DyingStore, assert_the_sum_of_the_log, go_on, interrupt, nth
from support.jobs import JobProvider
from support.virtual_time import in_virtual_time

from fastroai import Budget, FastroAgent, Pipeline, SpendLimit, StepContext, budget_scope, step
from fastroai.agent import Metered
from fastroai.errors import RequestBudgetExceeded, RunStoreUnavailable, StepExecutionError
from fastroai.runtime import ProviderLimit, Scope
from fastroai.runtime.facts import RequestInBatch, StepFinished
from fastroai.store import MemoryRunStore

COST = Decimal("0.0000195")


def background_agent(provider: JobProvider, **options: Any) -> FastroAgent[Any, str]:
    return FastroAgent(
        provider.model(), model_settings={"openai_background": True, "max_tokens": 100}, **options
    )


@asynccontextmanager
async def run_around() -> AsyncIterator[Scope]:
    async with Scope("pipeline", "test", parent=None) as scope:
        yield scope


@in_virtual_time
async def test_a_background_response_is_one_request_however_often_it_is_asked_for() -> None:
    provider = JobProvider(polls=5)
    response = await background_agent(provider).run("?")
    assert response.output == "answer"
    assert (response.usage.request_count, response.usage.failed_requests) == (1, 0)
    assert response.cost_usd == provider.billed_usd == COST
    [record] = response.records
    assert (record.outcome, record.response_id) == ("settled", "job_1")


@in_virtual_time
async def test_a_budget_of_requests_holds_while_responses_are_waited_for() -> None:
    provider = JobProvider()
    agent = background_agent(provider)
    async with budget_scope(Budget(requests=3)) as scope:
        runs = (agent.run(f"question {number}") for number in range(20))
        outcomes = await asyncio.gather(*runs, return_exceptions=True)
    assert provider.submitted == len(provider.ledger) == scope.usage.request_count == 3
    assert sum(isinstance(outcome, RequestBudgetExceeded) for outcome in outcomes) == 17
    assert scope.usage.cost_usd == provider.billed_usd


@in_virtual_time
async def test_money_stays_reserved_while_responses_are_waited_for() -> None:
    provider = JobProvider(held=asyncio.Event())
    assert provider.held is not None
    limit = SpendLimit(usd="0.00035", window="total", key="background")  # of $0.000107 that each can cost
    agent = background_agent(provider, budget=limit)
    runs = asyncio.gather(*(agent.run(f"question {number}") for number in range(20)), return_exceptions=True)
    while provider.submitted < 3:
        await asyncio.sleep(1)
    await asyncio.sleep(60)
    assert provider.submitted == 3
    provider.held.set()
    await runs
    assert 3 < provider.submitted < 20
    assert (await limit.status()).spent_usd == provider.billed_usd <= Decimal("0.00035")


@in_virtual_time
async def test_a_poll_that_fails_is_tried_again_and_is_no_request() -> None:
    provider = JobProvider(polls=0)
    agent = background_agent(provider)
    run = asyncio.create_task(agent.run("?"))
    while not provider.submitted:
        await asyncio.sleep(0.001)
    provider.fail_next(2)
    response = await run
    assert (response.usage.request_count, response.usage.failed_requests) == (1, 0)
    assert response.cost_usd == provider.billed_usd == COST


@in_virtual_time
async def test_a_job_that_cannot_be_asked_for_any_more_is_cancelled_and_charged_its_bound() -> None:
    provider = JobProvider(polls=0)
    async with run_around() as scope:
        run = asyncio.create_task(background_agent(provider).run("?"))
        while not provider.submitted:
            await asyncio.sleep(0.001)
        provider.fail_next(3)
        with pytest.raises(ModelHTTPError):
            await run
    [record] = scope.spending.records
    assert record.outcome == "unmeasured"
    assert record.bound_usd is not None
    assert record.bound_usd >= COST
    assert provider.cancelled == ["job_1"]


@in_virtual_time
async def test_a_run_that_is_cancelled_is_charged_the_bound_of_its_job() -> None:
    provider = JobProvider(held=asyncio.Event())
    async with budget_scope(Budget(usd="0.01", requests=1)) as scope:
        run = asyncio.create_task(background_agent(provider).run("?"))
        while not provider.submitted:
            await asyncio.sleep(1)
        await asyncio.sleep(30)
        assert scope.usage.request_count == 0
        assert scope.remaining.requests == 0
        run.cancel()
        await asyncio.wait([run])
        assert scope.usage.request_count == 1
    assert provider.cancelled == ["job_1"]
    assert [record.outcome for record in scope.records] == ["unmeasured"]
    assert scope.usage.committed_usd >= COST
    assert not scope.usage.cost_complete


@pytest.mark.parametrize("plain", [False, True])
def test_a_run_that_ends_with_a_job_left_over_is_charged_its_bound(plain: bool) -> None:
    @in_virtual_time
    async def scenario() -> None:
        provider = JobProvider(polls=0, held=asyncio.Event())
        options: Any = {
            "output_type": [str, PendingModelResponse],
            "model_settings": {"openai_background": True, "max_tokens": 100},
        }
        agent: Any = (
            Agent(provider.model(), capabilities=[Metered()], **options)
            if plain
            else FastroAgent(provider.model(), **options)
        )
        async with budget_scope(Budget(usd="0.01")) as scope:
            pending = await agent.run("?")
            assert isinstance(pending.output, PendingModelResponse)
            assert [record.outcome for record in scope.records] == ["unmeasured"]
            # Another run that collects it is charged what it has cost.
            assert provider.held is not None
            provider.held.set()
            history: list[ModelMessage] = pending.all_messages()
            assert (await agent.run(message_history=history)).output == "answer"
        assert scope.usage.cost_usd == provider.billed_usd == COST
        assert scope.usage.committed_usd >= COST

    scenario()


@in_virtual_time
async def test_a_streamed_background_response_is_one_request() -> None:
    provider = JobProvider(polls=2)
    agent = background_agent(provider)
    async with run_around() as scope, agent.run_stream("?") as stream:
        text = "".join([chunk.content async for chunk in stream if chunk.content])
    assert text == "answer"
    assert [record.outcome for record in scope.spending.records] == ["settled"]
    assert scope.spending.usage.cost_usd == provider.billed_usd == COST


@in_virtual_time
async def test_a_fallback_that_gives_up_on_a_job_is_charged_its_bound_and_begins_anew() -> None:
    provider = JobProvider(polls=0)
    agent = FastroAgent(
        FallbackModel(provider.model(), TestModel()),
        model_settings={"openai_background": True, "max_tokens": 100},
        request_retries=0,
    )
    async with budget_scope(Budget(requests=2)) as scope:
        run = asyncio.create_task(agent.run("?"))
        while not provider.submitted:
            await asyncio.sleep(0.001)
        provider.fail_next(1)
        assert (await run).output == "answer"
    assert provider.cancelled == ["job_1"]
    assert provider.submitted == 2
    assert [record.outcome for record in scope.records] == ["unmeasured", "settled"]


@in_virtual_time
async def test_a_fallback_collects_a_job_from_the_model_that_it_has_given_it_to() -> None:
    provider = JobProvider()
    agent = FastroAgent(
        FallbackModel(provider.model(), TestModel()),
        model_settings={"openai_background": True, "max_tokens": 100},
    )
    response = await agent.run("?")
    assert (response.usage.request_count, response.cost_usd) == (1, provider.billed_usd)


@in_virtual_time
async def test_a_job_keeps_its_place_under_a_provider_limit() -> None:
    provider = JobProvider(held=asyncio.Event())
    assert provider.held is not None
    agent = background_agent(provider, provider_limits={"openai": ProviderLimit(max_concurrency=2)})
    runs = [asyncio.create_task(agent.run(f"question {number}")) for number in range(5)]
    while provider.submitted < 2:
        await asyncio.sleep(1)
    await asyncio.sleep(60)
    assert provider.submitted == 2
    provider.held.set()
    assert [(await run).output for run in runs] == ["answer"] * 5


@in_virtual_time
async def test_requests_without_an_agent_keep_their_reservation_until_the_scope_ends() -> None:
    provider = JobProvider(polls=0)
    model = Metered().get_wrapper_model(provider.model())
    assert model is not None
    settings: Any = {"openai_background": True}
    messages: list[ModelMessage] = [ModelRequest.user_text_prompt("?")]
    async with budget_scope(Budget(requests=2)) as scope:
        suspended = await model.request(messages, settings, ModelRequestParameters())
        assert (scope.usage.request_count, scope.remaining.requests) == (0, 1)
        whole = await model.request([*messages, suspended], settings, ModelRequestParameters())
        assert whole.state == "complete"
        assert scope.usage.request_count == 1
        await model.request(messages, settings, ModelRequestParameters())
    assert [record.outcome for record in scope.records] == ["settled", "unmeasured"]


# --- runs on record ---


def alone(execute: Any) -> Pipeline[Any, Any]:
    """A pipeline of one step, as a new process has it."""
    return Pipeline("p", {"alone": step(execute)})


@in_virtual_time
async def test_a_background_response_on_record_is_not_asked_for_again() -> None:
    provider, store = JobProvider(), MemoryRunStore()

    async def talk(ctx: StepContext[None]) -> str:
        return (await ctx.run(background_agent(provider), "?")).output

    await interrupt(alone(talk), store, nth(StepFinished), written=False)
    result = await go_on(alone(talk), store)
    assert result.output == "answer"
    assert provider.submitted == 1
    assert result.usage.cost_usd == provider.billed_usd == COST


BOUND = Decimal("0.00010625")
"""The most that a request of `talking` can cost, in US dollars."""


def talking(provider: JobProvider, *, streamed: bool = False, **options: Any) -> Pipeline[Any, Any]:
    async def talk(ctx: StepContext[None]) -> str:
        agent = background_agent(provider, **options)
        if not streamed:
            return (await ctx.run(agent, "?")).output
        async with ctx.run_stream(agent, "?") as stream:
            return "".join([chunk.content async for chunk in stream if chunk.content])

    return alone(talk)


@in_virtual_time
async def test_a_background_response_that_is_not_known_to_be_one_counts_at_its_bound() -> None:
    provider, store = JobProvider(), MemoryRunStore()
    await interrupt(talking(provider), store, nth(RequestInBatch), written=False)
    result = await go_on(talking(provider), store)
    assert provider.submitted == result.usage.total.request_count == 2
    assert result.usage.total.unmeasured_requests == 1
    assert result.usage.total.committed_usd >= provider.billed_usd


@pytest.mark.parametrize("streamed", [False, True])
def test_a_background_response_that_a_process_left_is_collected_by_the_next(streamed: bool) -> None:
    @in_virtual_time
    async def scenario() -> None:
        provider, store = JobProvider(held=asyncio.Event()), MemoryRunStore()
        limit = SpendLimit(usd="0.01", window="total", key=f"left {streamed}")
        await interrupt(talking(provider, budget=limit), store, nth(RequestInBatch), written=True)
        status = await limit.status()
        assert (status.spent_usd + status.reserved_usd, provider.cancelled) == (BOUND, [])
        assert provider.held is not None
        asyncio.get_running_loop().call_later(60, provider.held.set)
        result = await go_on(talking(provider, streamed=streamed, budget=limit), store)
        await assert_the_sum_of_the_log(result, store)
        assert (result.output, provider.submitted) == ("answer", 1)
        status = await limit.status()
        assert result.usage.total.committed_usd == provider.billed_usd == COST
        assert (status.spent_usd, status.reserved_usd) == (COST, 0)

    scenario()


@pytest.mark.parametrize("ended", ["forgotten", "cancelled"])
def test_a_background_response_that_cannot_be_collected_any_more_is_asked_for_anew(ended: str) -> None:
    @in_virtual_time
    async def scenario() -> None:
        provider, store = JobProvider(), MemoryRunStore()
        limit = SpendLimit(usd="0.01", window="total", key=f"{ended} meanwhile")
        await interrupt(talking(provider, budget=limit), store, nth(RequestInBatch), written=True)
        getattr(provider, ended).append("job_1")
        with pytest.raises(RunStoreUnavailable):
            dying = DyingStore(store, nth(RequestInBatch), written=True)
            await go_on(talking(provider, budget=limit), dying)
        result = await go_on(talking(provider, budget=limit), store)
        assert provider.submitted == 2
        await assert_the_sum_of_the_log(result, store)
        assert (result.output, provider.billed_usd) == ("answer", COST)
        assert [record.outcome for record in result.usage.records] == ["unmeasured", "settled"]
        assert (await limit.status()).spent_usd == result.usage.total.committed_usd == BOUND + COST

    scenario()


@in_virtual_time
async def test_a_background_response_that_was_left_is_asked_about_as_often_as_any_other() -> None:
    provider, store = JobProvider(), MemoryRunStore()
    await interrupt(talking(provider), store, nth(RequestInBatch), written=True)
    provider.fail_next(3)
    result = await go_on(talking(provider), store)
    assert (result.output, provider.submitted) == ("answer", 1)
    assert result.usage.total.committed_usd == provider.billed_usd == COST


@in_virtual_time
async def test_a_background_response_that_was_left_is_cancelled_if_its_provider_does_not_answer() -> None:
    provider, store = JobProvider(), MemoryRunStore()
    limit = SpendLimit(usd="0.01", window="total", key="never answered")
    await interrupt(talking(provider, budget=limit), store, nth(RequestInBatch), written=True)
    provider.fail_next(4)
    with pytest.raises(StepExecutionError):
        await go_on(talking(provider, budget=limit), store)
    assert provider.cancelled == ["job_1"]
    result = await go_on(talking(provider, budget=limit), store)
    assert (await limit.status()).spent_usd == result.usage.total.committed_usd == BOUND + COST
