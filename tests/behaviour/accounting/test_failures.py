"""Requests that fail: refused, dropped, garbled, too slow or no longer wanted."""

from __future__ import annotations

import asyncio

import pytest
from pydantic_ai import CancellationToken
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRequestTimeout,
    RunCancelled,
    UnexpectedModelBehavior,
)
from pydantic_ai.models import Model
from support.accounting import Account
from support.passing_time import time_passes

from fastroai import FastroAgent, TimeLimitExceeded
from fastroai.errors import usage_of
from fastroai.runtime.retrying.failures import is_exhausted
from fastroai.testing import Fault, ModelServer, Reply, ToolCall, Usage

ANSWER = Reply("Paris", usage=Usage(20, 5))


def weather(city: str) -> str:
    """The weather."""
    return f"rain in {city}"


# --- refused ---


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 529])
async def test_a_refusal_that_may_pass_is_tried_again_at_the_request(
    server: ModelServer, model: Model, account: Account, status: int
) -> None:
    server.script(ANSWER)
    server.fail_next(1, Fault.status(status, retry_after=0))
    response = await FastroAgent(model).run("?")
    account.assert_matches(response.usage)
    assert account.outcomes == ["released", "settled"]
    assert [record.attempt for record in account.records] == [1, 2]
    assert response.request_count == 1
    assert response.cost_complete


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_a_refusal_that_will_stay_is_not_tried_again(
    server: ModelServer, model: Model, account: Account, status: int
) -> None:
    server.fail_next(1, Fault.status(status))
    with pytest.raises(ModelHTTPError) as caught:
        await FastroAgent(model).run("?")
    assert caught.value.status_code == status
    account.assert_matches(usage_of(caught.value))
    assert account.outcomes == ["released"]
    assert not is_exhausted(caught.value)


async def test_exhausted_quota_is_not_waited_for(server: ModelServer, account: Account) -> None:
    server.fail_next(1, Fault.status(402, message="insufficient_quota"))
    with pytest.raises(ModelQuotaExceededError):
        await FastroAgent(server.model("openai:gpt-5-mini")).run("?")
    account.assert_matches()
    assert account.outcomes == ["released"]


async def test_the_wait_that_the_provider_asked_for_is_kept(server: ModelServer, account: Account) -> None:
    server.fail_next(1, Fault.status(429, retry_after=1))
    await FastroAgent(server.model("openai:gpt-5-mini")).run("?")
    first, second = server.ledger.entries
    assert (second.started - first.started).total_seconds() >= 1


@pytest.mark.parametrize(("retries", "sent"), [(0, 1), (2, 3), (4, 5)])
async def test_refusals_that_exhaust_the_retries_are_raised_as_pydantic_ai_raises_them(
    server: ModelServer, model: Model, account: Account, retries: int, sent: int
) -> None:
    server.fail_next(10, Fault.status(500))
    with pytest.raises(ModelHTTPError) as caught:
        await FastroAgent(model, request_retries=retries).run("?")
    assert caught.value.status_code == 500
    assert is_exhausted(caught.value)
    account.assert_matches(usage_of(caught.value))
    assert account.outcomes == ["released"] * sent
    assert len(server.ledger.entries) == sent


async def test_an_agent_tries_a_request_three_times_unless_it_is_told_otherwise(
    server: ModelServer, model: Model
) -> None:
    server.fail_next(10, Fault.status(500))
    with pytest.raises(ModelHTTPError):
        await FastroAgent(model).run("?")
    assert len(server.ledger.entries) == 3
    with pytest.raises(ModelHTTPError):
        await FastroAgent(model).run("?", request_retries=1)
    assert len(server.ledger.entries) == 5


