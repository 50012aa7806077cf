"""One agent over many items, a few at a time; how many there are is known only while running.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os

from fastroai import FastroAgent, Pipeline, StepContext, step
from fastroai.testing import ModelServer, Reply

server = ModelServer().start()  # offline
server.rule(None, lambda request: Reply(f"{len(request.prompt.split())} words"))  # offline
os.environ.update(server.environment())  # offline

summariser = FastroAgent("openai:gpt-5-nano", instructions="Summarise the paragraph.")


@step
def split(ctx: StepContext) -> list[str]:
    """Not `async`: it runs in a worker thread, so that it may take its time."""
    text: str = ctx.get_input("text")
    return text.split("\n\n")


@step
async def summarise(ctx: StepContext) -> list[str]:
    paragraphs = ctx.get_dependency("split", list[str])
    responses = await ctx.map(summariser, paragraphs, concurrency=2)
    return [response.output for response in responses]


pipeline = Pipeline("summary", {"split": split, "summarise": summarise}, {"summarise": ["split"]})


async def main() -> None:
    text = "Sheep are woolly.\n\nThey eat grass all day long.\n\nThey sleep."
    result = await pipeline.execute({"text": text})
    print(result.output)
    print(f"{result.usage.agent_call_count} calls, ${result.usage.cost_usd}")


asyncio.run(main())
