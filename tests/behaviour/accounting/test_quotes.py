"""What calls cost lies within the quotes that were made before, which cost nothing."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import UsageLimits
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from support.accounting import Account

from fastroai import Budget, BudgetExceeded, FastroAgent, Pipeline, PipelineConfig, StepContext, step
from fastroai.testing import Fault, ModelServer, Reply, ToolCall, Usage
from fastroai.usage import Quote

PROMPTS = ["hi", "Write a poem about the sea. " * 200, "日本語のテキスト 🐑" * 50]


class City(BaseModel):
    name: str
    people: int


def assert_within(account: Account, quote: Quote) -> None:
    """What was paid, and what may have been, is within the quote."""
    assert quote.lower_usd <= account.usage.cost_usd
    assert quote.upper_usd is not None
    assert account.usage.committed_usd <= quote.upper_usd
    account.assert_matches()


async def estimated(server: ModelServer, agent: FastroAgent[Any, Any], prompt: str, **options: Any) -> Quote:
    """The quote, which sends nothing."""
    quote = await agent.estimate(prompt, **options)
    assert not server.ledger.entries
    return quote


@pytest.mark.parametrize("prompt", PROMPTS)
async def test_a_call_costs_what_its_quote_allows(
    server: ModelServer, model: Model, account: Account, prompt: str
) -> None:
    agent = FastroAgent(model, instructions="Be brief.", max_tokens=1_000)
    quote = await estimated(server, agent, prompt)
    await agent.run(prompt)
    assert_within(account, quote)


async def test_a_call_is_expected_to_cost_what_the_last_one_did(
    server: ModelServer, model: Model, account: Account
) -> None:
    agent = FastroAgent(model, instructions="Be brief.", max_tokens=1_000)
    await agent.run("How are you?")
    quote = await agent.estimate("How are you?")
    assert abs(quote.expected_usd - account.usage.cost_usd) < Decimal("0.00002")


async def test_a_conversation_costs_what_its_quote_allows(
    server: ModelServer, model: Model, account: Account
) -> None:
    agent = FastroAgent(model, max_tokens=500)
    history = (await agent.run("hello " * 100)).all_messages()
    before = account.usage
    sent = len(server.ledger.entries)
    quote = await agent.estimate("and now?", message_history=history)
    assert len(server.ledger.entries) == sent
    await agent.run("and now?", message_history=history)
    assert quote.upper_usd is not None
    assert quote.lower_usd <= account.usage.cost_usd - before.cost_usd <= quote.upper_usd


async def test_a_call_that_exceeds_its_budget_costs_what_its_quote_allows(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.rule(None, Reply("hello", usage=Usage(10, 4_000)))
    budget = Budget(usd="0.005", admission="expected")
    agent = FastroAgent(model, max_tokens=4_000)
    quote = await agent.estimate("?", budget=budget)
    await agent.run("?", budget=budget)
    assert quote.upper_usd is not None
    assert budget.usd is not None
    assert quote.expected_usd < budget.usd < account.usage.cost_usd <= quote.upper_usd


@pytest.mark.parametrize("output_type", [City, [City, str]])
async def test_outputs_that_are_asked_for_again_are_in_the_quote(
    server: ModelServer, model: Model, account: Account, output_type: Any
) -> None:
    server.script(Reply(fault=Fault.wrong_schema()), Reply(data={"name": "Paris", "people": 2_000_000}))
    agent = FastroAgent(model, output_type=output_type, max_tokens=500, retries=1)
    quote = await estimated(server, agent, "Paris", usage_limits=UsageLimits(request_limit=2))
    await agent.run("Paris")
    assert account.usage.request_count == 2
    assert_within(account, quote)


async def test_an_output_that_stays_wrong_costs_what_the_quote_allows(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.rule(None, Reply(fault=Fault.wrong_schema()))
    agent = FastroAgent(model, output_type=City, max_tokens=500, retries={"tools": 0, "output": 3})
    quote = await estimated(server, agent, "Paris")
    with pytest.raises(UnexpectedModelBehavior):
        await agent.run("Paris")
    assert account.usage.request_count > 1
    assert_within(account, quote)


async def test_tools_that_do_not_exist_are_in_the_quote(
    server: ModelServer, model: Model, account: Account
) -> None:
    made_up = [Reply(tool_calls=[ToolCall(name, {})]) for name in "abcdef"]
    server.script(*made_up, Reply(data={"name": "Paris", "people": 2_000_000}))
    agent = FastroAgent(model, output_type=City, max_tokens=500)
    quote = await estimated(server, agent, "Paris")
    await agent.run("Paris")
    assert account.usage.request_count == 7
    assert_within(account, quote)


@pytest.mark.parametrize("fault", [Fault.status(503), Fault.disconnect(), Fault.cut(after=2)])
async def test_attempts_that_fail_are_in_the_quote(
    server: ModelServer, model: Model, account: Account, fault: Fault
) -> None:
    server.fail_next(2, fault)
    agent = FastroAgent(model, max_tokens=500, request_retries=2, retries=0)
    quote = await estimated(server, agent, "hello")
    await agent.run("hello")
    assert len(server.ledger.entries) == 3
    assert quote.upper_usd is not None
    assert quote.lower_usd <= account.usage.cost_usd
    assert account.usage.committed_usd <= quote.upper_usd


async def test_candidates_of_a_fallback_model_are_in_the_quote(server: ModelServer, account: Account) -> None:
    server.fail_next(1, Fault.disconnect())
    models = [server.model(name) for name in ("openai:gpt-5-mini", "anthropic:claude-haiku-4-5")]
    agent = FastroAgent(FallbackModel(*models), max_tokens=500, request_retries=0)
    quote = await estimated(server, agent, "hello")
    await agent.run("hello")
    assert len(server.ledger.entries) == 2
    assert_within(account, quote)


async def test_a_budget_caps_the_quote_of_an_agent_with_tools(
    server: ModelServer, model: Model, account: Account
) -> None:
    def again(word: str) -> str:
        """Say it again."""
        return word * 100

    server.rule(None, Reply(tool_calls=[ToolCall("again", {"word": "baa"})]))
    agent = FastroAgent(model, tools=[again], max_tokens=500, budget=Budget(usd="0.02"))
    quote = await estimated(server, agent, "hello")
    assert quote.upper_usd == Decimal("0.02")
    with pytest.raises(BudgetExceeded):
        await agent.run("hello", usage_limits=UsageLimits(request_limit=None))
    assert_within(account, quote)


@pytest.mark.parametrize("budget", [None, 20_000])
async def test_a_pipeline_costs_what_its_quote_allows(
    server: ModelServer, reference: str, budget: int | None
) -> None:
    writer = FastroAgent(server.model(reference), name="writer", max_tokens=300, retries=0, request_retries=0)
    inner: Pipeline[Any, Any, str] = Pipeline(
        "inner", {"say": writer.as_step(lambda ctx: ctx.get_input("draft"))}
    )

    @step(cost_budget=5_000)
    async def polish(ctx: StepContext[Any]) -> str:
        return (await ctx.run(writer, ctx.get_dependency("inner", str))).output

    def topic(ctx: StepContext[Any]) -> str:
        return f"Write about {ctx.get_input('topic')}."

    pipeline: Pipeline[Any, Any, str] = Pipeline(
        "p",
        {"draft": writer.as_step(topic), "inner": inner.as_step(), "polish": polish},
        {"inner": ["draft"], "polish": ["inner"]},
        config=PipelineConfig(cost_budget=budget) if budget else None,
    )
    inputs: Mapping[str, Any] = {"topic": "sheep"}
    quote = await pipeline.estimate(inputs)
    assert not server.ledger.entries
    result = await pipeline.execute(inputs)
    assert quote.upper_usd is not None
    assert quote.lower_usd <= result.usage.cost_usd <= quote.upper_usd
    for step_id, spent in result.usage.steps.items():
        part = quote.parts[step_id]
        assert part.upper_usd is not None
        assert part.lower_usd <= spent.cost_usd <= part.upper_usd
