"""A conversation of several turns: the agent keeps no state, so the history goes in and comes out.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os

from pydantic_ai import ModelMessage

from fastroai import FastroAgent
from fastroai.testing import ModelServer, Reply

server = ModelServer(script=[Reply("Nice to meet you, Ada."), Reply("Your name is Ada.")]).start()  # offline
os.environ.update(server.environment())  # offline

agent = FastroAgent("openai:gpt-5-mini")


async def main() -> None:
    history: list[ModelMessage] = []
    for said in ("My name is Ada.", "What is my name?"):
        response = await agent.run(said, message_history=history)
        history += response.new_messages()
        print(f"{said} -> {response.output} ({response.input_tokens} tokens in)")


asyncio.run(main())
