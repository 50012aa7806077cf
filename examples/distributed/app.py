"""The application: one pipeline, and where its runs and queues are. Every process imports it."""

import asyncio
import os

from typing_extensions import TypedDict

from fastroai import FastroAgent, Pipeline, StepContext, step
from fastroai.distributed import Distributed, QueueOptions

writer: FastroAgent[None, str] = FastroAgent(
    "openai-chat:gpt-5-mini", instructions="Answer the letter kindly, in three sentences."
)


class Letter(TypedDict):
    """What comes in."""

    text: str


@step
async def sort(ctx: StepContext[None]) -> str:
    """Look at the letter for a while, so that there is time to kill a worker."""
    await asyncio.sleep(float(os.environ.get("SLOW", "5")))
    return "complaint" if "broken" in ctx.get_input("text", str) else "question"


@step
async def draft(ctx: StepContext[None]) -> str:
    """Write a draft, word by word. What the model has answered is on record, and is never paid twice."""
    return "".join([chunk.content async for chunk in ctx.run_stream(writer, ctx.get_input("text", str))])


@step
async def approve(ctx: StepContext[None]) -> bool:
    """Ask a person. The run waits for months, if it must, and no worker waits with it."""
    return await ctx.ask(f"May this draft be sent? {ctx.get_dependency('draft', str)}", bool)


@step
async def send(ctx: StepContext[None]) -> str:
    """Send the letter, once, whichever worker does it."""
    if not ctx.get_dependency("approve", bool):
        return "thrown away"
    return await ctx.once("sent", lambda: f"sent by process {os.getpid()}")


letters = Pipeline(
    "letters",
    {"sort": sort, "draft": draft, "approve": approve, "send": send},
    dependencies={"draft": ["sort"], "approve": ["draft"], "send": ["approve"]},
    accepts=Letter,
)

app = Distributed(os.environ.get("LETTERS_URL", "letters.db"), name="letters")
app.register(letters)
app.register_queue("default", QueueOptions(worker_concurrency=20, polling_interval_sec=0.2))
