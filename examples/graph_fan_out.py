"""Branches: three sources are searched side by side, one of them fails, and the join goes on with the rest.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os

from fastroai import Edge, FastroAgent, Graph, Node, StepContext, step
from fastroai.testing import ModelServer, Reply

server = ModelServer().start()  # offline
server.script(Reply("Sheep are woolly, and say so."), model="gpt-5-mini")  # offline
server.rule(None, lambda request: Reply(f"a page on {request.prompt.split()[-1]}"))  # offline
os.environ.update(server.environment())  # offline

searcher = FastroAgent("openai:gpt-5-nano")
writer = FastroAgent("openai:gpt-5-mini")
SOURCES = ("web", "library", "archive")


@step(retries=0)
async def search(ctx: StepContext) -> str:
    """One step for three nodes: `step_id` is the id of the node."""
    if ctx.step_id == "archive":
        raise ConnectionError("closed on Mondays")
    found = await ctx.run(searcher, f"Look in the {ctx.step_id} for {ctx.get_input('topic')}")
    return found.output


@step
async def combine(ctx: StepContext) -> str:
    found = [f"{source}: {ctx.get_input(source)}" for source in SOURCES if source in ctx.inputs]
    print(found, {source: str(error) for source, error in ctx.errors.items()})
    return (await ctx.run(writer, "\n".join(found))).output


graph = Graph[None, dict[str, str], str](
    "research",
    nodes={
        "plan": Node(searcher.as_step("What to ask about sheep?"), writes=["plan"]),
        **dict.fromkeys(SOURCES, search),
        "combine": combine,
    },
    edges=[
        *(Edge("plan", source) for source in SOURCES),
        *(Edge(source, "combine") for source in SOURCES),
    ],
    on_branch_failure="wait_all",
)


async def main() -> None:
    result = await graph.run({"topic": "sheep"})
    print(f"{result.output} ({result.quality}, ${result.usage.cost_usd})")
    print(result.path)


asyncio.run(main())
