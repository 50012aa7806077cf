"""A budget that many calls share at once, the account of what was spent, and going on after a stop.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os

from fastroai import Budget, BudgetExceeded, FastroAgent, Pipeline, PipelineConfig, StepContext, step
from fastroai.testing import ModelServer, Reply

server = ModelServer().start()  # offline
server.rule(None, lambda request: Reply("Sheep. " * 30))  # offline
os.environ.update(server.environment())  # offline

writer = FastroAgent("openai:gpt-5-mini", max_tokens=100)


@step
async def write_book(ctx: StepContext) -> list[str]:
    chapters = [f"Write chapter {number} of a book about sheep." for number in range(1, 101)]
    responses = await ctx.map(writer, chapters, concurrency=20)
    return [response.output for response in responses]


book = Pipeline("book", {"write": write_book}, config=PipelineConfig(budget=Budget(usd="0.004")))


async def write() -> None:
    try:
        await book.execute()
    except BudgetExceeded as stop:
        print(stop)
        print(f"spent: ${stop.usage.cost_usd} of $0.004")
        print(f"requests: {stop.usage.request_count} made, {len(server.ledger.entries)} received")


async def go_on() -> None:
    """What was refused is kept: with more money, the same run goes on."""
    try:
        await writer.run("Write a book about sheep.", budget=Budget(usd="0.00001"))
    except BudgetExceeded as stop:
        response = await writer.run(message_history=stop.messages, budget=Budget(usd="0.01"))
        print(f"went on, for ${response.cost_usd}")


asyncio.run(write())
asyncio.run(go_on())
