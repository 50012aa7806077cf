"""What is worth another request, and what is not, as the model server saw it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError

from fastroai import FastroAgent, Pipeline, StepContext, StepExecutionError, step
from fastroai.agent.requests import metering
from fastroai.runtime.events import TextChunk
from fastroai.runtime.facts import StepStarted
from fastroai.testing import Fault, ModelServer, Reply


@pytest.fixture(autouse=True)
def no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metering, "REQUEST_RETRY_DELAY", 0.0)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_a_refused_request_is_sent_once_whatever_the_step_may_retry(
    model_server: ModelServer, status: int
) -> None:
    model_server.fail_next(5, Fault.status(status))
    agent = FastroAgent(model_server.model("openai:gpt-5-mini"))

    @step(retries=3, retry_delay=0)
    async def ask(ctx: StepContext) -> str:
        return (await ctx.run(agent, "hello")).output

    with pytest.raises(StepExecutionError) as caught:
        await Pipeline("p", {"ask": ask}).execute()
    assert isinstance(caught.value.original_error, ModelHTTPError)
    assert len(model_server.ledger.entries) == 1


async def test_a_provider_that_says_not_to_retry_is_obeyed(model_server: ModelServer) -> None:
    model_server.script(Reply("only one"))
    agent = FastroAgent(model_server.model("openai:gpt-5-mini"))
    await agent.run("first")
    with pytest.raises(ModelHTTPError, match="script"):
        await agent.run("second")
    assert len(model_server.ledger.entries) == 2


async def test_a_misspelt_name_in_a_step_is_not_tried_again() -> None:
    attempts = 0

    @step(retries=5, retry_delay=0)
    async def broken(ctx: StepContext) -> str:
        nonlocal attempts
        attempts += 1
        return undefined_name  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(StepExecutionError, match="NameError"):
        await Pipeline("p", {"broken": broken}).execute()
    assert attempts == 1


async def test_events_of_parallel_runs_of_one_nested_pipeline_can_be_told_apart(
    model_server: ModelServer,
) -> None:
    agent = FastroAgent(model_server.model("openai:gpt-5-mini"))

    @step
    async def say(ctx: StepContext) -> str:
        text = ""
        async for chunk in ctx.run_stream(agent, ctx.get_input("item")):
            text += chunk.content
        return text

    inner = Pipeline[object, Any, str]("inner", {"say": say})

    @step
    async def outer(ctx: StepContext) -> list[str]:
        return await ctx.map(inner.as_step(), ["one", "two"])

    starts, texts = set(), set()
    async with Pipeline("outer", {"all": outer}).stream() as stream:
        async for event in stream:
            if isinstance(event, StepStarted):
                starts.add((event.path, event.step_id))
            elif isinstance(event, TextChunk):
                texts.add(event.path)
    assert starts == {
        (("outer",), "all"),
        (("outer", "all", "all[0]", "inner"), "say"),
        (("outer", "all", "all[1]", "inner"), "say"),
    }
    assert texts == {("outer", "all", "all[0]", "inner"), ("outer", "all", "all[1]", "inner")}
