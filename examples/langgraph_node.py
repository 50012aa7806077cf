"""LangGraph: steps as nodes of a graph, on one account, and the graph as a step of a pipeline.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

# pyright: standard
import asyncio
import os
from typing import TypedDict

from langgraph.graph import END, StateGraph

from fastroai import Budget, FastroAgent, Pipeline, StepContext, budget_scope, step
from fastroai.integrations.langgraph import as_node, graph_step
from fastroai.testing import ModelServer, Reply

server = ModelServer().start()  # offline
server.script(Reply("billing"), Reply("praise"), model="gpt-5-nano")  # offline
server.script(Reply("Sorry for that."), model="gpt-5-mini")  # offline
os.environ.update(server.environment())  # offline

classifier = FastroAgent("openai:gpt-5-nano", instructions="Which kind of ticket is it?")
writer = FastroAgent("openai:gpt-5-mini", instructions="Reply to the ticket.")


class Ticket(TypedDict, total=False):
    text: str
    category: str
    reply: str


@step(timeout=30, retries=2)
async def classify(ctx: StepContext) -> str:
    return (await ctx.run(classifier, ctx.get_input("text"))).output


@step
async def reply(ctx: StepContext) -> str:
    return (await ctx.run(writer, f"{ctx.get_input('category')}: {ctx.get_input('text')}")).output


builder = StateGraph(Ticket)
builder.add_node("classify", as_node(classify, reads=["text"], writes="category"))
builder.add_node("reply", as_node(reply, writes="reply"))
builder.set_entry_point("classify")
builder.add_conditional_edges("classify", lambda ticket: END if ticket["category"] == "praise" else "reply")
graph = builder.compile()
desk = Pipeline("desk", {"triage": graph_step(graph, output="category")})


async def main() -> None:
    async with budget_scope(Budget(usd="0.05")) as scope:
        ticket = await graph.ainvoke({"text": "I was charged twice!"})
    print(ticket["reply"])
    print(*(f"{record.step_id}: {record.model}, ${record.cost_usd}" for record in scope.records), sep="\n")
    result = await desk.execute({"text": "You are the best."})
    print(f"{result.output}: ${result.usage.steps['triage'].cost_usd}")


asyncio.run(main())
