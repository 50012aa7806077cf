"""Provider limits and circuit breakers, by the books of the server that they hold requests back from."""

from __future__ import annotations

import asyncio
import threading

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from support.leftovers import assert_no_task_is_left
from support.patience import PATIENCE

from fastroai.agent import FastroAgent, Metered
from fastroai.errors import CircuitOpenError
from fastroai.pipelines import Pipeline
from fastroai.runtime import CircuitBreaker, ProviderLimit
from fastroai.steps import PipelineConfig, StepContext, step
from fastroai.testing import Fault, ModelServer, Reply


def is_free(limit: ProviderLimit, provider: str = "openai") -> bool:
    status = limit.status(provider)
    return (status.in_flight, status.waiting) == (0, 0)


LATENCY = 0.05


def assert_never_more_than(most: int, server: ModelServer) -> None:
    """Each answer takes its time, and so `most` requests later none can have come before that."""
    started = [entry.started for entry in server.ledger.entries]
    waits = [
        (later - earlier).total_seconds() for earlier, later in zip(started, started[most:], strict=False)
    ]
    assert min(waits) >= 0.9 * LATENCY


async def test_agents_steps_and_pipelines_have_no_more_requests_out_than_their_limit(
    server: ModelServer,
) -> None:
    server.rule(None, Reply("ok", latency=LATENCY))
    limit, agent = ProviderLimit(max_concurrency=2), FastroAgent(server.model("openai:gpt-5-mini"))

    @step
    async def write(ctx: StepContext[None]) -> str:
        await asyncio.gather(*(ctx.run(agent, f"{number}") for number in range(2)))
        return "written"

    config = PipelineConfig(provider_limits={"openai": limit})
    pipelines = [Pipeline(name, {"write": write}, config=config) for name in "abc"]
    limited = FastroAgent(server.model("openai-chat:gpt-5-mini"), provider_limits={"openai": limit})
    await asyncio.gather(limited.run("hello"), *(pipeline.execute() for pipeline in pipelines))
    assert server.ledger.totals().requests == 7
    assert_never_more_than(2, server)
    assert is_free(limit)
    assert_no_task_is_left()


async def test_a_fallback_model_goes_on_when_the_circuit_of_the_first_is_open(server: ModelServer) -> None:
    breaker = CircuitBreaker(failures=2)
    limits = {"*": ProviderLimit(circuit_breaker=breaker)}
    models = server.model("openai:gpt-5-mini"), server.model("anthropic:claude-haiku-4-5")
    agent = FastroAgent(FallbackModel(*models), provider_limits=limits, request_retries=0)
    server.rule(lambda request: request.model == "gpt-5-mini", Reply("ill", fault=Fault.status(500)))
    answers = [await agent.run(f"{number}") for number in range(4)]
    async with agent.run_stream("4") as stream:
        async for chunk in stream:
            streamed = chunk
    assert streamed.usage_data is not None
    asked = [[record.provider for record in answer.records] for answer in (*answers, streamed.usage_data)]
    assert asked == [["openai", "anthropic"]] * 2 + [["anthropic"]] * 3
    assert breaker.state_of("openai") == "open"
    assert breaker.state_of("anthropic") == "closed"


@pytest.mark.parametrize("fault", [Fault.status(500), Fault.disconnect(), Fault.cut(after=0)])
async def test_a_provider_that_is_ill_opens_the_circuit(
    server: ModelServer, model: Model, fault: Fault
) -> None:
    breaker = CircuitBreaker(failures=2)
    agent = FastroAgent(model, circuit_breaker=breaker, request_retries=1)
    server.fail_next(2, fault)
    with pytest.raises(ModelAPIError) as failed:
        await agent.run("two attempts")
    assert not isinstance(failed.value, CircuitOpenError)
    with pytest.raises(CircuitOpenError) as refused:
        await agent.run("not sent")
    assert isinstance(refused.value, ModelAPIError)
    assert server.ledger.totals().requests == 2


async def test_retries_of_a_request_stop_where_the_circuit_opens(server: ModelServer, model: Model) -> None:
    agent = FastroAgent(model, circuit_breaker=CircuitBreaker(failures=1), request_retries=5)
    server.fail_next(9, Fault.status(503))
    with pytest.raises(CircuitOpenError, match="503") as refused:
        await agent.run("once")
    assert server.ledger.totals().requests == 1
    assert refused.value.usage.failed_requests == 1


