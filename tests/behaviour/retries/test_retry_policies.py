"""Retries by failure class against a server that refuses, breaks off, and talks nonsense."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai.exceptions import ModelHTTPError, UnexpectedModelBehavior
from pydantic_ai.models import Model

from fastroai import FastroAgent, Pipeline, PipelineConfig, StepContext, StepExecutionError, step
from fastroai.errors import records_of
from fastroai.pipelines import PipelineResult
from fastroai.runtime import DEFAULT_RETRY, FailureClass, RetryPolicy, classify
from fastroai.testing import Fault, ModelServer, Reply, Usage

ANSWER = Reply("Paris", usage=Usage(20, 5))

AT_ONCE = {failure: RetryPolicy(policy.max_retries, backoff=0) for failure, policy in DEFAULT_RETRY.items()}
"""The ready-made policies without their waits."""


async def asked(agent: FastroAgent[Any, Any], **options: Any) -> PipelineResult[Any]:
    """The result of a pipeline whose one step asks the agent."""

    async def ask(ctx: StepContext) -> Any:
        return (await ctx.run(agent, "?")).output

    return await Pipeline[Any, Any]("p", {"ask": step(ask)}, config=PipelineConfig(**options)).execute()


async def failure_of(agent: FastroAgent[Any, Any], **options: Any) -> BaseException:
    with pytest.raises(StepExecutionError) as caught:
        await asked(agent, **options)
    return caught.value.original_error


@pytest.mark.parametrize("status", [429, 500, 529])
async def test_refusals_are_repeated_three_times_and_are_on_the_record(
    server: ModelServer, model: Model, status: int
) -> None:
    server.script(ANSWER)
    server.fail_next(3, Fault.status(status, retry_after=0.01))
    result = await asked(FastroAgent(model), retry=AT_ONCE)
    assert result.output == "Paris"
    assert [(record.attempt, record.outcome) for record in result.usage.records] == [
        (1, "released"),
        (2, "released"),
        (3, "released"),
        (4, "settled"),
    ]
    assert [record.backoff_ms for record in result.usage.records] == [0, 10, 10, 10]
    assert result.quality == "clean"


async def test_a_fourth_refusal_is_final(server: ModelServer, model: Model) -> None:
    server.fail_next(9, Fault.status(500))
    error = await failure_of(FastroAgent(model), retry=AT_ONCE)
    assert classify(error) is FailureClass.RECOVERABLE
    assert len(server.ledger.entries) == 4


async def test_a_connection_lost_after_sending_is_repeated_once_as_it_may_be_billed(
    server: ModelServer, model: Model
) -> None:
    server.fail_next(9, Fault.disconnect())
    error = await failure_of(FastroAgent(model, max_tokens=50), retry=AT_ONCE)
    assert classify(error) is FailureClass.AMBIGUOUS
    assert [record.outcome for record in records_of(error)] == ["unmeasured"] * 2


async def test_a_body_that_is_no_json_is_repeated_once(server: ModelServer, model: Model) -> None:
    server.fail_next(9, Fault.malformed())
    error = await failure_of(FastroAgent(model, max_tokens=50), retry=AT_ONCE)
    assert classify(error) is FailureClass.AMBIGUOUS
    assert len(server.ledger.entries) == 2


class City(BaseModel):
    name: str


async def test_output_that_never_fits_is_repeated_once(server: ModelServer, model: Model) -> None:
    server.rule(None, Reply("just words", usage=Usage(20, 5)))
    error = await failure_of(FastroAgent(model, output_type=City, retries=0), retry=AT_ONCE)
    assert isinstance(error, UnexpectedModelBehavior)
    assert len(server.ledger.entries) == 2


async def test_filtered_content_is_final(server: ModelServer, model: Model) -> None:
    server.rule(None, Reply("", usage=Usage(20, 1), finish_reason="content_filter"))
    error = await failure_of(FastroAgent(model, retries=0), retry=AT_ONCE)
    assert classify(error) is FailureClass.TERMINAL
    assert len(server.ledger.entries) == 1


async def test_a_wish_in_seconds_is_kept(server: ModelServer) -> None:
    server.script(ANSWER)
    server.fail_next(1, Fault.status(429, retry_after=0.25))
    result = await asked(FastroAgent(server.model("openai:gpt-5-mini")), retry=AT_ONCE)
    first, second = server.ledger.entries
    assert (second.started - first.started).total_seconds() >= 0.25
    assert result.usage.records[1].backoff_ms == 250


@pytest.mark.parametrize("as_date", [False, True])
async def test_a_wish_past_the_deadline_is_final_at_once_and_says_so(
    server: ModelServer, model: Model, as_date: bool
) -> None:
    wish = datetime.now(UTC) + timedelta(seconds=60) if as_date else 60
    server.fail_next(9, Fault.status(429, retry_after=wish))
    error = await failure_of(FastroAgent(model, name="asker", timeout=20), retry=AT_ONCE)
    assert isinstance(error, ModelHTTPError)
    assert len(server.ledger.entries) == 1
    [note] = error.__notes__
    seconds = r"\d\d(\.\d)? s"
    expected = f"not retried: the provider asked to wait {seconds}, and agent 'asker' has {seconds} left"
    assert re.fullmatch(expected, note)
