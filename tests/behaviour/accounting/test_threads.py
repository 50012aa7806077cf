"""`run_sync`: from scripts, from threads, from tools, and not from a running loop."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models import Model
from support.accounting import Account, assert_account_matches
from support.patience import PATIENCE

from fastroai import FastroAgent
from fastroai.errors import RunningLoopError, usage_of
from fastroai.testing import Fault, ModelServer, Reply, ToolCall, Usage

WHO = Reply("Nobody", usage=Usage(40, 4))


def test_a_script_runs_an_agent_twice_in_a_row(server: ModelServer, model: Model) -> None:
    agent = FastroAgent(model)
    first, second = agent.run_sync("one"), agent.run_sync("two")
    assert (first.output, second.output) == ("echo: one", "echo: two")
    assert_account_matches(server.ledger, [*first.records, *second.records])


def test_threads_run_one_agent_at_once(server: ModelServer, model: Model) -> None:
    agent = FastroAgent(model)
    together = threading.Barrier(6)

    def ask(number: int) -> object:
        together.wait(PATIENCE)
        return agent.run_sync(f"number {number}")

    with ThreadPoolExecutor(6) as threads:
        responses = list(threads.map(ask, range(6)))
    assert [response.output for response in responses] == [f"echo: number {n}" for n in range(6)]  # type: ignore[attr-defined]
    assert_account_matches(server.ledger, [record for response in responses for record in response.records])  # type: ignore[attr-defined]


def test_what_a_sync_run_raises_has_the_usage_on_it(server: ModelServer, model: Model) -> None:
    server.rule(None, Reply(fault=Fault.status(400)))
    with pytest.raises(ModelHTTPError) as caught:
        FastroAgent(model).run_sync("?")
    usage = usage_of(caught.value)
    assert usage is not None
    assert (usage.request_count, usage.failed_requests) == (0, 1)


async def test_a_sync_run_on_a_running_loop_is_refused_before_any_request(
    server: ModelServer, model: Model
) -> None:
    with pytest.raises(RunningLoopError, match=r"agent.run_sync\(\) .* use: await agent.run\(...\)"):
        FastroAgent(model).run_sync("?")
    assert server.ledger.entries == ()


async def test_an_agent_that_a_sync_tool_runs_is_charged_to_the_run_that_called_it(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.rule(
        lambda request: any(tool.name == "ask" for tool in request.tools) and not request.tool_results,
        Reply(tool_calls=[ToolCall("ask", {"question": "Who?"})] * 2, usage=Usage(300, 30)),
    )
    server.rule(lambda request: request.prompt == "Who?", WHO)
    inner = FastroAgent(server.model("anthropic:claude-haiku-4-5"), name="inner")
    here = threading.get_ident()
    loops = []

    def ask(question: str) -> str:
        """Ask."""
        assert threading.get_ident() != here
        answer = inner.run_sync(question)
        loops.append(answer)
        return answer.output

    response = await FastroAgent(model, name="outer", tools=[ask]).run("Who did it?")
    account.assert_matches(response.usage)
    assert [record.agent for record in response.records] == ["outer", "inner", "inner", "outer"]
    assert len(loops) == 2


def test_an_agent_that_a_sync_tool_runs_in_a_sync_run_is_charged_to_it(
    server: ModelServer, model: Model
) -> None:
    server.rule(
        lambda request: any(tool.name == "ask" for tool in request.tools) and not request.tool_results,
        Reply(tool_calls=[ToolCall("ask", {"question": "Who?"})], usage=Usage(300, 30)),
    )
    inner = FastroAgent(server.model("anthropic:claude-haiku-4-5"), name="inner")

    def ask(question: str) -> str:
        """Ask."""
        return inner.run_sync(question).output

    response = FastroAgent(model, name="outer", tools=[ask]).run_sync("Who did it?")
    assert_account_matches(server.ledger, response.records, response.usage)
    assert [record.agent for record in response.records] == ["outer", "inner", "outer"]


async def test_a_run_cancelled_while_its_sync_tool_asks_an_agent_ends_that_too(
    server: ModelServer, model: Model, account: Account
) -> None:
    server.rule(
        lambda request: any(tool.name == "ask" for tool in request.tools),
        Reply(tool_calls=[ToolCall("ask", {"question": "Who?"})], usage=Usage(300, 30)),
    )
    server.rule(None, Reply("late", usage=Usage(40, 4), fault=Fault.hang()))
    inner = FastroAgent(server.model("anthropic:claude-haiku-4-5"), name="inner", max_tokens=100)

    def ask(question: str) -> str:
        """Ask."""
        return inner.run_sync(question).output

    task = asyncio.create_task(FastroAgent(model, name="outer", tools=[ask]).run("Who did it?"))
    await server.ledger.wait_for(2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    account.assert_matches(usage_of(caught.value))
    assert account.outcomes == ["settled", "unmeasured"]
    await server.ledger.wait_for(2, state="finished")
