"""A graph: what a model says of a ticket decides whether it is answered at once or goes to a person.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os

from pydantic import BaseModel

from fastroai import Edge, FastroAgent, Graph, Node, StepContext, step
from fastroai.testing import ModelServer, Reply

server = ModelServer().start()  # offline
sure, unsure = ({"category": "billing", "confidence": confidence} for confidence in (0.93, 0.41))  # offline
server.script(Reply(data=sure), Reply(data=unsure), model="gpt-5-nano")  # offline
server.script(Reply("We have refunded the second charge."), model="gpt-5-mini")  # offline
os.environ.update(server.environment())  # offline


class Ticket(BaseModel):
    category: str
    confidence: float


classifier = FastroAgent("openai:gpt-5-nano", output_type=Ticket, instructions="Classify the ticket.")
writer = FastroAgent("openai:gpt-5-mini", instructions="Write a reply.")


@step
async def escalate(ctx: StepContext) -> str:
    return f"A person looks at {ctx.get_input('text')!r}"


graph = Graph[None, dict[str, str], str](
    "support",
    goal="Answer a customer's ticket",
    nodes={
        "classify": Node(classifier.as_step(lambda ctx: ctx.get_input("text")), writes=["confidence"]),
        "reply": writer.as_step("Reply to the ticket."),
        "escalate": escalate,
    },
    edges=[
        Edge("classify", "reply", when="conditional", condition="confidence >= 0.8"),
        Edge("classify", "escalate", when="always"),
    ],
)


async def main() -> None:
    for text in ("I was charged twice in October!", "It does not do what it did."):
        result = await graph.run({"text": text})
        print(f"{result.output} ({' -> '.join(map(str, result.path))}, ${result.usage.cost_usd})")
        print("\n".join(line for line in result.explain().splitlines() if "conditional" in line))


asyncio.run(main())
