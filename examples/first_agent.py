"""A first answer, and what it cost.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os

from fastroai import FastroAgent, format_cost
from fastroai.testing import ModelServer, Reply

server = ModelServer(script=[Reply("The capital of France is Paris.")]).start()  # offline
os.environ.update(server.environment())  # offline

agent = FastroAgent("openai:gpt-5-mini", instructions="Answer in one sentence.")


async def main() -> None:
    response = await agent.run("What is the capital of France?")
    print(response.output)
    print(f"{response.input_tokens} + {response.output_tokens} tokens cost ${response.cost_usd} exactly,")
    print(f"which is about {format_cost(response)}.")


asyncio.run(main())
