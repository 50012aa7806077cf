"""Three steps, two of them in parallel: each starts the moment that its own dependencies are done.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os

from pydantic import BaseModel

from fastroai import FastroAgent, Pipeline, StepContext, step
from fastroai.testing import ModelServer, Reply

server = ModelServer().start()  # offline
server.script(Reply(data={"category": "billing", "urgent": True}), model="gpt-5-nano")  # offline
server.script(Reply("Charged twice."), Reply("We look into it today."), model="gpt-5-mini")  # offline
os.environ.update(server.environment())  # offline


class Category(BaseModel):
    category: str
    urgent: bool


classifier = FastroAgent("openai:gpt-5-nano", output_type=Category)
writer = FastroAgent("openai:gpt-5-mini")


@step(timeout=30, retries=2)
async def reply(ctx: StepContext) -> str:
    category = ctx.get_dependency("classify", Category)
    summary = ctx.get_dependency("summarise", str)
    response = await ctx.run(writer, f"Reply to a {category.category} ticket: {summary}")
    return response.output


pipeline = Pipeline(
    "support",
    steps={
        "classify": classifier.as_step(lambda ctx: f"Classify: {ctx.get_input('ticket')}"),
        "summarise": writer.as_step(lambda ctx: f"Summarise: {ctx.get_input('ticket')}"),
        "reply": reply,
    },
    dependencies={"reply": ["classify", "summarise"]},
)


async def main() -> None:
    result = await pipeline.execute({"ticket": "I was charged twice in October!"})
    print(result.output)
    for step_id, usage in result.usage.steps.items():
        print(f"{step_id}: {usage.tokens} tokens, ${usage.cost_usd}")
    print(f"total: ${result.usage.cost_usd}; it waited for {' -> '.join(result.critical_path)}")


asyncio.run(main())
