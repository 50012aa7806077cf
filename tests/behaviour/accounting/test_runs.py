"""Runs that end well: every request of theirs is charged at the price of its own response."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    DeferredToolRequests,
    DeferredToolResults,
    NativeOutput,
    PromptedOutput,
    RunContext,
    TextOutput,
    Tool,
    ToolOutput,
)
from pydantic_ai.exceptions import ModelRetry, UnexpectedModelBehavior
from pydantic_ai.messages import AgentStreamEvent
from pydantic_ai.models import Model
from support.accounting import PRICES, Account, listed_cost

from fastroai import FastroAgent
from fastroai.errors import usage_of
from fastroai.testing import Fault, ModelServer, Reply, ToolCall, Usage


class City(BaseModel):
    name: str
    population: int


PARIS: dict[str, Any] = {"name": "Paris", "population": 2_100_000}


def weather(city: str) -> str:
    """The weather."""
    return f"rain in {city}"


async def test_a_run_costs_what_the_provider_bills(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(Reply("Paris", usage=Usage(123, 45)))
    response = await FastroAgent(model).run("The capital of France?")
    account.assert_matches(response.usage)
    assert response.output == "Paris"
    assert response.cost_usd == listed_cost(server.ledger.entries[0]) > 0
    assert (response.input_tokens, response.output_tokens, response.total_tokens) == (123, 45, 168)


@pytest.mark.parametrize("max_tokens", [None, 1_000])
@pytest.mark.parametrize(
    "usage",
    [
        Usage(100, 10, cache_read_tokens=100),
        Usage(2_000, 300, cache_read_tokens=1_536, cache_write_tokens=64),
        Usage(17, 1_999, reasoning_tokens=1_984),
        Usage(1, 1),
    ],
    ids=["all of it cached", "cache read and written", "reasoning", "the least"],
)
async def test_cached_and_reasoning_tokens_are_charged_at_their_own_prices(
    server: ModelServer, model: Model, account: Account, usage: Usage, max_tokens: int | None
) -> None:
    server.script(Reply("Paris", usage=usage))
    response = await FastroAgent(model, max_tokens=max_tokens).run("?")
    account.assert_matches(response.usage)
    assert response.cache_read_tokens == usage.cache_read_tokens
    assert response.cache_write_tokens == usage.cache_write_tokens
    assert response.reasoning_tokens == usage.reasoning_tokens


async def test_small_calls_lose_nothing_to_rounding(server: ModelServer, account: Account) -> None:
    server.rule(None, Reply("ok", usage=Usage(7, 1, cache_read_tokens=3)))
    agent = FastroAgent(server.model("openai:gpt-5-mini"))
    responses = [await agent.run("?") for _ in range(20)]
    account.assert_matches()
    # 4 × $0.25 + 3 × $0.025 + 1 × $2 per million: 3.075 microcents a call
    assert account.usage.cost_usd == Decimal("0.0000615")
    assert account.usage.cost_microcents == 62
    assert sum(response.cost_microcents for response in responses) == 60


async def test_each_request_is_priced_by_the_service_tier_of_its_response(
    server: ModelServer, account: Account
) -> None:
    server.script(Reply("a", usage=Usage(1_000, 100)), Reply("b", usage=Usage(1_000, 100)))
    agent = FastroAgent(server.model("openai:gpt-5-mini"))
    await agent.run("?", model_settings={"service_tier": "priority"})
    await agent.run("?")
    account.assert_matches()
    assert PRICES["gpt-5-mini", "priority"] != PRICES["gpt-5-mini", "default"]
    assert account.records[0].cost_usd != account.records[1].cost_usd


async def test_a_dated_snapshot_that_answers_has_the_price_of_its_model(
    server: ModelServer, account: Account
) -> None:
    server.script(Reply("a", usage=Usage(1_000, 100), model="gpt-5-mini-2025-08-07"))
    response = await FastroAgent(server.model("openai:gpt-5-mini")).run("?")
    [record] = account.records
    assert record.model == "gpt-5-mini"
    assert record.response_model == response.model == "gpt-5-mini-2025-08-07"
    assert record.cost_usd == Decimal("0.00045")


async def test_every_request_of_a_tool_loop_is_charged(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(
        Reply(tool_calls=[ToolCall("weather", {"city": "Paris"})], usage=Usage(200, 20)),
        Reply(
            tool_calls=[ToolCall("weather", {"city": "Lyon"})], usage=Usage(260, 21, cache_read_tokens=128)
        ),
        Reply("Rain everywhere", usage=Usage(320, 9, cache_read_tokens=256)),
    )
    response = await FastroAgent(model, tools=[weather]).run("The weather?")
    account.assert_matches(response.usage)
    assert response.request_count == 3
    assert [record.attempt for record in response.records] == [1, 1, 1]
    assert list(response.records) == account.records


async def test_parallel_tool_calls_cost_one_request(
    server: ModelServer, model: Model, account: Account
) -> None:
    calls = [ToolCall("weather", {"city": city}) for city in ("Paris", "Lyon", "Lille")]
    server.script(Reply(tool_calls=calls, usage=Usage(200, 60)), Reply("Rain", usage=Usage(400, 5)))
    response = await FastroAgent(model, tools=[weather]).run("The weather?")
    account.assert_matches(response.usage)
    assert response.request_count == 2
    assert response.tool_call_count == 3


@pytest.mark.parametrize(
    "output_type",
    [City, ToolOutput(City, name="a_city"), NativeOutput(City), PromptedOutput(City), list[City]],
    ids=["tool", "named tool", "native", "prompted", "list"],
)
async def test_structured_output_is_charged_in_every_mode(
    server: ModelServer, model: Model, account: Account, output_type: Any
) -> None:
    in_text = isinstance(output_type, PromptedOutput)
    data = [PARIS] if output_type == list[City] else PARIS
    server.script(Reply(json.dumps(PARIS)) if in_text else Reply(data=data))
    response = await FastroAgent(model, output_type=output_type).run("The capital of France?")
    account.assert_matches(response.usage)
    assert response.output in (City(**PARIS), [City(**PARIS)])


async def test_output_that_is_invalid_is_charged_and_so_is_the_next_try(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(
        Reply(fault=Fault.wrong_schema(), usage=Usage(100, 11)),
        Reply(data=PARIS, usage=Usage(180, 12)),
    )
    response = await FastroAgent(model, output_type=City).run("?")
    account.assert_matches(response.usage)
    assert response.request_count == 2
    assert response.output == City(**PARIS)


async def test_exhausted_output_retries_leave_their_cost_on_the_error(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.rule(None, Reply(fault=Fault.wrong_schema(), usage=Usage(100, 11)))
    with pytest.raises(UnexpectedModelBehavior) as caught:
        await FastroAgent(model, output_type=City, retries=2).run("?")
    account.assert_matches(usage_of(caught.value))
    assert len(account.records) == 3


async def test_an_output_function_that_asks_again_is_charged_twice(
    server: ModelServer, model: Model, account: Account
) -> None:
    def shout(text: str) -> str:
        if not text.isupper():
            raise ModelRetry("in capitals, please")
        return text

    server.script(Reply("paris", usage=Usage(50, 2)), Reply("PARIS", usage=Usage(70, 3)))
    response = await FastroAgent(model, output_type=TextOutput(shout)).run("?")
    account.assert_matches(response.usage)
    assert response.output == "PARIS"
    assert response.request_count == 2


@pytest.mark.parametrize("arguments", ['{"city": ', '{"town": "Paris"}', "[1, 2]"])
async def test_a_tool_call_that_cannot_be_read_is_charged_and_so_is_the_next_one(
    server: ModelServer, model: Model, account: Account, arguments: str
) -> None:
    server.script(
        Reply(tool_calls=[ToolCall("weather", arguments)], usage=Usage(200, 20)),
        Reply(tool_calls=[ToolCall("weather", {"city": "Paris"})], usage=Usage(240, 20)),
        Reply("Rain", usage=Usage(300, 2)),
    )
    response = await FastroAgent(model, tools=[weather]).run("?")
    account.assert_matches(response.usage)
    assert response.request_count == 3


async def test_a_run_that_waits_for_an_approval_and_goes_on_is_two_accounts(
    server: ModelServer, model: Model, account: Account
) -> None:
    def delete(city: str) -> str:
        """Delete."""
        return f"{city} is gone"

    server.script(
        Reply(tool_calls=[ToolCall("delete", {"city": "Paris"}, id="call_1")], usage=Usage(200, 20)),
        Reply("Done", usage=Usage(300, 2)),
    )
    agent = FastroAgent(
        model, tools=[Tool(delete, requires_approval=True)], output_type=[str, DeferredToolRequests]
    )
    asked = await agent.run("Delete Paris")
    assert isinstance(asked.output, DeferredToolRequests)
    done = await agent.run(
        message_history=asked.all_messages(),
        deferred_tool_results=DeferredToolResults(approvals={"call_1": True}),
    )
    assert done.output == "Done"
    account.assert_matches()
    assert (asked.request_count, done.request_count) == (1, 1)


async def test_a_tool_that_fails_leaves_the_cost_of_asking_for_it_on_the_error(
    server: ModelServer, model: Model, account: Account
) -> None:
    def broken(city: str) -> str:
        raise OSError("the weather station is down")

    server.script(Reply(tool_calls=[ToolCall("broken", {"city": "Paris"})], usage=Usage(200, 20)))
    with pytest.raises(OSError, match="weather station") as caught:
        await FastroAgent(model, tools=[broken]).run("?")
    account.assert_matches(usage_of(caught.value))


async def test_a_run_watched_by_an_event_handler_is_streamed_and_charged_the_same(
    server: ModelServer, model: Model, account: Account
) -> None:
    seen: list[AgentStreamEvent] = []

    async def watch(context: RunContext[object], events: object) -> None:
        async for event in events:  # type: ignore[attr-defined]
            seen.append(event)

    server.script(
        Reply(tool_calls=[ToolCall("weather", {"city": "Paris"})], usage=Usage(200, 20)),
        Reply("Rain", usage=Usage(260, 4)),
    )
    response = await FastroAgent(model, tools=[weather]).run("?", event_stream_handler=watch)
    account.assert_matches(response.usage)
    assert [record.streamed for record in response.records] == [True, True]
    assert seen


async def test_agents_and_requests_of_one_run_are_told_apart(
    server: ModelServer, model: Model, account: Account
) -> None:
    await FastroAgent(model, name="first").run("?")
    await FastroAgent(model, name="second").run("?")
    account.assert_matches()
    assert [record.agent for record in account.records] == ["first", "second"]
    assert account.usage.agent_call_count == 2
