"""Tools that cannot crash the agent: a failure becomes a message, and the model makes the best of it.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os
from dataclasses import dataclass

from pydantic_ai import RunContext

from fastroai import FastroAgent, safe_tool
from fastroai.testing import ModelServer, Reply, ToolCall

calls = [ToolCall("temperature", {"city": "Oslo"}), ToolCall("temperature", {"city": "Atlantis"})]
script = [Reply(tool_calls=calls), Reply("4 °C in Oslo. For Atlantis there is no station.")]
server = ModelServer(script=script).start()  # offline
os.environ.update(server.environment())  # offline


@dataclass
class Stations:
    celsius: dict[str, float]


@safe_tool(timeout=5, on_error=lambda error: f"no station there: {error}")
async def temperature(ctx: RunContext[Stations], city: str) -> float:
    """The temperature in a city now, in degrees Celsius."""
    return ctx.deps.celsius[city]


agent = FastroAgent("openai:gpt-5-mini", tools=[temperature], deps_type=Stations)


async def main() -> None:
    response = await agent.run("How warm is it in Oslo and in Atlantis?", deps=Stations({"Oslo": 4.0}))
    for call in response.tool_calls:
        print(f"{call.tool_name}({call.args})")
    print(response.output)
    print(f"{response.request_count} requests, ${response.cost_usd}")


asyncio.run(main())
