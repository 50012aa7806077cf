"""Three agents, one conversation: each hears those before it, and what got too long becomes a summary.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os

from fastroai import Edge, FastroAgent, Graph, Node, StepContext, step
from fastroai.graphs import GraphConversation
from fastroai.testing import ModelServer, Reply

server = ModelServer().start()  # offline
server.script(Reply("A barn. " * 100), Reply("In the barn, it snows."), Reply("It snows."))  # offline
server.script(Reply("The story is in a barn, at night."), model="gpt-5-nano")  # offline
os.environ.update(server.environment())  # offline

places = FastroAgent("openai:gpt-5-mini", instructions="You invent places.")
writer = FastroAgent("openai:gpt-5-mini", instructions="You write stories.")
editor = FastroAgent("openai:gpt-5-mini", instructions="You shorten.")
summarizer = FastroAgent("openai:gpt-5-nano", instructions="Summarize.")


@step
async def edit(ctx: StepContext) -> str:
    response = await ctx.run(editor, "Shorten it.")
    *messages, _ = response.result.all_messages()
    for message in messages:
        for part in message.parts:
            print(f"{part.part_kind}: {' '.join(str(getattr(part, 'content', '')).split())}")
    print(f"instructions: {' '.join(str(getattr(messages[-1], 'instructions', '')).split())}")
    return response.output


graph = Graph(
    "story",
    goal="A story in a sentence",
    nodes={
        "imagine": Node(places.as_step("Where is it?"), writes=["place"]),
        "write": Node(writer.as_step("Write it."), writes=["draft"]),
        "edit": Node(edit, focus="Every word counts"),
    },
    edges=[Edge("imagine", "write"), Edge("write", "edit")],
    conversation=GraphConversation(compact_above=300, keep_phases=1, summarizer=summarizer),
)


async def main() -> None:
    result = await graph.run()
    print(f"-> {result.output}")
    for node, usage in result.usage.by_node.items():
        print(f"{node}: {usage.request_count} requests, ${usage.cost_usd}")


asyncio.run(main())
