"""Retries by failure class: what costs nothing is tried often, what may be billed twice once, the rest never.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os

from fastroai import FastroAgent, Pipeline, PipelineConfig, StepContext, StepExecutionError, step
from fastroai.pipelines import StepFailed, StepRetried
from fastroai.runtime import FailureClass, FailureContext, RetryPolicy
from fastroai.testing import Fault, ModelServer, Reply

server = ModelServer(script=[Reply("Invoice 42 is paid.")]).start()  # offline
server.fail_next(2, Fault.status(429, retry_after=0.05))  # offline
os.environ.update(server.environment())  # offline

agent = FastroAgent("openai:gpt-5-mini", max_tokens=100)

RETRY = {
    FailureClass.RECOVERABLE: RetryPolicy(max_retries=3, backoff=0.1),
    FailureClass.AMBIGUOUS: RetryPolicy(max_retries=1, backoff=0.1),
}


def no_such_invoice(error: BaseException, context: FailureContext) -> FailureClass | None:
    return FailureClass.TERMINAL if isinstance(error, LookupError) else None


@step
async def look_up(ctx: StepContext) -> str:
    if ctx.attempt == 1:
        raise ConnectionRefusedError("the database is starting")
    if ctx.get_input("invoice") != 42:
        raise LookupError("no such invoice")
    return (await ctx.run(agent, "Is invoice 42 paid?")).output


def on_retry(event: StepRetried) -> None:
    print(f"{event.step_id}: {event.error} ({event.failure_class}), again in {event.delay:.1f} s")


def on_step_failure(event: StepFailed) -> None:
    print(f"{event.step_id} failed: {event.error}")


async def main() -> None:
    config = PipelineConfig(
        retry=RETRY, classifiers=[no_such_invoice], on_retry=on_retry, on_step_failure=on_step_failure
    )
    pipeline = Pipeline("invoices", steps={"look_up": look_up}, config=config)
    result = await pipeline.execute({"invoice": 42})
    print(result.output, [(record.outcome, round(record.backoff_ms)) for record in result.usage.records])
    try:
        await pipeline.execute({"invoice": 43})
    except StepExecutionError as error:
        print(f"told of {error.original_error!r} once")


asyncio.run(main())
