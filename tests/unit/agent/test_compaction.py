"""Compactions are requests: `OpenAICompaction` makes one before the request of the agent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import (
    CompactionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext, ModelRequestParameters
from pydantic_ai.models.openai import OpenAICompaction
from support.interruptions import go_on, interrupt, nth
from support.jobs import JobProvider

from fastroai import Budget, CostBudgetExceeded, FastroAgent, Pipeline, SpendLimit, budget_scope, step
from fastroai.agent import Metered
from fastroai.agent.requests.request_terms import CompactionTerms
from fastroai.runtime import Scope
from fastroai.runtime.facts import RequestEnded, StepFinished
from fastroai.steps import StepContext
from fastroai.store import MemoryRunStore
from fastroai.usage import CostCalculator, request_bound

HISTORY: list[ModelMessage] = [
    message
    for number in range(3)
    for message in (
        ModelRequest(parts=[UserPromptPart(f"question {number}")]),
        ModelResponse(parts=[TextPart(f"answer {number}")]),
    )
]


def compacting_agent(provider: JobProvider, **options: Any) -> FastroAgent[Any, str]:
    options = {"capabilities": [OpenAICompaction(message_count_threshold=4)], "max_tokens": 100, **options}
    return FastroAgent(provider.model(), **options)


def alone(execute: Any) -> Pipeline[Any, Any]:
    """A pipeline of one step, as a new process has it."""
    return Pipeline("p", {"alone": step(execute)})


@asynccontextmanager
async def run_around() -> AsyncIterator[Scope]:
    async with Scope("pipeline", "test", parent=None) as scope:
        yield scope


async def test_a_compaction_is_in_the_account_beside_the_request_that_it_is_made_for() -> None:
    provider = JobProvider()
    response = await compacting_agent(provider).run("go on", message_history=HISTORY)
    assert [entry.kind for entry in provider.ledger] == ["compaction", "answer"]
    assert response.usage.request_count == 2
    assert response.cost_usd == provider.billed_usd == 2 * Decimal("0.0000195")
    assert response.usage.cost_complete
    assert [record.use for record in response.records] == ["kept", "kept"]


@pytest.mark.parametrize("given", ["agent=", "capability of the run", "Metered()"])
async def test_it_is_counted_however_the_agent_came_by_its_meter(given: str) -> None:
    provider = JobProvider()
    compaction = OpenAICompaction(message_count_threshold=4)
    async with run_around() as scope:
        if given == "agent=":
            agent = FastroAgent(agent=Agent(provider.model(), capabilities=[compaction]))
            await agent.run("go on", message_history=HISTORY)
        elif given == "Metered()":
            await Agent(provider.model(), capabilities=[compaction, Metered()]).run(
                "go on", message_history=HISTORY
            )
        else:
            await FastroAgent(provider.model()).run(
                "go on", message_history=HISTORY, capabilities=[compaction]
            )
    assert scope.spending.usage.request_count == len(provider.ledger) == 2
    assert scope.spending.usage.cost_usd == provider.billed_usd


async def test_a_budget_of_requests_counts_compactions() -> None:
    provider = JobProvider()
    async with budget_scope(Budget(requests=3)) as scope:
        await compacting_agent(provider).run("go on", message_history=HISTORY)
        with pytest.raises(Exception, match="budget .*reached"):
            await compacting_agent(provider).run("go on", message_history=HISTORY)
    assert scope.usage.request_count == len(provider.ledger) == 3


async def test_a_budget_and_a_spend_limit_that_cannot_pay_for_a_compaction_stop_the_run_before_it() -> None:
    provider = JobProvider()
    limit = SpendLimit(usd="0.005", window="total", key="compaction")
    for budget in (Budget(usd="0.005"), limit):
        with pytest.raises(CostBudgetExceeded) as stop:
            await compacting_agent(provider, budget=budget).run("go on", message_history=HISTORY)
        assert stop.value.usage.request_count == 0
    assert provider.ledger == []
    assert (await limit.status()).spent_usd == 0


async def test_a_compaction_that_fails_is_tried_again_and_counts_once() -> None:
    provider = JobProvider()
    provider.fail_next(1)
    response = await compacting_agent(provider).run("go on", message_history=HISTORY)
    assert (response.usage.request_count, response.usage.failed_requests) == (2, 1)
    assert response.cost_usd == provider.billed_usd


UNSENT: list[ModelMessage] = [ModelRequest.user_text_prompt("no provider has counted this")]


def bound_of(settings: Any, instructions: str | None = None) -> tuple[int | None, int | None]:
    provider = JobProvider()
    parameters = ModelRequestParameters()
    context = ModelRequestContext(
        model=provider.model(), messages=UNSENT, model_settings=settings, model_request_parameters=parameters
    )
    terms = CompactionTerms(
        Metered(), provider.model(), UNSENT, settings, parameters, streamed=False, context=context,
        instructions=instructions,
    )  # fmt: skip
    return terms.bound.input_tokens, terms.bound.output_tokens


def test_max_tokens_does_not_bound_a_compaction_of_openai_and_instructions_do_count() -> None:
    answer = request_bound(
        CostCalculator(), JobProvider().model(), UNSENT, {"max_tokens": 50}, ModelRequestParameters()
    )
    assert answer.input_tokens is not None
    plain, output = bound_of({"max_tokens": 50})
    assert output == 16_384
    assert plain == answer.input_tokens + 4_096
    assert bound_of(None, "be brief")[0] == plain + len("be brief")


@pytest.mark.parametrize(("killed_at", "compactions", "answers"), [(1, 1, 1), (2, 1, 1)])
async def test_a_compaction_on_record_is_not_paid_for_twice(
    killed_at: int, compactions: int, answers: int
) -> None:
    provider, store = JobProvider(), MemoryRunStore()

    async def talk(ctx: StepContext[None]) -> str:
        return (await ctx.run(compacting_agent(provider), "go on", message_history=HISTORY)).output

    await interrupt(alone(talk), store, nth(RequestEnded, killed_at), written=True)
    result = await go_on(alone(talk), store)
    assert result.output == "answer"
    assert (len(provider.of("compaction")), len(provider.of("answer"))) == (compactions, answers)
    assert result.usage.cost_usd == provider.billed_usd


async def test_a_compaction_of_which_nothing_was_heard_counts_at_its_bound() -> None:
    provider, store = JobProvider(), MemoryRunStore()

    async def talk(ctx: StepContext[None]) -> str:
        return (await ctx.run(compacting_agent(provider), "go on", message_history=HISTORY)).output

    await interrupt(alone(talk), store, nth(RequestEnded), written=False)
    result = await go_on(alone(talk), store)
    assert len(provider.of("compaction")) == 2
    assert result.usage.total.request_count == len(provider.ledger) == 3
    assert result.usage.total.committed_usd >= provider.billed_usd
    assert not result.usage.total.cost_complete


async def test_a_compaction_and_a_request_with_the_same_messages_are_told_apart_on_record() -> None:
    provider, store = JobProvider(), MemoryRunStore()
    parameters = ModelRequestParameters()
    kinds: list[str] = []

    async def both(ctx: StepContext[None]) -> str:
        model = Metered().get_wrapper_model(provider.model())
        assert model is not None
        context = ModelRequestContext(
            model=model, messages=HISTORY[:1], model_settings=None, model_request_parameters=parameters
        )
        compacted = await model.compact_messages(context)
        answered = await model.request(HISTORY[:1], None, parameters)
        kinds.extend(type(response.parts[0]).__name__ for response in (compacted, answered))
        return "done"

    await interrupt(alone(both), store, nth(StepFinished), written=False)
    await go_on(alone(both), store)
    assert kinds == ["CompactionPart", "TextPart"] * 2
    assert len(provider.ledger) == 2


async def test_an_estimate_has_nothing_compacted() -> None:
    provider = JobProvider()
    quote = await compacting_agent(provider).estimate("go on", message_history=HISTORY)
    assert "calls a model" in str(quote)
    assert provider.ledger == []


async def test_a_compaction_outside_of_runs_passes() -> None:
    provider = JobProvider()
    model = Metered().get_wrapper_model(provider.model())
    assert model is not None
    context = ModelRequestContext(
        model=model, messages=HISTORY, model_settings=None, model_request_parameters=ModelRequestParameters()
    )
    assert isinstance((await model.compact_messages(context)).parts[0], CompactionPart)
