"""What a call and a pipeline will cost: at least, expected, at most, and why, before anything is sent.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os

from fastroai import Budget, FastroAgent, Pipeline, StepContext, step
from fastroai.testing import ModelServer

server = ModelServer().start()  # offline
os.environ.update(server.environment())  # offline

# max_tokens, retries and request_retries say how much can be sent: the less, the lower the upper amount.
writer = FastroAgent("openai:gpt-5-mini", max_tokens=400, retries=0, request_retries=0)


def topic(ctx: StepContext) -> str:
    return f"Write an article about {ctx.get_input('topic')}."


@step(budget=Budget(usd="0.002"))
async def check(ctx: StepContext) -> bool:
    response = await ctx.run(writer, f"Is this true? {ctx.get_dependency('write', str)}")
    return "yes" in response.output


article = Pipeline("article", {"write": writer.as_step(topic), "check": check}, {"check": ["write"]})


async def main() -> None:
    print(await writer.estimate("Write a poem about sheep."), "\n")

    quote = await article.estimate({"topic": "sheep"})
    print(quote, "\n")
    print(f"{len(server.ledger.entries)} requests sent so far")

    result = await article.execute({"topic": "sheep"})
    assert quote.upper_usd is not None
    assert quote.lower_usd <= result.usage.cost_usd <= quote.upper_usd
    again = await article.estimate({"topic": "sheep"})
    print(f"it cost ${result.usage.cost_usd:f}; the next one is expected to: ${again.expected_usd:f}")


asyncio.run(main())
