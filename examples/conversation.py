"""A conversation over several runs: a step that lacks something stops the run, and nothing more is paid.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os

from pydantic import BaseModel

from fastroai import FastroAgent, Pipeline, StepContext, step
from fastroai.pipelines import ConversationState, ConversationStatus
from fastroai.testing import ModelServer, Reply

orders = [Reply(data={"order_id": None}), Reply(data={"order_id": "ORD-48213"}), Reply("It is on its way.")]
server = ModelServer(script=orders).start()  # offline
os.environ.update(server.environment())  # offline


class Request(BaseModel):
    order_id: str | None


reader = FastroAgent("openai:gpt-5-mini", output_type=Request)
writer = FastroAgent("openai:gpt-5-mini")


@step
async def understand(ctx: StepContext) -> ConversationState[Request]:
    request = (await ctx.run(reader, "\n".join(ctx.get_input("messages")))).output
    if request.order_id is None:
        question = "What is the number of your order?"
        return ConversationState(ConversationStatus.INCOMPLETE, request, {"question": question})
    return ConversationState(ConversationStatus.COMPLETE, request)


@step
async def answer(ctx: StepContext) -> str:
    state = ctx.get_dependency("understand", ConversationState[Request])
    return (await ctx.run(writer, f"Tell the customer where this order is: {state.data}")).output


pipeline = Pipeline("orders", {"understand": understand, "answer": answer}, {"answer": ["understand"]})


async def main() -> None:
    messages: list[str] = []
    for message in ("Where is my order?", "It is ORD-48213."):
        messages.append(message)
        result = await pipeline.execute({"messages": messages})
        state = result.conversation_state
        print(f"{message} -> {state.context['question'] if state else result.output}")
        print(f"  stopped early: {result.stopped_early}, {result.usage.request_count} requests")


asyncio.run(main())
