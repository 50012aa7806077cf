"""An answer as it is written, and one that is left early: both are on the account.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os

from fastroai import FastroAgent
from fastroai.testing import ModelServer, Reply

STORY = "Once upon a time a request was sent, and nobody knew what it would cost."
server = ModelServer(script=[Reply(STORY), Reply(STORY)]).start()  # offline
os.environ.update(server.environment())  # offline

agent = FastroAgent("openai:gpt-5-mini", max_tokens=1_000)


async def main() -> None:
    async for chunk in agent.run_stream("Tell me a story."):
        print(chunk.content, end="", flush=True)
        if chunk.usage_data:  # on the last chunk: what `run` would have returned
            print(f"\n... ${chunk.usage_data.cost_usd}, {chunk.usage_data.output_tokens} tokens")

    async with agent.run_stream("Tell me another.") as stream:
        async for chunk in stream:
            print(f"{chunk.content!r} is enough.")
            break


asyncio.run(main())
