"""Spending that does not go through an agent: another SDK, a paid API. It is on the same account.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os

from fastroai import FastroAgent, Pipeline, StepContext, step
from fastroai.testing import ModelServer, Reply

server = ModelServer(script=[Reply("Sheep see nearly all around them.")]).start()  # offline
os.environ.update(server.environment())  # offline

agent = FastroAgent("openai:gpt-5-mini")


@step
async def search(ctx: StepContext) -> str:
    # embed the question with some other SDK, which says how many tokens it took ...
    ctx.record_usage(model="openai:text-embedding-3-small", input_tokens=1_200)
    # ... and ask a search engine that costs half a cent a query
    ctx.record_usage(model="search-engine", cost_usd="0.005")
    return "Sheep have a field of vision of about 300 degrees."


@step
async def answer(ctx: StepContext) -> str:
    return (await ctx.run(agent, f"In plain words: {ctx.get_dependency('search', str)}")).output


pipeline = Pipeline("question", {"search": search, "answer": answer}, {"answer": ["search"]})


async def main() -> None:
    result = await pipeline.execute()
    print(result.output)
    for record in result.usage.records:
        print(f"{record.step_id}: {record.model}, ${record.cost_usd}")
    print(f"total: ${result.usage.cost_usd}")


asyncio.run(main())
