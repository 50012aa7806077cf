"""What a budget that runs short does: a shorter answer, a cheaper model, a stop, and going on after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from support.accounting import Account
from support.agents import paid_agent, request_costs, streaming_agent
from support.leftovers import assert_no_task_is_left
from support.virtual_time import in_virtual_time, now

from fastroai import (
    Budget,
    ChatResponse,
    CostBudgetExceeded,
    FastroAgent,
    Pipeline,
    PipelineConfig,
    StepContext,
    budget_scope,
    step,
)
from fastroai.errors import TimeBudgetExceeded
from fastroai.pipelines import BudgetRefused, RunEvent
from fastroai.testing import ModelServer, Reply, ToolCall, Usage

LONG_TEXT = "word " * 4_000
"""More than any `max_tokens` here."""
LONG = Reply(LONG_TEXT)


async def answer_of(agent: FastroAgent[Any, str], streamed: bool, **options: Any) -> ChatResponse[str]:
    """The answer to a question, or to the history that is given."""
    prompt = None if "message_history" in options else "?"
    if not streamed:
        return await agent.run(prompt, **options)
    async for chunk in agent.run_stream(prompt, **options):
        last = chunk
    assert last.usage_data is not None
    return last.usage_data


async def most_of_one_request(agent: FastroAgent[Any, str]) -> int:
    """Microcents; what a budget says that cannot pay for it."""
    with pytest.raises(CostBudgetExceeded) as caught:
        await agent.run("?", cost_budget=1)
    assert caught.value.requested_microcents is not None
    return caught.value.requested_microcents


# --- shorter answers ---


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_that_the_budget_cut_is_a_stop_and_can_be_asked_for_again(
    server: ModelServer, model: Model, account: Account, streamed: bool
) -> None:
    server.rule(None, LONG)
    agent = FastroAgent(model, max_tokens=2_000)
    microcents = await most_of_one_request(agent) * 3 // 4
    told: list[RunEvent] = []
    async with budget_scope(Budget(microcents=microcents), on_event=told.append):
        with pytest.raises(CostBudgetExceeded) as caught:
            await answer_of(agent, streamed)
    stop = caught.value
    assert stop.partial_response is not None
    assert stop.partial_response.finish_reason == "length"
    assert 0 < len(stop.partial_response.text or "") < 2_000 * 4, "shorter than it was asked for"
    assert stop.actual_microcents == stop.usage.cost_microcents > 0
    assert stop.actual_microcents <= stop.budget_microcents == microcents
    assert "it paid for the beginning of the last answer" in str(stop)
    assert isinstance(told[-1], BudgetRefused)
    assert told[-1].error is stop
    account.assert_matches()
    assert [message.kind for message in stop.messages] == ["request"]
    whole = await answer_of(agent, streamed, message_history=stop.messages, cost_budget=microcents * 2)
    assert whole.request_count == 1, "what was cut is no answer: it is asked for again"
    assert len(whole.output) > len(stop.partial_response.text or "")
    account.assert_matches()


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_that_is_short_enough_is_one_whatever_it_could_have_been(
    server: ModelServer, model: Model, account: Account, streamed: bool
) -> None:
    server.rule(None, Reply("Yes."))
    agent = FastroAgent(model, max_tokens=2_000)
    microcents = await most_of_one_request(agent) * 3 // 4
    assert (await answer_of(agent, streamed, cost_budget=microcents)).output == "Yes."
    account.assert_matches()


# --- going on ---


async def test_going_on_after_a_stop_repeats_no_request_that_was_paid_for(
    server: ModelServer, model: Model, account: Account
) -> None:
    looked_up: list[str] = []

    def look_up(number: str) -> str:
        """An order."""
        looked_up.append(number)
        return f"order {number} is on its way"

    server.script(
        Reply(tool_calls=[ToolCall("look_up", {"number": "7"})], usage=Usage(200, 16)),
        Reply("On its way.", usage=Usage(250, 5)),
    )
    agent = FastroAgent(model, tools=[look_up], max_tokens=16)
    with pytest.raises(CostBudgetExceeded) as caught:
        await agent.run("Where is it?", cost_budget=await most_of_one_request(agent) + 1)
    stop = caught.value
    assert [run.agent for run in stop.stopped_runs] == ["agent"]
    response = await agent.run(message_history=stop.messages, cost_budget=1_000_000)
    assert response.output == "On its way."
    assert looked_up == ["7"]
    assert account.outcomes == ["settled", "settled"]
    account.assert_matches()


async def test_a_stop_has_the_runs_of_all_agents_that_it_went_through() -> None:
    inner = paid_agent(100, name="inner")

    async def ask_inner(prompt: str) -> None:
        await inner.run("inside")

    outer = paid_agent(100, name="outer", before=ask_inner)
    with pytest.raises(CostBudgetExceeded) as caught:
        await outer.run("outside", budget=Budget(microcents=150))
    assert [run.agent for run in caught.value.stopped_runs] == ["inner", "outer"]
    [request] = caught.value.messages
    assert "outside" in str(request)


@in_virtual_time
async def test_the_beginning_of_an_answer_that_took_too_long_is_no_answer_to_go_on_from() -> None:
    async def slowly(prompt: str) -> AsyncIterator[str]:
        for word in ("one ", "two ", "three"):
            await asyncio.sleep(1)
            yield word

    agent = streaming_agent(slowly, cost_calculator=request_costs(100))
    with pytest.raises(TimeBudgetExceeded) as caught:
        await answer_of(agent, True, budget=Budget(ms=2_500))
    assert [message.kind for message in caught.value.messages] == ["request"]
    response = await answer_of(agent, True, message_history=caught.value.messages)
    assert (response.output, response.request_count) == ("one two three", 1)


# --- another model ---


async def test_each_candidate_draws_on_the_budget_and_nobody_falls_back_from_a_stop() -> None:
    asked: list[str] = []

    def fail(*_: object) -> ModelResponse:
        asked.append("first")
        raise ModelAPIError("paid", "no")

    def answer(*_: object) -> ModelResponse:
        asked.append("second")
        return ModelResponse(parts=[TextPart("yes")])

    models = [FunctionModel(function, model_name="paid") for function in (fail, answer)]
    agent = FastroAgent(FallbackModel(*models), cost_calculator=request_costs(100))
    with pytest.raises(CostBudgetExceeded) as caught:
        await agent.run("?", cost_budget=150)
    assert (asked, caught.value.actual_microcents) == (["first"], 100)
    response = await agent.run("?", cost_budget=200)
    assert response.output == "yes"
    assert response.usage.committed_usd == Decimal("0.0002")


# --- side by side ---


@in_virtual_time
async def test_whoever_reads_two_streams_one_after_the_other_is_not_stuck() -> None:
    """The second waits for what the first has reserved, which ends only if somebody reads it."""

    async def words(prompt: str) -> AsyncIterator[str]:
        for word in ("one ", "two ", "three ", "four ", "five"):
            await asyncio.sleep(1)
            yield word

    agent = streaming_agent(words, cost_calculator=request_costs(100))
    async with budget_scope(Budget(microcents=150)):
        first = [""]
        async for chunk in agent.run_stream("first"):
            first.append(chunk.content)
            if len(first) == 3:
                with pytest.raises(CostBudgetExceeded):
                    await answer_of(agent, True)
    assert "".join(first) == "one two three four five"
    assert now() < 10
    assert_no_task_is_left()


async def test_steps_side_by_side_wait_for_each_other_rather_than_pass_their_budget() -> None:
    together = asyncio.Barrier(2)

    async def meet(prompt: str) -> None:
        await together.wait()

    agent = paid_agent(40, before=meet)

    @step
    async def ask(ctx: StepContext) -> str:
        return (await ctx.run(agent, "?")).output

    steps = dict.fromkeys(("a", "b", "c", "d"), ask)
    pipeline: Pipeline[Any, Any] = Pipeline(
        "p", steps, output_step="a", config=PipelineConfig(cost_budget=100, on_error="continue")
    )
    with pytest.raises(CostBudgetExceeded) as caught:
        await pipeline.execute()
    assert caught.value.scope_path == ("p",)
    assert caught.value.usage.cost_microcents == 80
    assert_no_task_is_left()
