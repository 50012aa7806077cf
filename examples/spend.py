"""Paying for more than models: money is set aside before it is spent, in the same budget.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os

from fastroai import Budget, FastroAgent, budget_scope, format_cost, safe_tool, spend
from fastroai.testing import ModelServer, Reply, ToolCall

server = ModelServer(  # offline
    script=[
        Reply(tool_calls=[ToolCall("search", {"question": "sheep eyes", "pages": 2})]),
        Reply("Sheep see nearly all around them."),
    ]
).start()
os.environ.update(server.environment())  # offline


def price(question: str, pages: int) -> str:
    return "0.005" if pages == 1 else "0.01"


@safe_tool(cost=price)
async def search(question: str, pages: int) -> str:
    """Ask a search engine, half a cent for each page."""
    return f"{pages} pages on {question}"


async def embed(texts: list[str]) -> int:
    """Embed texts with any SDK, which says afterwards how many tokens it took; 12 here."""
    most = sum(len(text.encode()) for text in texts)  # a token has one byte at least
    async with spend(model="openai:text-embedding-3-small", units={"input_tokens": most}) as purchase:
        tokens_used = 12  # what the SDK's response says
        purchase.settle(units={"input_tokens": tokens_used})
    return tokens_used


agent = FastroAgent("openai:gpt-5-mini", tools=[search], max_tokens=200)


async def main() -> None:
    async with budget_scope(Budget(usd="0.05")) as scope:
        await embed(["Sheep have a field of vision of about 300 degrees."])
        print((await agent.run("What do sheep see?")).output)
    for record in scope.records:
        print(f"{record.kind}: {record.model}, {format_cost(record)}")
    print(f"{scope.usage.request_count} requests to models, {format_cost(scope.usage)} in all")


asyncio.run(main())
