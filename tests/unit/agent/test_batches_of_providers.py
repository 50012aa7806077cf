"""Batches of Anthropic and of the Gemini API, through their own SDKs, are in the account of their runs."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai import Agent, ModelHTTPError
from pydantic_ai.capabilities import BatchModelRequests
from pydantic_ai.direct import model_request_batch
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import ModelRequest
from pydantic_ai.models.batch import BatchRequest
from support.batch_jobs import AnthropicJobs, BatchJobs, GoogleJobs
from support.patience import PATIENCE

from fastroai import Budget, CostBudgetExceeded, FastroAgent, budget_scope, spend
from fastroai.agent import Metered
from fastroai.errors import RequestBudgetExceeded, UnmeteredRequestError

of_both = pytest.mark.parametrize("kind", [AnthropicJobs, GoogleJobs])

SOON = timedelta(milliseconds=1)


def batching(**options: Any) -> BatchModelRequests:
    options = {"max_requests": 20, "max_wait": timedelta(milliseconds=20), "max_resubmissions": 0, **options}
    return BatchModelRequests(poll_interval=SOON, max_poll_interval=timedelta(milliseconds=5), **options)


def together(count: int) -> BatchModelRequests:
    """A batch of exactly so many requests, however long they take to come."""
    return batching(max_requests=count, max_wait=timedelta(seconds=PATIENCE))


def batching_agent(jobs: BatchJobs, **options: Any) -> FastroAgent[Any, str]:
    return FastroAgent(jobs.model(), **{"capabilities": [batching()], "max_tokens": 100, **options})


async def ask(agent: FastroAgent[Any, str], count: int) -> list[object]:
    """What comes of so many questions at once."""
    runs = (agent.run(f"question {number}") for number in range(count))
    return list(await asyncio.gather(*runs, return_exceptions=True))


def answers(outcomes: list[object]) -> int:
    return sum(not isinstance(outcome, BaseException) for outcome in outcomes)


# --- the account ---


@of_both
async def test_every_request_is_in_the_account_at_the_price_of_batches(kind: type[BatchJobs]) -> None:
    jobs = kind()
    async with budget_scope(Budget(usd=1)) as scope:
        outcomes = await ask(batching_agent(jobs, capabilities=[together(5)]), 5)
    assert answers(outcomes) == scope.usage.request_count == len(jobs.billed) == 5
    assert [len(batch) for batch in jobs.batches] == [5]
    assert scope.usage.cost_usd == jobs.billed_usd > 0
    assert scope.usage.cost_complete


@of_both
async def test_a_plain_agent_with_a_meter_is_charged_alike(kind: type[BatchJobs]) -> None:
    jobs = kind()
    agent = Agent(jobs.model(), capabilities=[Metered(), batching()])
    async with budget_scope(Budget(requests=3)) as scope:
        await asyncio.gather(*(agent.run(f"question {number}") for number in range(3)))
    assert scope.usage.cost_usd == jobs.billed_usd > 0


@of_both
async def test_a_streamed_run_is_charged_alike(kind: type[BatchJobs]) -> None:
    jobs = kind()
    async with budget_scope(Budget(usd=1)) as scope, batching_agent(jobs).run_stream("?") as stream:
        assert "".join([chunk.content async for chunk in stream if chunk.content]) == "answer"
    assert scope.usage.cost_usd == jobs.billed_usd > 0


# --- budgets ---


@of_both
async def test_a_budget_of_requests_holds(kind: type[BatchJobs]) -> None:
    jobs = kind()
    async with budget_scope(Budget(requests=3)) as scope:
        outcomes = await ask(batching_agent(jobs), 10)
    assert answers(outcomes) == len(jobs.billed) == scope.usage.request_count == 3
    assert sum(isinstance(outcome, RequestBudgetExceeded) for outcome in outcomes) == 7


@of_both
async def test_a_budget_of_money_holds(kind: type[BatchJobs]) -> None:
    jobs, most = kind(output_tokens=90), Decimal("0.002" if kind is AnthropicJobs else "0.001")
    async with budget_scope(Budget(usd=most)) as scope:
        outcomes = await ask(batching_agent(jobs), 20)
    assert 0 < len(jobs.billed) < 20
    assert scope.usage.cost_usd == jobs.billed_usd <= most
    assert sum(isinstance(outcome, CostBudgetExceeded) for outcome in outcomes) == 20 - answers(outcomes)


@of_both
async def test_a_request_without_max_tokens_is_lowered_before_it_joins(kind: type[BatchJobs]) -> None:
    jobs = kind(output_tokens=5_000)
    async with budget_scope(Budget(usd="0.003")) as scope:
        [outcome] = await ask(batching_agent(jobs, max_tokens=None), 1)
    assert isinstance(outcome, CostBudgetExceeded)
    assert jobs.billed
    assert jobs.billed[0] < 5_000
    assert scope.usage.cost_usd == jobs.billed_usd <= Decimal("0.003")


# --- ends that bring no answer ---


@of_both
async def test_a_batch_that_is_refused_costs_nothing(kind: type[BatchJobs]) -> None:
    jobs = kind(refuse=429)
    async with budget_scope(Budget(requests=3)) as scope:
        outcomes = await ask(batching_agent(jobs), 3)
        assert scope.remaining.requests == 3
    assert all(isinstance(outcome, ModelHTTPError) for outcome in outcomes)
    assert (scope.usage.request_count, scope.usage.failed_requests) == (0, 3)


@of_both
async def test_a_batch_that_the_provider_may_have_taken_counts_at_its_bounds(kind: type[BatchJobs]) -> None:
    jobs = kind(breaks=True)
    async with budget_scope(Budget(usd=1)) as scope:
        outcomes = await ask(batching_agent(jobs, request_retries=0), 3)
    assert all(isinstance(outcome, ModelAPIError) for outcome in outcomes), outcomes
    assert scope.usage.request_count == scope.usage.unmeasured_requests == 3
    assert scope.usage.committed_usd > scope.usage.cost_usd == 0


@pytest.mark.parametrize("outcome", ["errored", "canceled", "expired"])
@of_both
async def test_a_request_that_the_provider_did_not_run_costs_nothing(
    kind: type[BatchJobs], outcome: Any
) -> None:
    jobs = kind(outcome=lambda body: outcome if "question 0" in body else "succeeded")
    async with budget_scope(Budget(requests=2)) as scope:
        failed, _ = await ask(batching_agent(jobs), 2)
        assert scope.remaining.requests == 1
    assert isinstance(failed, ModelAPIError)
    assert (scope.usage.request_count, scope.usage.failed_requests) == (1, 1)
    assert scope.usage.cost_usd == jobs.billed_usd
    assert scope.usage.cost_complete


@pytest.mark.parametrize(
    ("kind", "ends"),
    [(AnthropicJobs, "canceled"), (AnthropicJobs, "expired")]
    + [(GoogleJobs, end) for end in ("failed", "canceled", "expired")],
)
async def test_a_batch_that_ends_without_running_anything_costs_nothing(
    kind: type[BatchJobs], ends: Any
) -> None:
    jobs = kind(ends=(ends,))
    async with budget_scope(Budget(requests=3)) as scope:
        outcomes = await ask(batching_agent(jobs), 3)
        assert scope.remaining.requests == 3
    assert all(isinstance(outcome, ModelAPIError) for outcome in outcomes)
    assert (scope.usage.request_count, scope.usage.failed_requests) == (0, 3)
    assert (scope.usage.committed_usd, scope.usage.cost_complete) == (0, True)


@of_both
async def test_a_batch_that_expired_and_is_sent_again_counts_once(kind: type[BatchJobs]) -> None:
    jobs = kind(ends=("expired", "done"))
    agent = batching_agent(jobs, capabilities=[batching(max_resubmissions=1)])
    async with budget_scope(Budget(requests=1)) as scope:
        await agent.run("?")
    assert len(jobs.batches) == 2
    assert (scope.usage.request_count, scope.usage.failed_requests) == (1, 1)
    assert scope.usage.committed_usd == jobs.billed_usd > 0


@of_both
async def test_the_requests_that_a_batch_has_run_before_it_expired_are_charged(kind: type[BatchJobs]) -> None:
    """Gemini lists only these; Anthropic says of each of the others that it expired."""
    left_out: Any = "missing" if kind is GoogleJobs else "expired"
    jobs = kind(outcome=lambda body: left_out if "question 0" in body else "succeeded")
    if isinstance(jobs, GoogleJobs):
        jobs.ends, jobs.partial = ("expired",), True
    async with budget_scope(Budget(requests=3)) as scope:
        outcomes = await ask(batching_agent(jobs, capabilities=[together(3)]), 3)
        assert scope.remaining.requests == 1
    assert answers(outcomes) == 2
    assert scope.usage.committed_usd == jobs.billed_usd > 0


@of_both
async def test_a_result_that_is_missing_counts_at_its_bound(kind: type[BatchJobs]) -> None:
    jobs = kind(outcome=lambda body: "missing" if "question 0" in body else "succeeded")
    async with budget_scope(Budget(requests=2)) as scope:
        missing, _ = await ask(batching_agent(jobs), 2)
    assert isinstance(missing, ModelAPIError)
    assert (scope.usage.request_count, scope.usage.unmeasured_requests) == (2, 1)
    assert scope.usage.committed_usd > jobs.billed_usd
    assert not scope.usage.cost_complete


@of_both
async def test_a_run_that_is_cancelled_after_its_batch_was_sent_is_charged_its_bound(
    kind: type[BatchJobs],
) -> None:
    jobs = kind(held=asyncio.Event())
    async with budget_scope(Budget(usd="0.5")) as scope:
        run = asyncio.create_task(batching_agent(jobs).run("?"))
        while not jobs.batches:
            await asyncio.sleep(0.001)
        run.cancel()
        await asyncio.wait([run])
    assert [record.outcome for record in scope.records] == ["unmeasured"]
    assert scope.usage.committed_usd >= jobs.billed_usd > 0
    assert len(jobs.cancelled) == 1


# --- what the account cannot follow ---


@of_both
async def test_batches_of_the_users_own_are_refused_but_for_what_is_set_aside(kind: type[BatchJobs]) -> None:
    jobs = kind()
    model = Metered().model(jobs.model())
    request = BatchRequest(custom_id="mine", messages=[ModelRequest.user_text_prompt("?")])
    async with budget_scope(Budget(usd=1)) as scope:
        with pytest.raises(UnmeteredRequestError, match="BatchModelRequests"):
            await model_request_batch(model, [request], poll_interval=SOON, max_poll_interval=SOON)
        assert jobs.billed == []
        async with spend("0.01") as purchase:
            results = await model_request_batch(model, [request], poll_interval=SOON, max_poll_interval=SOON)
            purchase.settle(jobs.billed_usd)
    assert len(results) == 1
    assert scope.usage.cost_usd == jobs.billed_usd > 0
