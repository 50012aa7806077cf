"""Who retries what: the request its transport failures, `ctx.run` the rest. All of it is on the account.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os

from fastroai import FastroAgent, Pipeline, StepContext, step
from fastroai.testing import Fault, ModelServer, Reply

server = ModelServer(script=[Reply("Baa."), Reply("Baa, at last.")]).start()  # offline
server.fail_next(2, Fault.status(429, retry_after=0.1))  # offline
os.environ.update(server.environment())  # offline

agent = FastroAgent("openai:gpt-5-mini", max_tokens=100)


@step
async def patient(ctx: StepContext) -> str:
    response = await ctx.run(agent, "What does the sheep say?", timeout=3, retries=1, retry_delay=0.1)
    return response.output


async def main() -> None:
    response = await agent.run("What does the sheep say?")
    outcomes = [record.outcome for record in response.records]
    print(f"{response.output} after {outcomes}: ${response.cost_usd}, complete: {response.cost_complete}")

    server.fail_next(1, Fault.hang())
    result = await Pipeline("patience", {"ask": patient}).execute()
    usage = result.usage.total
    print(f"{result.output} after {usage.request_count} requests, {usage.unmeasured_requests} unmeasured:")
    print(f"${usage.cost_usd} is known, and no more than ${usage.committed_usd} can have been spent.")


asyncio.run(main())
