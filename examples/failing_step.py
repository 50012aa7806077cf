"""A failing step loses nothing: what had finished, and what was spent, are on the error or in the result.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os

from fastroai import BaseStep, FastroAgent, Pipeline, PipelineConfig, StepContext, StepExecutionError, step
from fastroai.testing import ModelServer, Reply

server = ModelServer(script=[Reply("About sheep."), Reply("About sheep.")]).start()  # offline
os.environ.update(server.environment())  # offline

agent = FastroAgent("openai:gpt-5-mini")


@step
async def look_up(ctx: StepContext) -> str:
    topic = ctx.get_dependency("summarise", str)
    raise ConnectionError(f"the archive does not answer, asked for {topic!r}")


@step
async def publish(ctx: StepContext) -> str:
    return f"{ctx.get_dependency('summarise')} {ctx.get_dependency('look_up')}"


STEPS: dict[str, BaseStep] = {
    "summarise": agent.as_step("What is this about?"),
    "look_up": look_up,
    "publish": publish,
}
NEEDS = {"look_up": ["summarise"], "publish": ["summarise", "look_up"]}


async def main() -> None:
    try:
        await Pipeline("strict", STEPS, NEEDS).execute()  # on_error="fail" unless said
    except StepExecutionError as error:
        print(error)
        print(f"finished: {dict(error.step_outputs)}, spent: ${error.usage.cost_usd}")

    result = await Pipeline("lenient", STEPS, NEEDS, config=PipelineConfig(on_error="continue")).execute()
    print(f"ok: {result.ok}, output: {result.output}, spent: ${result.usage.cost_usd}")
    print(f"errors: {dict(result.errors)}")
    print(f"skipped: {dict(result.skipped)}")


asyncio.run(main())