async def test_retries_of_the_sdk_do_not_add_to_those_of_the_request(
    server: ModelServer, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    for reference in ("openai:gpt-5-mini", "openai-chat:gpt-5-mini", "anthropic:claude-haiku-4-5"):
        server.fail_next(1, Fault.status(500))
        with pytest.raises(ModelHTTPError):
            await FastroAgent(reference, request_retries=0).run("?")
    assert len(server.ledger.entries) == 3
    account.assert_matches()


async def test_each_request_of_a_tool_loop_has_retries_of_its_own(
    server: ModelServer, model: Model, account: Account
) -> None:
    refused = Fault.status(503, retry_after=0)
    server.script(
        Reply(fault=refused),
        Reply(fault=refused),
        Reply(tool_calls=[ToolCall("weather", {"city": "Paris"})], usage=Usage(200, 20)),
        Reply(fault=refused),
        Reply(fault=refused),
        Reply("Rain", usage=Usage(260, 4)),
    )
    response = await FastroAgent(model, tools=[weather]).run("?")
    account.assert_matches(response.usage)
    assert [record.attempt for record in account.records] == [1, 2, 3, 1, 2, 3]


# --- the connection ---


async def test_a_connection_that_is_never_made_costs_nothing(account: Account) -> None:
    with ModelServer() as gone:
        model = gone.model("openai:gpt-5-mini")
    with pytest.raises(ModelConnectionError) as caught:
        await FastroAgent(model, request_retries=1).run("?")
    assert is_exhausted(caught.value)
    account.assert_matches(usage_of(caught.value), never_connected=2)
    assert account.outcomes == ["released", "released"]
    assert account.usage.cost_complete


@pytest.mark.parametrize("reference", ["openai-chat:gpt-5-mini", "anthropic:claude-haiku-4-5"])
async def test_a_connection_that_is_never_made_costs_nothing_as_a_stream(
    account: Account, reference: str
) -> None:
    with ModelServer() as gone:
        model = gone.model(reference)
    with pytest.raises(ModelConnectionError):
        async for _ in FastroAgent(model, request_retries=0).run_stream("?"):
            pass
    account.assert_matches(never_connected=1)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_connection_dropped_before_the_response_may_have_been_billed(
    server: ModelServer, model: Model, account: Account, streamed: bool
) -> None:
    server.script(Reply("Paris", usage=Usage(20, 5), fault=Fault.disconnect()), ANSWER)
    agent = FastroAgent(model, max_tokens=100)
    if streamed:
        async for chunk in agent.run_stream("?"):
            last = chunk.usage_data
        assert last is not None
        response = last
    else:
        response = await agent.run("?")
    account.assert_matches(response.usage)
    assert account.outcomes == ["unmeasured", "settled"]
    assert not response.cost_complete
    assert response.unmeasured_requests == 1
    assert response.cost_usd < response.usage.committed_usd


async def test_a_response_cut_in_the_middle_is_charged_at_its_bound(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(Reply("Paris", usage=Usage(20, 5), fault=Fault.cut(after=1)))
    with pytest.raises(ModelAPIError) as caught:
        await FastroAgent(model, max_tokens=100, request_retries=0).run("?")
    account.assert_matches(usage_of(caught.value))
    assert account.outcomes == ["unmeasured"]


# --- unreadable ---


@pytest.mark.parametrize("max_tokens", [None, 100])
async def test_a_body_that_is_no_json_is_charged_at_its_bound(
    server: ModelServer, model: Model, account: Account, max_tokens: int | None
) -> None:
    server.script(Reply("Paris", usage=Usage(20, 5), fault=Fault.malformed()))
    with pytest.raises(ModelAPIError) as caught:
        await FastroAgent(model, max_tokens=max_tokens).run("?")
    account.assert_matches(usage_of(caught.value))
    assert account.outcomes == ["unmeasured"]


@pytest.mark.filterwarnings("ignore:Failed to extract usage")  # PydanticAI says so of Anthropic
@pytest.mark.parametrize("max_tokens", [None, 100])
async def test_a_response_without_usage_is_charged_at_its_bound(
    server: ModelServer, model: Model, account: Account, max_tokens: int | None
) -> None:
    server.script(Reply("Paris", usage=Usage(20, 5), fault=Fault.missing_usage()))
    response = await FastroAgent(model, max_tokens=max_tokens).run("?")
    assert response.output == "Paris"
    account.assert_matches(response.usage)
    assert account.outcomes == ["unmeasured"]


@pytest.mark.parametrize("max_tokens", [None, 100])
async def test_a_response_without_a_finish_reason_is_charged_at_its_bound(
    server: ModelServer, model: Model, account: Account, max_tokens: int | None, reference: str
) -> None:
    server.script(Reply("Paris", usage=Usage(20, 5), fault=Fault.missing_finish_reason()))
    response = await FastroAgent(model, max_tokens=max_tokens).run("?")
    account.assert_matches(response.usage)
    # PydanticAI makes one up for Chat Completions, whose usage comes last in any case.
    assert account.outcomes == ["settled" if reference.startswith("openai-chat") else "unmeasured"]


# --- time and cancellation ---


@pytest.mark.parametrize("timeout_of", ["agent", "call"])
async def test_a_run_out_of_time_is_charged_at_its_bound(
    server: ModelServer, model: Model, account: Account, timeout_of: str
) -> None:
    server.script(Reply("late", usage=Usage(20, 5), fault=Fault.hang()))
    agent = FastroAgent(model, name="slow", max_tokens=100, timeout=60 if timeout_of == "agent" else None)
    running = asyncio.create_task(agent.run("?", timeout=60 if timeout_of == "call" else None))
    await server.ledger.wait_for(1)
    time_passes(60)
    with pytest.raises(TimeLimitExceeded, match=r"agent 'slow' took longer than 60 s") as caught:
        await running
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.usage == usage_of(caught.value) is not None
    account.assert_matches(caught.value.usage)
    assert account.outcomes == ["unmeasured"]
    [entry] = await server.ledger.wait_for(1, state="finished")
    assert entry.client_disconnected


async def test_a_timeout_of_the_client_is_tried_again_and_charged_at_its_bound(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(Reply("late", usage=Usage(20, 5), fault=Fault.hang()), ANSWER)
    agent = FastroAgent(model, max_tokens=100, model_settings={"timeout": 2.0})
    response = await agent.run("?")
    account.assert_matches(response.usage)
    assert account.outcomes == ["unmeasured", "settled"]


async def test_a_request_timeout_of_pydantic_ai_is_charged_at_its_bound(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(Reply("late", usage=Usage(20, 5), fault=Fault.hang()))
    agent = FastroAgent(model, max_tokens=100, model_settings={"request_timeout": 2.0})
    with pytest.raises(ModelRequestTimeout) as caught:
        await agent.run("?")
    account.assert_matches(usage_of(caught.value))
    assert account.outcomes == ["unmeasured"]


async def test_a_run_cancelled_by_its_token_is_charged_at_its_bound(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(Reply("late", usage=Usage(20, 5), fault=Fault.hang()))
    token = CancellationToken()
    task = asyncio.create_task(FastroAgent(model, max_tokens=100).run("?", cancellation_token=token))
    await server.ledger.wait_for(1)
    token.cancel()
    with pytest.raises(RunCancelled) as caught:
        await task
    account.assert_matches(usage_of(caught.value))
    assert account.outcomes == ["unmeasured"]


async def test_no_retry_waits_past_the_deadline(server: ModelServer, account: Account) -> None:
    server.fail_next(1, Fault.status(429, retry_after=60))
    with pytest.raises(ModelHTTPError) as caught:
        await FastroAgent(server.model("openai:gpt-5-mini"), timeout=5).run("?")
    assert caught.value.status_code == 429
    assert is_exhausted(caught.value)
    account.assert_matches(usage_of(caught.value))


async def test_a_cancelled_run_stays_cancelled_and_is_charged_at_its_bound(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(
        Reply(tool_calls=[ToolCall("weather", {"city": "Paris"})], usage=Usage(200, 20)),
        Reply("late", usage=Usage(40, 5), fault=Fault.hang()),
    )
    agent = FastroAgent(model, tools=[weather], max_tokens=100)
    task = asyncio.create_task(agent.run("?"))
    await server.ledger.wait_for(2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    account.assert_matches(usage_of(caught.value))
    assert account.outcomes == ["settled", "unmeasured"]
    await server.ledger.wait_for(2, state="finished")


async def test_a_run_cancelled_while_it_waits_to_retry_costs_nothing_more(
    server: ModelServer, account: Account
) -> None:
    server.fail_next(1, Fault.status(429, retry_after=60))
    task = asyncio.create_task(FastroAgent(server.model("openai:gpt-5-mini")).run("?"))
    await server.ledger.wait_for(1, state="finished")
    while not account.records:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    account.assert_matches(usage_of(caught.value))
    assert account.outcomes == ["released"]


async def test_runs_side_by_side_each_have_their_own_account(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.rule(lambda request: request.prompt == "dear", Reply("yes", usage=Usage(1_000, 200)))
    server.rule(lambda request: request.prompt == "cheap", Reply("no", usage=Usage(10, 2)))
    agent = FastroAgent(model)
    dear, cheap = await asyncio.gather(agent.run("dear"), agent.run("cheap"))
    account.assert_matches()
    assert (dear.input_tokens, cheap.input_tokens) == (1_000, 10)
    assert account.usage.cost_usd == dear.cost_usd + cheap.cost_usd
    assert dear.cost_usd == 100 * cheap.cost_usd


async def test_content_that_the_provider_filters_is_charged(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.script(Reply("", usage=Usage(20, 1), finish_reason="content_filter"))
    with pytest.raises(UnexpectedModelBehavior) as caught:
        await FastroAgent(model).run("?")
    account.assert_matches(usage_of(caught.value))
    assert account.outcomes == ["settled"]
