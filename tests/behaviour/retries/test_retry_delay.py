"""`retry_delay` is the base of every wait that a step owns: between attempts at its requests, too."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.models import Model

from fastroai import FastroAgent, Pipeline, PipelineConfig, StepConfig, StepContext, step
from fastroai.pipelines import BaseStep
from fastroai.runtime import FailureClass, RetryPolicy
from fastroai.testing import Fault, ModelServer

pytestmark = pytest.mark.parametrize("reference", ["openai:gpt-5-mini"])


@pytest.fixture(autouse=True)
def exact_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest wait that the jitter allows, and a default that shows where it holds."""
    monkeypatch.setattr("fastroai.runtime.retrying.retry.random.uniform", lambda shortest, longest: longest)
    monkeypatch.setattr("fastroai.agent.requests.metering.REQUEST_RETRY_DELAY", 0.001)


async def waits_ms(
    server: ModelServer, model: Model, ask: BaseStep[Any, str], **config: Any
) -> list[float | None]:
    """The waits before the attempts at a request that fails twice."""
    server.fail_next(2, Fault.status(503))
    result = await Pipeline[Model, Any, str]("p", {"ask": ask}, config=PipelineConfig(**config)).execute(
        deps=model
    )
    records = result.usage.records
    assert [record.outcome for record in records] == ["released", "released", "settled"]
    return [record.backoff_ms for record in records[1:]]


async def run(ctx: StepContext[Model], **options: Any) -> str:
    return (await ctx.run(FastroAgent(ctx.deps), "Hello", **options)).output


async def run_stream(ctx: StepContext[Model], **options: Any) -> str:
    text = ""
    async for chunk in ctx.run_stream(FastroAgent(ctx.deps), "Hello", **options):
        text += chunk.content
    return text


ASKED = pytest.mark.parametrize("ask", [run, run_stream])


@ASKED
async def test_it_is_as_it_was_where_nobody_says_it(server: ModelServer, model: Model, ask: Any) -> None:
    assert await waits_ms(server, model, step(ask)) == [1, 2]
    assert await waits_ms(server, model, step(retries=2)(ask)) == [1, 2]


@ASKED
async def test_a_call_says_it(server: ModelServer, model: Model, ask: Any) -> None:
    async def execute(ctx: StepContext[Model]) -> str:
        return str(await ask(ctx, retry_delay=0.004))

    assert await waits_ms(server, model, step(retry_delay=0.003)(execute), retry_delay=0.002) == [4, 8]


@ASKED
async def test_a_step_says_it(server: ModelServer, model: Model, ask: Any) -> None:
    assert await waits_ms(server, model, step(retry_delay=0.003)(ask), retry_delay=0.002) == [3, 6]


@ASKED
async def test_a_pipeline_says_it(server: ModelServer, model: Model, ask: Any) -> None:
    assert await waits_ms(server, model, step(ask), retry_delay=0.002) == [2, 4]


async def test_no_delay_can_be_said(server: ModelServer, model: Model) -> None:
    assert await waits_ms(server, model, step(retry_delay=0)(run), retry_delay=0.002) == [0, 0]


async def test_a_step_inside_a_step_inherits_it_where_it_was_said(server: ModelServer, model: Model) -> None:
    @step
    async def outer(ctx: StepContext[Model]) -> str:
        [output] = await ctx.map(step(run), ["item"])
        return str(output)

    assert await waits_ms(server, model, outer, retry_delay=0.002) == [2, 4]
    assert await waits_ms(server, model, outer) == [1, 2]


BY_CLASS = {FailureClass.RECOVERABLE: RetryPolicy(2, backoff=0.007)}


@pytest.mark.parametrize(
    ("own", "waits"), [(StepConfig(), [7, 14]), (StepConfig(retry_delay=0.003), [3, 6])], ids=str
)
async def test_over_policies_that_are_inherited_it_is_their_backoff(
    server: ModelServer, model: Model, own: StepConfig, waits: list[float]
) -> None:
    ask = step(retry_delay=own.retry_delay)(run)
    assert await waits_ms(server, model, ask, retry=BY_CLASS) == waits


async def test_a_call_says_it_over_the_policies_of_its_step(server: ModelServer, model: Model) -> None:
    async def execute(ctx: StepContext[Model]) -> str:
        return await run(ctx, retry_delay=0.004)

    assert await waits_ms(server, model, step(retry=BY_CLASS)(execute)) == [4, 8]
