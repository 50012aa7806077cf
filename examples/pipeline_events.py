"""What happens in a pipeline, while it happens: typed events for a progress display or a web page.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os

from fastroai import FastroAgent, Pipeline, StepContext, step
from fastroai.pipelines import StepFinished, StepStarted, TextChunk
from fastroai.testing import ModelServer, Reply

server = ModelServer(script=[Reply("Counting sheep makes people sleep."), Reply("True.")]).start()  # offline
os.environ.update(server.environment())  # offline

agent = FastroAgent("openai:gpt-5-mini")


@step
async def write(ctx: StepContext) -> str:
    return "".join([chunk.content async for chunk in ctx.run_stream(agent, "Tell me about sheep.")])


@step
async def check(ctx: StepContext) -> str:
    return (await ctx.run(agent, f"Is this true? {ctx.get_dependency('write', str)}")).output


pipeline = Pipeline("facts", {"write": write, "check": check}, {"check": ["write"]})


async def main() -> None:
    async with pipeline.stream() as stream:
        async for event in stream:
            match event:
                case StepStarted(step_id=step_id, cause=cause):
                    print(f"{step_id} starts: {cause}")
                case TextChunk(text=text):
                    print(f"  {text!r}")
                case StepFinished(step_id=step_id, output=output, usage=usage):
                    print(f"{step_id} is done: {output!r}, ${usage.cost_usd}")
                case _:
                    pass
    if stream.result:
        print(f"total: ${stream.result.usage.cost_usd}")


asyncio.run(main())