async def test_refusals_and_rate_limits_open_no_circuit_and_keep_their_place_in_the_minute(
    server: ModelServer, model: Model
) -> None:
    breaker = CircuitBreaker(failures=1)
    limit = ProviderLimit(requests_per_minute=50, tokens_per_minute=5_000, circuit_breaker=breaker)
    agent = FastroAgent(model, provider_limits={"*": limit}, request_retries=0)
    for status in (400, 429):
        server.fail_next(1, Fault.status(status))
        with pytest.raises(ModelHTTPError):
            await agent.run("refused")
    assert breaker.state == "closed"
    now = limit.status(model.system)
    assert (now.requests_last_minute, now.tokens_last_minute) == (2, 0)
    answer = await agent.run("well")
    assert limit.status(model.system).tokens_last_minute == answer.input_tokens + answer.output_tokens


async def test_a_connection_that_is_never_made_gives_its_place_in_the_minute_back() -> None:
    nowhere = OpenAIChatModel("gpt-5-mini", provider=OpenAIProvider("http://127.0.0.1:9/v1", api_key="none"))
    breaker = CircuitBreaker(failures=1)
    limit = ProviderLimit(requests_per_minute=5, circuit_breaker=breaker)
    agent = FastroAgent(nowhere, provider_limits={"openai": limit}, request_retries=0)
    with pytest.raises(ModelAPIError):
        await agent.run("hello")
    assert limit.status("openai").requests_last_minute == 0
    assert breaker.state == "open"


async def test_retry_after_holds_back_other_agents_too(server: ModelServer, model: Model) -> None:
    limit = ProviderLimit(max_concurrency=8)
    first, second = (FastroAgent(model, provider_limits={"*": limit}) for _ in range(2))
    server.fail_next(1, Fault.status(429, retry_after=0.3))
    call = asyncio.ensure_future(first.run("first"))
    await server.ledger.wait_for(1, state="finished")
    while not (limit.status(model.system).held_back_for or call.done()):
        await asyncio.sleep(0.001)
    await asyncio.gather(call, second.run("second"))
    refused, *others = server.ledger.entries
    assert [refused.status, *(entry.status for entry in others)] == [429, 200, 200]
    assert all((entry.started - refused.started).total_seconds() > 0.27 for entry in others)


async def test_a_stream_that_breaks_counts_as_a_failure_and_one_that_is_left_does_not(
    server: ModelServer, model: Model
) -> None:
    breaker = CircuitBreaker(failures=1)
    limit = ProviderLimit(max_concurrency=1, circuit_breaker=breaker)
    agent = FastroAgent(model, provider_limits={"*": limit}, request_retries=0)
    server.script(Reply("word " * 50, chunk_size=5))
    async with agent.run_stream("left") as stream:
        async for _ in stream:
            break
    assert breaker.state == "closed"
    assert is_free(limit, model.system)
    server.script(Reply("word " * 50, chunk_size=5, fault=Fault.cut(after=3)))
    with pytest.raises(ModelAPIError):
        async for _ in agent.run_stream("breaks"):
            pass
    assert breaker.state == "open"
    assert is_free(limit, model.system)
    assert_no_task_is_left()


async def test_plain_agents_in_tools_wait_for_the_limits_of_the_run(server: ModelServer) -> None:
    limit = ProviderLimit(requests_per_minute=9)
    plain = Agent(server.model("openai:gpt-5-mini"), capabilities=[Metered()])

    @step
    async def ask(ctx: StepContext[None]) -> str:
        return (await plain.run("hello")).output

    config = PipelineConfig(provider_limits={"openai": limit})
    await Pipeline("p", {"ask": ask}, config=config).execute()
    assert limit.status("openai").requests_last_minute == 1


def test_threads_that_call_run_sync_share_the_places(server: ModelServer) -> None:
    server.rule(None, Reply("ok", latency=LATENCY))
    limit = ProviderLimit(max_concurrency=2)
    agent = FastroAgent(server.model("openai:gpt-5-mini"), provider_limits={"openai": limit})
    threads = [threading.Thread(target=agent.run_sync, args=[f"{number}"]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=PATIENCE)
    assert server.ledger.totals().requests == 6
    assert_never_more_than(2, server)
    assert is_free(limit)
