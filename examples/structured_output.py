"""An answer as an object. When it does not fit, the model is asked again, and both requests are paid.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os
from typing import Literal

from pydantic import BaseModel

from fastroai import FastroAgent
from fastroai.testing import ModelServer, Reply


class Ticket(BaseModel):
    category: Literal["billing", "technical", "other"]
    urgent: bool


answers = [
    Reply(data={"category": "money", "urgent": True}),
    Reply(data={"category": "billing", "urgent": True}),
]
server = ModelServer(script=answers).start()  # offline
os.environ.update(server.environment())  # offline

agent = FastroAgent("openai:gpt-5-mini", output_type=Ticket, instructions="Classify the ticket.")


async def main() -> None:
    response = await agent.run("I was charged twice! Please help today.")
    print(f"{response.output!r} after {response.request_count} requests")
    for record in response.records:
        print(f"  {record.tokens.total_tokens} tokens, ${record.cost_usd}")


asyncio.run(main())
