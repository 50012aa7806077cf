"""A writer whose judge says when it is good, in a loop with a limit, until a reader likes what it wrote.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os

from fastroai import AgentNode, Edge, FastroAgent, Graph, Node, StepContext, Verdict, step
from fastroai.testing import ModelServer, Reply

drafts = ["Sheep, " + "very " * 12 + "woolly.", "Sheep are woolly.", "Sheep are woolly and kind."]  # offline
server = ModelServer().start()  # offline
server.script(*map(Reply, drafts), model="gpt-5-mini")  # offline
server.script(Reply(data={"likes_it": False}), Reply(data={"likes_it": True}), model="gpt-5-nano")  # offline
os.environ.update(server.environment())  # offline

writer = FastroAgent("openai:gpt-5-mini", instructions="Write one sentence about sheep.")
reader = FastroAgent("openai:gpt-5-nano", output_type=dict[str, bool], instructions="Do you like it?")


def judge(ctx: StepContext, output: str) -> Verdict:
    return Verdict.accept() if len(output) <= 40 else Verdict.retry("At most 40 characters, please.")


@step
async def read(ctx: StepContext) -> dict[str, object]:
    response = await ctx.run(reader, ctx.get_input("text"))
    return {**response.output, "round": ctx.visit}


@step
async def publish(ctx: StepContext) -> str:
    return ctx.get_dependency("write", str)


graph = Graph(
    "article",
    nodes={
        "write": Node(AgentNode(writer, "Write it.", judge=judge, max_iterations=3), writes=["text"]),
        "read": Node(read, writes=["likes_it", "round"]),
        "publish": publish,
    },
    edges=[
        Edge("write", "read"),
        Edge("read", "publish", when="conditional", condition="likes_it or round >= 3"),
        Edge("read", "write", when="always"),
    ],
    entry="write",
)


async def main() -> None:
    result = await graph.run()
    print(f"{result.output} ({' -> '.join(map(str, result.path))})")
    for (node, visit), usage in result.usage.by_visit.items():
        print(f"{node} {visit}: {usage.request_count} requests, ${usage.cost_usd}")


asyncio.run(main())
