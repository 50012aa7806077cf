"""Plain PydanticAI agents: inside a tool with `Metered()`, and as they are with `FastroAgent(agent=...)`.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os

from pydantic_ai import Agent

from fastroai import FastroAgent, Metered
from fastroai.testing import ModelServer, Reply, ToolCall

server = ModelServer().start()  # offline
asks = Reply(tool_calls=[ToolCall("research", {"topic": "sheep"})])  # offline
server.script(asks, Reply("A poem about sheep."), model="gpt-5-mini")  # offline
server.script(Reply("They are woolly."), Reply("Sheep, at length."), model="gpt-5-nano")  # offline
os.environ.update(server.environment())  # offline

researcher = Agent("openai:gpt-5-nano", capabilities=[Metered()])


async def research(topic: str) -> str:
    """Find out about a topic."""
    return (await researcher.run(f"Tell me about {topic}.")).output


poet = FastroAgent("openai:gpt-5-mini", tools=[research])


async def main() -> None:
    response = await poet.run("Write a poem about sheep.")
    print(response.output)
    for record in response.records:  # the agent that the tool called is on the account
        print(f"{record.model}: ${record.cost_usd}")
    print(f"total: ${response.cost_usd}")

    existing = FastroAgent(agent=researcher)
    response = await existing.run("Tell me more.")
    print(f"{response.output} ${response.cost_usd}")


asyncio.run(main())
