"""Budgets that run out: what is stopped, what comes before that, and how it goes on afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Sequence
from decimal import Decimal
from typing import Any, Literal

import pytest
from pydantic import BaseModel
from pydantic_ai import ModelRetry, NativeOutput, RunContext, ToolOutput
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import AgentStreamEvent, ModelMessage
from pydantic_ai.models import Model
from support.accounting import Account, listed_cost
from support.leftovers import assert_no_task_is_left
from support.scripted import Answer, ScriptedModel
from support.virtual_time import in_virtual_time, now

from fastroai import (
    Budget,
    BudgetExceeded,
    ChatResponse,
    CostBudgetExceeded,
    CostCalculator,
    FastroAgent,
    Pipeline,
    PipelineConfig,
    StepContext,
    StepExecutionError,
    budget_scope,
    step,
)
from fastroai.agent import ResponseEvent
from fastroai.errors import RequestBudgetExceeded, TimeBudgetExceeded, TokenBudgetExceeded
from fastroai.testing import Fault, ModelServer, Reply, ToolCall, Usage
from fastroai.usage import ModelFallback

Way = Literal["run", "stream", "events"]
WAYS: tuple[Way, ...] = ("run", "stream", "events")
PLENTY = Budget(usd=1)
LONG = "word " * 4_000
"""More than any `max_tokens` here."""


async def answer_of(
    agent: FastroAgent[Any, Any], way: Way, prompt: str | None = "?", **options: Any
) -> ChatResponse[Any]:
    """The answer, asked for in one of the three ways there are."""
    if way == "run":
        return await agent.run(prompt, **options)
    response: ChatResponse[Any] | None = None
    if way == "stream":
        async for chunk in agent.run_stream(prompt, **options):
            response = chunk.usage_data
    else:
        async for event in agent.run_stream_events(prompt, **options):
            if isinstance(event, ResponseEvent):
                response = event.response
    assert response is not None
    return response


async def go_on(
    agent: FastroAgent[Any, Any], way: Way, messages: Sequence[ModelMessage], budget: Budget = PLENTY
) -> ChatResponse[Any]:
    return await answer_of(agent, way, None, message_history=messages, budget=budget)


async def most_of_one_request(agent: FastroAgent[Any, Any]) -> int:
    """Microcents; what a budget says that cannot pay for it."""
    with pytest.raises(CostBudgetExceeded) as caught:
        await agent.run("?", cost_budget=1)
    assert caught.value.requested_microcents is not None
    return caught.value.requested_microcents


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    value: Way = request.param
    return value


# --- going on ---


async def test_a_run_that_was_stopped_goes_on_with_the_request_that_was_not_sent(
    server: ModelServer, model: Model, account: Account, way: Way
) -> None:
    server.script(
        Reply(tool_calls=[ToolCall("look_up", {"number": "7"})], usage=Usage(200, 16)),
        Reply("On its way.", usage=Usage(250, 5)),
    )
    looked_up: list[str] = []

    def look_up(number: str) -> str:
        """An order."""
        looked_up.append(number)
        return "is on its way"

    agent = FastroAgent(model, tools=[look_up], max_tokens=16)
    with pytest.raises(RequestBudgetExceeded) as caught:
        await answer_of(agent, way, budget=Budget(requests=1))
    assert [run.agent for run in caught.value.stopped_runs] == ["agent"]
    response = await go_on(agent, way, caught.value.messages)
    assert (response.output, response.request_count) == ("On its way.", 1)
    assert looked_up == ["7"]
    assert account.outcomes == ["settled", "settled"]
    account.assert_matches()


class City(BaseModel):
    name: str
    population: int
    history: str = ""


@pytest.mark.parametrize("way", ["run", "events"])  # PydanticAI's `run_stream` has no output retries
async def test_a_run_that_was_stopped_before_an_output_retry_goes_on_with_it(
    server: ModelServer, model: Model, account: Account, way: Way
) -> None:
    server.script(
        Reply(data={"name": "Paris", "population": "many"}, usage=Usage(200, 16)),
        Reply(data={"name": "Paris", "population": 2_100_000}, usage=Usage(250, 16)),
    )
    agent = FastroAgent(model, output_type=City, retries=2, max_tokens=16)
    with pytest.raises(RequestBudgetExceeded) as caught:
        await answer_of(agent, way, budget=Budget(requests=1))
    response = await go_on(agent, way, caught.value.messages)
    assert response.output == City(name="Paris", population=2_100_000)
    assert response.request_count == 1
    _, retry = server.ledger.entries
    assert "many" in str(retry.body), "the model is told what was wrong with what it was paid for"
    account.assert_matches()


async def test_a_run_goes_on_past_the_agent_in_its_tool_that_was_stopped(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.rule(lambda request: "Who?" in request.prompt and bool(request.tool_results), Reply("Nobody."))
    server.rule(
        lambda request: "Who?" in request.prompt, Reply(tool_calls=[ToolCall("search", {"words": "who"})])
    )
    server.rule(lambda request: bool(request.tool_results), Reply("It was nobody."))
    server.rule(None, Reply(tool_calls=[ToolCall("ask", {"question": "Who?"})]))
    known: dict[str, str] = {}

    def search(words: str) -> str:
        """Search."""
        return "nothing"

    inner = FastroAgent(server.model("anthropic:claude-haiku-4-5"), name="inner", tools=[search])

    async def ask(question: str) -> str:
        """Ask."""
        return known.get(question) or (await inner.run(question)).output

    outer = FastroAgent(model, name="outer", tools=[ask])
    with pytest.raises(RequestBudgetExceeded) as caught:
        await outer.run("Tell me", budget=Budget(requests=2))
    of_inner, of_outer = caught.value.stopped_runs
    assert (of_inner.agent, of_outer.agent) == ("inner", "outer")
    known["Who?"] = (await go_on(inner, "run", of_inner.messages)).output
    response = await go_on(outer, "run", of_outer.messages)
    assert response.output == "It was nobody."
    assert [record.agent for record in account.records] == ["outer", "inner", "inner", "outer"]
    account.assert_matches()


# --- stepping down ---


@pytest.mark.parametrize("cheaper", ["openai:gpt-5-mini", "openai-chat:gpt-5-mini"])
async def test_from_its_share_on_a_cheaper_model_answers_and_is_what_is_paid(
    server: ModelServer, account: Account, cheaper: str, way: Way
) -> None:
    server.rule(None, Reply("ok", usage=Usage(200, 16)))
    agent = FastroAgent(server.model("anthropic:claude-haiku-4-5"), max_tokens=16)
    fallback = ModelFallback(at=0.1, use=server.model(cheaper))
    async with budget_scope(Budget(microcents=8_000, fallback=fallback)):
        responses = [await answer_of(agent, way) for _ in range(4)]
    # 200 × $1 + 16 × $5 per million, and 200 × $0.25 + 16 × $2: 800 are reached with the third
    assert [(response.model, response.cost_microcents) for response in responses] == [
        *[("claude-haiku-4-5", 280)] * 3,
        ("gpt-5-mini", 82),
    ]
    assert [entry.model for entry in server.ledger.entries] == [response.model for response in responses]
    account.assert_matches()


@pytest.mark.parametrize("cheaper", ["openai:gpt-5-mini", "openai-chat:gpt-5-mini"])
async def test_what_the_rest_cannot_pay_for_goes_to_the_cheaper_model_before_its_share_is_spent(
    server: ModelServer, account: Account, cheaper: str, way: Way
) -> None:
    server.rule(None, Reply("ok", usage=Usage(200, 16)))
    agent = FastroAgent(server.model("anthropic:claude-haiku-4-5"), max_tokens=16)
    microcents = await most_of_one_request(agent) - 1
    fallback = ModelFallback(at=1, use=server.model(cheaper))
    response = await answer_of(agent, way, budget=Budget(microcents=microcents, fallback=fallback))
    assert (response.model, response.cost_microcents) == ("gpt-5-mini", 82)
    account.assert_matches()


async def test_the_cheaper_model_is_stopped_by_the_budget_too(
    server: ModelServer, account: Account, way: Way
) -> None:
    server.rule(None, Reply("ok", usage=Usage(200, 16)))
    agent = FastroAgent(server.model("anthropic:claude-haiku-4-5"), max_tokens=16)
    fallback = ModelFallback(at=0.5, use=server.model("openai:gpt-5-mini"))
    with pytest.raises(CostBudgetExceeded):
        await answer_of(agent, way, budget=Budget(microcents=20, fallback=fallback))
    assert server.ledger.entries == ()
    assert account.records == []


# --- shorter answers ---

STORIES = {"text": str, "tool": ToolOutput(City), "native": NativeOutput(City)}
REPLIES = {
    "text": Reply(LONG),
    "tool": Reply(data={"name": "Paris", "population": 1, "history": LONG}),
    "native": Reply(data={"name": "Paris", "population": 1, "history": LONG}),
}


@pytest.mark.parametrize("kind", STORIES)
async def test_an_answer_that_the_budget_cut_is_a_stop_with_what_there_is_of_it(
    server: ModelServer, model: Model, account: Account, way: Way, kind: str
) -> None:
    server.rule(None, REPLIES[kind])
    agent: FastroAgent[Any, Any] = FastroAgent(model, output_type=STORIES[kind], max_tokens=2_000)
    microcents = await most_of_one_request(agent) * 3 // 4
    with pytest.raises(CostBudgetExceeded) as caught:
        await answer_of(agent, way, cost_budget=microcents)
    stop = caught.value
    assert stop.partial_response is not None
    assert stop.partial_response.finish_reason == "length"
    assert "word word" in str(stop.partial_response.parts)
    [entry] = server.ledger.entries
    assert stop.actual_microcents == round(listed_cost(entry) * 1_000_000) <= microcents
    account.assert_matches(stop.usage)
    assert [message.kind for message in stop.messages] == ["request"], "what was cut is no answer"


@pytest.mark.parametrize("kind", STORIES)
async def test_an_answer_that_its_own_max_tokens_cut_is_no_stop(
    server: ModelServer, model: Model, account: Account, way: Way, kind: str
) -> None:
    server.rule(None, REPLIES[kind])
    agent: FastroAgent[Any, Any] = FastroAgent(
        model, output_type=STORIES[kind], max_tokens=60, budget=PLENTY, retries=0
    )
    if kind == "text":
        assert (await answer_of(agent, way)).output in LONG
    else:
        with pytest.raises(UnexpectedModelBehavior):
            await answer_of(agent, way)
    assert account.records[0].finish_reason == "length"
    account.assert_matches()


# --- time ---


async def test_what_is_in_flight_when_the_time_is_over_is_charged_at_its_bound(
    server: ModelServer, model: Model, account: Account, way: Way
) -> None:
    server.rule(None, Reply("late", usage=Usage(40, 4), fault=Fault.hang()))
    agent = FastroAgent(model, max_tokens=16)
    with pytest.raises(TimeBudgetExceeded) as caught:
        async with budget_scope(Budget(ms=20)) as scope:
            with scope.paused():
                task = asyncio.create_task(answer_of(agent, way))
                await server.ledger.wait_for(1)
            await task
    assert (caught.value.limit, caught.value.usage.unmeasured_requests) == (20, 1)
    assert account.outcomes == ["unmeasured"]
    account.assert_matches(caught.value.usage)
    assert_no_task_is_left()


PRICES = CostCalculator(pricing_overrides={"scripted:paid": {"input_per_mtok": 0, "output_per_mtok": 1}})


def slow_agent(seconds: float, **options: Any) -> FastroAgent[Any, str]:
    """An agent whose answers take so long, and cost 10 of the 16 microcents that they are reserved at."""
    model = ScriptedModel(lambda *_: Answer(10, seconds=seconds))
    return FastroAgent(model, cost_calculator=PRICES, max_tokens=16, **options)


def pipeline_of(
    agent: FastroAgent[Any, str],
    *,
    budget: Budget | None = None,
    step_budget: Budget | None = None,
    on_error: Literal["fail", "continue"] = "fail",
) -> Pipeline[Any, Any]:
    """Two steps side by side: one that waits for a person and calls the agent, and one that does neither."""

    @step(budget=step_budget)
    async def spend(ctx: StepContext) -> str:
        with ctx.budget.paused():
            await asyncio.sleep(60)
        first = await ctx.run(agent, "?")
        second = await ctx.run(agent, "?")
        return first.output + second.output

    @step
    async def rest(ctx: StepContext) -> str:
        return "rested"

    config = PipelineConfig(budget=budget, on_error=on_error)
    return Pipeline("p", {"spend": spend, "rest": rest}, output_step="spend", config=config)


def assert_stopped_in_the_second_request(stop: BudgetExceeded, path: tuple[str, ...]) -> None:
    assert isinstance(stop, TimeBudgetExceeded)
    assert (stop.limit, stop.scope_path) == (2_500, path)
    assert (stop.usage.cost_microcents, stop.usage.unmeasured_requests) == (10, 1)
    assert stop.usage.committed_usd == Decimal("0.000026")


@in_virtual_time
async def test_the_time_of_a_scope_stops_what_is_inside() -> None:
    agent = slow_agent(2)
    with pytest.raises(TimeBudgetExceeded) as caught:
        async with budget_scope(Budget(ms=2_500), name="hurry") as scope:
            with scope.paused():
                await asyncio.sleep(60)
            await agent.run("?")
            await agent.run("?")
    assert_stopped_in_the_second_request(caught.value, ("hurry",))
    assert now() == 62.5


@in_virtual_time
async def test_the_time_of_an_agent_stops_each_of_its_calls() -> None:
    agent = slow_agent(2, budget=Budget(ms=2_500), name="slow", retries=5)
    tries = 0

    @agent.agent.output_validator
    async def reject(output: str) -> str:
        nonlocal tries
        tries += 1
        raise ModelRetry("again")

    for _ in range(2):
        started = now()
        with pytest.raises(TimeBudgetExceeded) as caught:
            await agent.run("?")
        assert_stopped_in_the_second_request(caught.value, ("slow",))
        assert now() - started == 2.5
    assert tries == 2


@in_virtual_time
async def test_the_time_of_a_step_is_its_own_failure_and_people_are_not_hurried() -> None:
    pipeline = pipeline_of(slow_agent(2), step_budget=Budget(ms=2_500))
    with pytest.raises(StepExecutionError) as caught:
        await pipeline.execute()
    assert isinstance(caught.value.original_error, TimeBudgetExceeded)
    assert_stopped_in_the_second_request(caught.value.original_error, ("p", "spend"))
    assert caught.value.step_outputs == {"rest": "rested"}
    assert now() == 62.5


@in_virtual_time
async def test_the_time_of_a_pipeline_stops_the_run_and_people_are_not_hurried() -> None:
    pipeline = pipeline_of(slow_agent(2), budget=Budget(ms=2_500), on_error="continue")
    with pytest.raises(TimeBudgetExceeded) as caught:
        await pipeline.execute()
    assert_stopped_in_the_second_request(caught.value, ("p",))
    assert caught.value.step_outputs == {"rest": "rested"}
    assert now() == 62.5


# --- whose budget it is ---


async def budgets_of_one_request(agent: FastroAgent[Any, str]) -> dict[type[BudgetExceeded], Budget]:
    """Budgets that pay for one request of the agent, and not for two."""
    with pytest.raises(TokenBudgetExceeded) as caught:
        await agent.run("?", budget=Budget(tokens=1))
    assert caught.value.requested is not None
    return {
        CostBudgetExceeded: Budget(microcents=10),
        TokenBudgetExceeded: Budget(tokens=caught.value.requested),
        RequestBudgetExceeded: Budget(requests=1),
        TimeBudgetExceeded: Budget(ms=2_500),
    }


@in_virtual_time
async def test_a_budget_of_a_step_is_its_own_failure() -> None:
    for kind, budget in (await budgets_of_one_request(slow_agent(2))).items():
        result = await pipeline_of(slow_agent(2), step_budget=budget, on_error="continue").execute()
        assert not result.ok
        assert result.output is None
        assert isinstance(result.errors["spend"], kind), result.errors
        assert result.step_outputs == {"rest": "rested"}
        assert result.usage.request_count == (2 if kind is TimeBudgetExceeded else 1)


@in_virtual_time
async def test_a_budget_around_a_step_stops_the_run() -> None:
    for kind, budget in (await budgets_of_one_request(slow_agent(2))).items():
        pipeline = pipeline_of(slow_agent(2), budget=budget, step_budget=PLENTY, on_error="continue")
        with pytest.raises(kind) as caught:
            await pipeline.execute()
        assert caught.value.scope_path == ("p",)
        assert caught.value.step_outputs == {"rest": "rested"}
        assert caught.value.usage.request_count == (2 if kind is TimeBudgetExceeded else 1)


@in_virtual_time
async def test_a_stop_is_not_tried_again() -> None:
    for kind, budget in (await budgets_of_one_request(slow_agent(2))).items():
        asked: list[str] = []

        def plan(*_: object, asked: list[str] = asked) -> Answer:
            asked.append("?")
            return Answer(10, seconds=2)

        agent = FastroAgent(ScriptedModel(plan), cost_calculator=PRICES, max_tokens=16)

        @step(budget=budget, retries=3)
        async def spend(ctx: StepContext, agent: FastroAgent[Any, str] = agent) -> str:
            await ctx.run(agent, "?")
            return (await ctx.run(agent, "?")).output

        with pytest.raises(StepExecutionError) as caught:
            await Pipeline("p", {"spend": spend}).execute()
        assert isinstance(caught.value.original_error, kind)
        assert len(asked) == (2 if kind is TimeBudgetExceeded else 1)


# --- inside of an open stream ---


@pytest.mark.parametrize("way", ["stream", "events", "handler"])
async def test_a_call_inside_an_open_stream_does_not_wait_for_its_end(
    server: ModelServer, model: Model, account: Account, way: str
) -> None:
    """What the stream has reserved is free only when it has ended, and it ends after the call."""
    server.rule(None, Reply("word " * 20, usage=Usage(20, 16)))
    agent = FastroAgent(model, max_tokens=16, request_retries=0)
    microcents = await most_of_one_request(agent) + 1
    stops: list[CostBudgetExceeded] = []

    async def ask_inside() -> None:
        if not stops:
            with pytest.raises(CostBudgetExceeded) as caught:
                await agent.run("inside")
            stops.append(caught.value)

    async def handle(context: RunContext[Any], events: AsyncIterable[AgentStreamEvent]) -> None:
        async for _ in events:
            await ask_inside()

    async with budget_scope(Budget(microcents=microcents)):
        if way == "handler":
            outer = await agent.run("?", event_stream_handler=handle)
        else:
            stream: Any = (agent.run_stream if way == "stream" else agent.run_stream_events)("?")
            async for item in stream:
                await ask_inside()
                outer = item
    assert len(stops) == 1
    assert stops[0].actual_microcents == 0, "the stream around it has not ended"
    assert outer is not None
    assert account.outcomes == ["settled"]
    account.assert_matches()
