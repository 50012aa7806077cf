"""Contracts: a malformed value fails the step that made or got it, in one readable line.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import os

from pydantic import BaseModel

from fastroai import FastroAgent, Pipeline, StepContext, StepExecutionError, step
from fastroai.contracts import Contract, ContractRegistry
from fastroai.testing import ModelServer, Reply

answers = ["12.50", "12.50", "a dozen", "-3"]  # offline
server = ModelServer(script=[Reply(answer) for answer in answers]).start()  # offline
os.environ.update(server.environment())  # offline


class Order(BaseModel):
    id: int
    text: str


agent = FastroAgent("openai:gpt-5-mini", instructions="Answer with the price alone.")


@step(accepts={"order": Order, "price": float})
async def invoice(ctx: StepContext) -> str:
    order: Order = ctx.get_input("order")
    return f"order {order.id + 1000}: ${ctx.get_dependency('price', float):.2f}"


pipeline = Pipeline(
    "shop",
    steps={"price": agent.as_step(lambda ctx: ctx.get_input("order")["text"]), "invoice": invoice},
    dependencies={"invoice": ["price"]},
    contracts=ContractRegistry(
        {"price": Contract(returns=float, ensure=[("the price is positive", lambda price: price > 0)])}
    ),
)

for order in (
    {"id": "1", "text": "tea for two"},
    {"id": "one", "text": "tea for two"},
    {"id": 3, "text": "tea for twelve"},
    {"id": 4, "text": "a voucher"},
):
    try:
        print(pipeline.execute_sync({"order": order}).output)
    except StepExecutionError as failure:
        print(failure.original_error)
