"""One question to an agent, in each of the ways in which it can be asked, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from fastroai import FastroAgent, Pipeline, PipelineConfig, StepContext, StepExecutionError, step
from fastroai.agent import ResponseEvent
from fastroai.errors import records_of, usage_of
from fastroai.pipelines import StepRetried
from fastroai.records import RequestRecord
from fastroai.records import Usage as SpentUsage
from fastroai.runtime import DEFAULT_RETRY, FailureClass, RetryPolicy
from fastroai.runtime.events import TextChunk
from fastroai.runtime.fact_base import RunEvent
from fastroai.runtime.facts import RunFinished

Way = Literal["agent.run", "agent.run_stream_events", "ctx.run", "ctx.run_stream"]

WAYS: Final[tuple[Way, ...]] = get_args(Way)

BACKOFF: Final = 0.001
"""Seconds before the first retry; exactly, and twice that before the second."""

PATIENT: Final = {
    failure: RetryPolicy(policy.max_retries, backoff=BACKOFF, jitter="none")
    for failure, policy in DEFAULT_RETRY.items()
}
"""The ready-made policies with waits that a test can expect, and wait for."""


def is_streamed(way: Way) -> bool:
    """Whether the answer is read as it comes."""
    return way in ("agent.run_stream_events", "ctx.run_stream")


def is_in_step(way: Way) -> bool:
    """Whether it is asked by a step, under the policies of its pipeline."""
    return way.startswith("ctx.")


@dataclass(kw_only=True)
class Asked:
    """An answer or an error, and the account of it."""

    output: str | None = None
    error: BaseException | None = None
    """As the agent raised it."""
    quality: str | None = None
    usage: SpentUsage | None = None
    records: Sequence[RequestRecord] = ()
    retries: list[StepRetried] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    """What listeners of the run were told of a streamed answer."""


async def ask(
    way: Way, agent: FastroAgent[Any, str], retry: dict[FailureClass, RetryPolicy] = PATIENT
) -> Asked:
    """Ask in one of the ways; `retry` holds in the pipeline."""
    if is_in_step(way):
        return await ask_in(asking_pipeline(way, agent, retry))
    try:
        if way == "agent.run":
            response = await agent.run("Tell me")
        else:
            async for event in agent.run_stream_events("Tell me"):
                last = event
            assert isinstance(last, ResponseEvent)
            response = last.response
    except Exception as error:
        return Asked(error=error, usage=usage_of(error), records=records_of(error))
    return Asked(output=response.output, usage=response.usage, records=response.records)


def asking_pipeline(
    way: Way,
    agent: FastroAgent[Any, str],
    retry: dict[FailureClass, RetryPolicy] = PATIENT,
    **options: Any,
) -> Pipeline[Any, Any, str]:
    """A pipeline whose one step asks the agent."""

    async def tell(ctx: StepContext) -> str:
        if way == "ctx.run":
            return (await ctx.run(agent, "Tell me")).output
        stream = ctx.run_stream(agent, "Tell me")
        async for _ in stream:
            pass
        assert stream.response is not None
        return stream.response.output

    return Pipeline("asks", {"tell": step(tell)}, config=PipelineConfig(retry=retry, **options))


async def ask_in(
    pipeline: Pipeline[Any, Any, str], tell: Callable[[RunEvent], object] = lambda event: None
) -> Asked:
    """Run a pipeline that asks; `tell` is told of all its events."""
    asked = Asked()
    try:
        async with pipeline.stream() as stream:
            async for event in stream:
                tell(event)
                if isinstance(event, StepRetried):
                    asked.retries.append(event)
                elif isinstance(event, TextChunk):
                    asked.texts.append(event.text)
                elif isinstance(event, RunFinished):
                    asked.usage = event.usage
        assert stream.result is not None
        asked.output, asked.quality = stream.result.output, stream.result.quality
        asked.records = stream.result.usage.records
    except StepExecutionError as failed:
        asked.error = failed.original_error
        asked.records = records_of(failed)
    return asked
