"""A budget that stops a run before its next request, and says what was spent.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os

from fastroai import CostBudgetExceeded, FastroAgent, Pipeline, PipelineConfig, StepContext, step
from fastroai.testing import ModelServer

server = ModelServer().start()  # offline
os.environ.update(server.environment())  # offline

writer = FastroAgent("openai:gpt-5-mini", max_tokens=50)


@step
async def write_book(ctx: StepContext) -> list[str]:
    chapters = []
    for number in range(1, 101):
        response = await ctx.run(writer, f"Write chapter {number} of a book about sheep.")
        chapters.append(response.output)
    return chapters


book = Pipeline("book", {"write": write_book}, config=PipelineConfig(cost_budget=500))  # $0.0005


async def main() -> None:
    try:
        await book.execute()
    except CostBudgetExceeded as stop:
        print(stop)
        print(f"spent: {stop.actual_microcents} of {stop.budget_microcents} microcents")
        print(f"requests: {stop.usage.request_count} made, {len(server.ledger.entries)} received")


asyncio.run(main())
