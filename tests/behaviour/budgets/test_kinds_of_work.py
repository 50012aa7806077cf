"""Every way in which requests come about, on one budget, by the books of the server that answered them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from decimal import Decimal
from itertools import cycle
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from support.accounting import assert_account_matches, listed_cost
from support.leftovers import assert_no_task_is_left

from fastroai import Budget, BudgetExceeded, FastroAgent, Pipeline, StepContext, budget_scope, step
from fastroai.runtime import Reservation, Scope, admit
from fastroai.testing import Fault, ModelServer, Reply, ServedRequest, ToolCall

MOST = 64
"""Tokens of each answer."""
REFERENCES = ("openai:gpt-5-mini", "openai-chat:gpt-5-mini", "anthropic:claude-haiku-4-5")
"""Each protocol does some of the kinds: which requests there are does not depend on it."""

Kind = Callable[[ModelServer, Model], Awaitable[object]]


def look_up(number: int) -> str:
    """An order."""
    return f"order {number} is on its way"


def tool_calls(request: ServedRequest) -> Reply:
    """Three calls, one after the other, and an answer."""
    if len(request.tool_results) < 3:
        return Reply(tool_calls=[ToolCall("look_up", {"number": len(request.tool_results)})])
    return Reply("All of them are on their way.")


async def tool_loop(server: ModelServer, model: Model) -> object:
    server.rule(None, tool_calls)
    return await FastroAgent(model, tools=[look_up], max_tokens=MOST).run("Where are they?")


class City(BaseModel):
    name: str
    population: int


async def output_retries(server: ModelServer, model: Model) -> object:
    seen: list[City] = []
    server.rule(None, Reply(data={"name": "Paris", "population": 2_100_000}))
    agent = FastroAgent(model, output_type=City, retries=3, max_tokens=MOST)

    @agent.agent.output_validator
    def third_time(city: City) -> City:
        seen.append(city)
        if len(seen) < 3:
            raise ModelRetry("not sure enough")
        return city

    return await agent.run("Where?")


async def candidates(server: ModelServer, model: Model) -> object:
    """The first one's connection breaks each time, after which it may have been billed."""
    other = "openai:gpt-5-mini" if model.system == "anthropic" else "anthropic:claude-haiku-4-5"
    server.rule(lambda request: request.model == model.model_name, Reply("Nobody.", fault=Fault.disconnect()))
    server.rule(None, Reply("Nobody."))
    agent = FastroAgent(FallbackModel(model, server.model(other)), max_tokens=MOST, request_retries=1)
    return [await agent.run(f"Who is number {number}?") for number in range(3)]


async def agents_in_tools(server: ModelServer, model: Model) -> object:
    inner = FastroAgent(model, name="inner", max_tokens=MOST)

    async def ask(question: str) -> str:
        """Ask somebody."""
        return (await inner.run(question)).output

    server.rule(
        lambda request: bool(request.tools) and not request.tool_results,
        Reply(tool_calls=[ToolCall("ask", {"question": f"Who is {name}?"}) for name in ("Ada", "Bo", "Cy")]),
    )
    server.rule(None, Reply("Nobody."))
    return await FastroAgent(model, name="outer", tools=[ask], max_tokens=MOST).run("Who are they?")


def pipeline_of(*steps: Any) -> Pipeline[Any, Any]:
    named = {f"s{number}": one for number, one in enumerate(steps)}
    return Pipeline("work", named, output_step="s0")


async def steps_side_by_side(server: ModelServer, model: Model) -> object:
    agent = FastroAgent(model, max_tokens=MOST)

    @step
    async def ask(ctx: StepContext[Any]) -> str:
        return (await ctx.run(agent, f"This is {ctx.step_id}")).output

    return await pipeline_of(*[ask] * 6).execute()


async def a_map(server: ModelServer, model: Model) -> object:
    agent = FastroAgent(model, max_tokens=MOST)

    @step
    async def ask(ctx: StepContext[Any]) -> int:
        return len(await ctx.map(agent, [f"This is {number}" for number in range(8)], concurrency=4))

    return await pipeline_of(ask).execute()


async def threads(server: ModelServer, model: Model) -> object:
    agent = FastroAgent(model, max_tokens=MOST)

    @step
    def ask(ctx: StepContext[Any]) -> str:
        return ctx.run_sync(agent, f"This is {ctx.step_id}").output

    return await pipeline_of(*[ask] * 6).execute()


KINDS: tuple[Kind, ...] = (
    tool_loop,
    output_retries,
    candidates,
    agents_in_tools,
    steps_side_by_side,
    a_map,
    threads,
)


def billed_usd(server: ModelServer) -> Decimal:
    """By the published prices."""
    return sum((listed_cost(entry) for entry in server.ledger.billed), Decimal(0))


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> list[Decimal]:
    """What each request can cost at most."""
    known: list[Decimal] = []

    async def noting(scope: Scope, terms: Any) -> Reservation[Any]:
        known.append(terms.bound.cost_usd)
        return await admit(scope, terms)

    monkeypatch.setattr("fastroai.agent.requests.request_attempt.admit", noting)
    return known


async def work_within(server: ModelServer, model: Model, kind: Kind, limit: Decimal) -> BudgetExceeded | None:
    """What has stopped it, if anything has; the books are in order in any case."""
    server.reset()
    stop: BudgetExceeded | None = None
    async with budget_scope(Budget(usd=limit)) as scope:
        try:
            await kind(server, model)
        except BudgetExceeded as error:
            stop = error
        assert scope.remaining.usd == limit - scope.usage.committed_usd, "something is still reserved"
    assert_no_task_is_left()
    assert billed_usd(server) <= scope.usage.committed_usd <= limit
    assert_account_matches(server.ledger, scope.records, scope.usage)
    return stop


@pytest.mark.parametrize(
    ("kind", "reference"),
    list(zip(KINDS, cycle(REFERENCES), strict=False)),
    ids=lambda of: getattr(of, "__name__", of),
    indirect=["reference"],
)
async def test_all_of_it_draws_on_the_budget_around_it_and_is_stopped_only_where_it_must(
    server: ModelServer, model: Model, kind: Kind, bounds: list[Decimal]
) -> None:
    async with budget_scope(Budget(usd=1)) as scope:
        await kind(server, model)
    whole, most = scope.usage.committed_usd, max(bounds)
    assert len(bounds) == len(server.ledger.entries) >= 3
    assert await work_within(server, model, kind, whole + most) is None, "each fits, when it is alone"
    for share in ("0.3", "0.6", "0.9"):
        stop = await work_within(server, model, kind, whole * Decimal(share))
        assert stop is not None
        if stop.partial_response is None:
            assert stop.requested is not None
            assert stop.committed + stop.requested > stop.limit
        assert stop.messages, "there is something to go on from"
