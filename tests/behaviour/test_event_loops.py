"""Sync and async calls in one script, on one event loop after the other: each works, and is billed once."""

from __future__ import annotations

import asyncio
import gc
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from support.accounting import assert_account_matches
from support.patience import PATIENCE
from support.proxy import Proxy

from fastroai import Budget, FastroAgent, Graph, Pipeline, PipelineConfig, StepContext, step
from fastroai.records import Usage as Spent
from fastroai.testing import Fault, ModelServer, Reply, Usage
from fastroai.usage import ModelFallback

# Connections that an ended loop leaves open cannot be closed any more; PydanticAI leaves them too.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

Call = Callable[["FastroAgent[Any, str]"], Spent]

ANSWER = Reply("ok", usage=Usage(40, 4), latency=0.01)
"""Late enough that the client waits for it: only then does it matter which loop a connection belongs to."""


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    """What is left open is collected when nothing has a run any more, while the mark says that it may be."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def lasting_server() -> Iterator[ModelServer]:
    with ModelServer(keep_alive=True) as server:
        yield server


@pytest.fixture
def server(lasting_server: ModelServer) -> ModelServer:
    """A server that keeps connections open, as providers do."""
    lasting_server.reset()
    return lasting_server


@pytest.fixture(autouse=True)
def answers(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    server.rule(None, ANSWER)


def built_by_fastroai(server: ModelServer) -> FastroAgent[Any, str]:
    return FastroAgent("openai:gpt-5-mini")


def given(server: ModelServer) -> FastroAgent[Any, str]:
    return FastroAgent(server.model("openai-chat:gpt-5-mini"))


def given_in_a_fallback(server: ModelServer) -> FastroAgent[Any, str]:
    candidates = server.model("openai:gpt-5-mini"), server.model("anthropic:claude-haiku-4-5")
    return FastroAgent(FallbackModel(*candidates))


def in_a_plain_agent(server: ModelServer) -> FastroAgent[Any, str]:
    return FastroAgent(agent=Agent(server.model("anthropic:claude-haiku-4-5")))


def run_sync(agent: FastroAgent[Any, str]) -> Spent:
    return agent.run_sync("Hello").usage


def run_sync_in_a_thread(agent: FastroAgent[Any, str]) -> Spent:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run_sync, agent).result()


def run(agent: FastroAgent[Any, str]) -> Spent:
    return asyncio.run(agent.run("Hello")).usage


def run_stream(agent: FastroAgent[Any, str]) -> Spent:
    async def read() -> Spent:
        stream = agent.run_stream("Hello")
        async for _ in stream:
            pass
        return stream.usage

    return asyncio.run(read())


def execute_sync(agent: FastroAgent[Any, str]) -> Spent:
    usage = Pipeline[Any, Any, str]("p", {"ask": agent.as_step("Hello")}).execute_sync().usage
    return total(usage.records)


def run_graph_sync(agent: FastroAgent[Any, str]) -> Spent:
    graph = Graph("g", nodes={"ask": agent.as_step("Hello")})
    return total(graph.run_sync().usage.records)


ORDERS = list(itertools.permutations([run_sync, run_sync_in_a_thread, run, run_stream], 3))


def total(records: Any) -> Spent:
    usage = Spent()
    for record in records:
        usage.add(record)
    return usage


@pytest.mark.parametrize("calls", ORDERS)
@pytest.mark.parametrize("agent_of", [built_by_fastroai, given, given_in_a_fallback, in_a_plain_agent])
def test_every_order_works_and_bills_nothing_twice(
    server: ModelServer, agent_of: Callable[[ModelServer], FastroAgent[Any, str]], calls: tuple[Call, ...]
) -> None:
    agent = agent_of(server)
    spent = [call(agent) for call in calls]
    assert [usage.request_count for usage in spent] == [1, 1, 1]
    assert not any(usage.unmeasured_requests for usage in spent)
    assert len(server.ledger.entries) == 3


@pytest.mark.parametrize("of_runs", [execute_sync, run_graph_sync])
@pytest.mark.parametrize("agent_of", [built_by_fastroai, given])
def test_runs_of_pipelines_and_graphs_are_no_exception(
    server: ModelServer, agent_of: Callable[[ModelServer], FastroAgent[Any, str]], of_runs: Call
) -> None:
    agent = agent_of(server)
    for call in (of_runs, run, of_runs, run_sync, run, of_runs):
        usage = call(agent)
        assert (usage.request_count, usage.unmeasured_requests) == (1, 0)
    assert len(server.ledger.entries) == 6


@pytest.mark.parametrize("reference", ["openai:gpt-5-mini", None])
def test_a_model_that_a_budget_steps_down_to_serves_one_loop_after_the_other(
    server: ModelServer, reference: str | None
) -> None:
    cheaper = ModelFallback(at=0.000001, use=reference or server.model("openai:gpt-5-mini"))
    budget = Budget(usd=1, fallback=cheaper)
    agent = FastroAgent("anthropic:claude-haiku-4-5", max_tokens=50)

    @step
    async def twice(ctx: StepContext) -> str:
        await ctx.run(agent, "one")
        return (await ctx.run(agent, "two")).output

    pipeline = Pipeline[Any, Any, str]("p", {"twice": twice}, config=PipelineConfig(budget=budget))
    for execute in (pipeline.execute_sync, lambda: asyncio.run(pipeline.execute()), pipeline.execute_sync):
        usage = execute().usage
        assert [record.outcome for record in usage.records] == ["settled"] * 2
        assert usage.records[1].model.startswith("gpt-5-mini")


def test_connections_are_kept_from_one_sync_call_to_the_next(server: ModelServer) -> None:
    address = urlsplit(server.url)
    connections: list[socket.socket] = []

    def connect() -> socket.socket:
        connections.append(socket.create_connection((address.hostname, address.port)))
        return connections[-1]

    proxy = Proxy(connect)
    provider = OpenAIProvider(base_url=f"http://127.0.0.1:{proxy.port}/v1", api_key="none")
    agent: FastroAgent[Any, str] = FastroAgent(OpenAIChatModel("gpt-5-mini", provider=provider))
    for _ in range(3):
        agent.run_sync("Hello")
    proxy.close()
    assert len(connections) == 1


def test_loops_that_run_at_once_have_a_client_each(server: ModelServer) -> None:
    """As in a web application with async and sync endpoints."""
    agent = built_by_fastroai(server)

    async def both() -> list[Any]:
        first = await agent.run("one")
        others = await asyncio.gather(
            *(asyncio.to_thread(agent.run_sync, f"sync {number}") for number in range(4)),
            *(agent.run(f"async {number}") for number in range(4)),
        )
        return [first, *others, await agent.run("last")]

    responses = [*asyncio.run(both()), agent.run_sync("afterwards")]
    assert_account_matches(server.ledger, [record for response in responses for record in response.records])


def test_threads_with_a_loop_each_have_a_client_each(server: ModelServer) -> None:
    agent = built_by_fastroai(server)
    together = threading.Barrier(4)

    async def ask_twice() -> list[Any]:
        together.wait(PATIENCE)
        return [await agent.run("one"), await agent.run("two")]

    with ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(asyncio.run, ask_twice()) for _ in range(4)]
        responses = [response for answer in answers for response in answer.result()]
    assert_account_matches(server.ledger, [record for response in responses for record in response.records])


def test_what_fails_on_its_way_is_tried_again_on_any_loop(server: ModelServer) -> None:
    agent = built_by_fastroai(server)
    agent.run_sync("Hello")
    server.fail_next(1, Fault.status(503))
    response = asyncio.run(agent.run("Hello"))
    assert [record.outcome for record in response.records] == ["released", "settled"]


def test_events_reach_listeners_on_the_loop_of_their_run(server: ModelServer) -> None:
    """Also those of calls that threads of the caller's own make, on another loop."""
    agent = built_by_fastroai(server)

    @step
    async def ask(ctx: StepContext) -> int:
        return len(await asyncio.gather(*(asyncio.to_thread(agent.run_sync, "Hello") for _ in range(5))))

    async def main() -> list[str]:
        pipeline = Pipeline[Any, Any, int]("p", {"ask": ask})
        async with pipeline.stream() as stream:
            return [type(event).__name__ async for event in stream]

    assert asyncio.run(main()).count("SpendRecorded") == 5
