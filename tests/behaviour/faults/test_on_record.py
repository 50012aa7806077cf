"""The same faults in runs that are on record: what has failed can go on when the server is well again."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.exceptions import ModelRateLimitError
from pydantic_ai.models import Model
from support.accounting import assert_account_matches
from support.asking import PATIENT, Way
from support.leftovers import assert_no_task_is_left

from fastroai import Budget, FastroAgent, Pipeline, PipelineConfig, StepContext, StepExecutionError, step
from fastroai.errors import BudgetExceeded, records_of, usage_of
from fastroai.runtime import FailureClass, RetryPolicy
from fastroai.runtime.budgets.ledger import Account as BudgetAccount
from fastroai.runtime.events import SpendRecorded
from fastroai.store import MemoryRunStore, RunHistory
from fastroai.testing import Fault, ModelServer, Reply, ServedRequest, Usage

SPENT = Usage(20, 5)

pytestmark = pytest.mark.parametrize("reference", ["openai-chat:gpt-5-mini", "anthropic:claude-haiku-4-5"])

FAULTS = pytest.mark.parametrize(
    ("fault", "failure", "requests"),
    [
        (Fault.status(429, retry_after=0.01), "recoverable", 4),
        (Fault.disconnect(), "ambiguous", 2),
        (Fault.malformed(after=1), "ambiguous", 2),
    ],
    ids=["429", "disconnect", "malformed"],
)


class Weather:
    """What the server does to those who ask it to tell something."""

    fault: Fault | None = None

    def __call__(self, request: ServedRequest) -> Reply:
        asked_to_plan = request.prompt == "Plan"
        text = "a plan" if asked_to_plan else "a story"
        return Reply(text, usage=SPENT, fault=None if asked_to_plan else self.fault)


@pytest.fixture
def weather(server: ModelServer) -> Weather:
    weather = Weather()
    server.rule(None, weather)
    return weather


def planner(model: Model, way: Way = "ctx.run", **options: Any) -> Pipeline[Any, Any, str]:
    """Two steps, which ask the same agent."""
    agent = FastroAgent(model, max_tokens=100)
    settings: dict[str, Any] = {"retry": PATIENT, "budget": Budget(usd="1")} | options

    @step
    async def plan(ctx: StepContext) -> str:
        return (await ctx.run(agent, "Plan")).output

    @step
    async def tell(ctx: StepContext) -> str:
        if way == "ctx.run":
            return (await ctx.run(agent, "Tell")).output
        stream = ctx.run_stream(agent, "Tell")
        async for _ in stream:
            pass
        assert stream.response is not None
        return stream.response.output

    return Pipeline(
        "planner",
        {"plan": plan, "tell": tell},
        dependencies={"tell": ["plan"]},
        config=PipelineConfig(**settings),
    )


@pytest.mark.parametrize("way", ["ctx.run", "ctx.run_stream"])
@FAULTS
async def test_a_run_that_a_fault_has_ended_goes_on_when_the_fault_has_passed(
    server: ModelServer,
    model: Model,
    weather: Weather,
    accounts: list[BudgetAccount],
    way: Way,
    fault: Fault,
    failure: str,
    requests: int,
) -> None:
    store = MemoryRunStore()
    weather.fault = fault
    with pytest.raises(StepExecutionError) as caught:
        await planner(model, way).execute(run_id="r", store=store)
    assert len(server.ledger.entries) == 1 + requests
    assert_account_matches(server.ledger, records_of(caught.value), usage_of(caught.value))

    weather.fault = None
    result = await planner(model, way).resume("r", store=store)
    assert result.output == "a story"
    assert len(server.ledger.entries) == 1 + requests + 1, "the plan was there, and one story is enough"
    records = result.usage.records
    assert_account_matches(server.ledger, records)
    assert sorted(record.use for record in records) == sorted(
        ["kept", *["retried"] * (requests - 1), "failed", "kept"]
    )

    trace = await RunHistory(store).trace("r")
    assert {failed.failure.failure_class for failed in trace.failures() if failed.failure} == {failure}
    assert trace.usage.request_count == result.usage.request_count
    assert accounts, "there was a budget, which is looked at when the test is over"
    assert_no_task_is_left()


async def test_what_faults_may_have_cost_is_missing_in_the_budget_when_the_run_goes_on(
    server: ModelServer, model: Model, weather: Weather
) -> None:
    store = MemoryRunStore()
    weather.fault = Fault.disconnect()
    pipeline = planner(model, budget=Budget(requests=3))
    with pytest.raises(StepExecutionError):
        await pipeline.execute(run_id="r", store=store)
    weather.fault = None
    with pytest.raises(BudgetExceeded):
        await pipeline.resume("r", store=store)
    assert len(server.ledger.entries) == 3


@pytest.mark.parametrize(
    ("fault", "failure", "most"),
    [
        (Fault.status(503), FailureClass.RECOVERABLE, 4),
        (Fault.disconnect(), FailureClass.AMBIGUOUS, 2),
    ],
    ids=["503", "disconnect"],
)
async def test_attempts_that_were_used_up_before_a_crash_are_not_had_again(
    server: ModelServer, model: Model, weather: Weather, fault: Fault, failure: FailureClass, most: int
) -> None:
    """The process is gone while it waits before the first retry."""
    store = MemoryRunStore()
    weather.fault = fault
    late = RetryPolicy(PATIENT[failure].max_retries, backoff=600, max_backoff=600, jitter="none")
    async with planner(model, retry={failure: late}).stream(run_id="r", store=store) as stream:
        async for event in stream:
            if isinstance(event, SpendRecorded) and event.record.error is not None:
                break  # and out of the block, which cancels the run
    assert len(server.ledger.entries) == 2

    with pytest.raises(StepExecutionError) as caught:
        await planner(model).resume("r", store=store)
    assert [record.attempt for record in records_of(caught.value)] == [1, *range(1, most + 1)]
    assert len(server.ledger.entries) == 1 + most
    assert_account_matches(server.ledger, records_of(caught.value), usage_of(caught.value))


async def test_a_wish_past_the_deadline_is_final_on_record_too(
    server: ModelServer, model: Model, weather: Weather
) -> None:
    store = MemoryRunStore()
    weather.fault = Fault.status(429, retry_after=600)
    with pytest.raises(StepExecutionError) as caught:
        await planner(model, total_timeout=60).execute(run_id="r", store=store)
    error = caught.value.original_error
    assert isinstance(error, ModelRateLimitError)
    assert error.__notes__[0].startswith("not retried: the provider asked to wait 600 s, and pipeline")
    assert len(server.ledger.entries) == 2
