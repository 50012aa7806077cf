"""A typed function from end to end: a contract, a check of the answer, a second attempt, and what it cost.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import os
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from fastroai import Budget, contract, flow, format_cost, infer, opaque, run
from fastroai.testing import ModelServer, Reply

server = ModelServer().start()  # offline
server.script(  # offline
    Reply(data={"label": "positive", "confidence": 0.42, "reasoning": "It says great."}),
    Reply(data={"label": "negative", "confidence": 0.93, "reasoning": "The praise is sarcastic."}),
)
os.environ.update(server.environment())  # offline


@contract
class Sentiment(BaseModel):
    label: Literal["positive", "negative", "neutral"]
    confidence: Annotated[float, Field(ge=0, le=1)]
    reasoning: str


@infer(
    intent="Classify the emotional tone of customer feedback",
    context="Treat sarcasm as negative.",
    model="openai:gpt-5-mini",
    ensure=lambda r: r.confidence > 0.7,
    budget=Budget(ms=8000, usd="0.01"),
    retries=3,
)
async def classify(text: opaque[str]) -> Sentiment:
    raise NotImplementedError


@flow(budget=Budget(usd="0.05"))
async def feedback(text: opaque[str]) -> str:
    sentiment = await classify(text)
    return f"{sentiment.label}, since: {sentiment.reasoning}"


if __name__ == "__main__":
    print(run(feedback("Great, it broke on the first day.")))
    (record,) = feedback.records
    print(record.function, record.inputs, record.outcome)
    print(f"{record.attempts} attempts, {format_cost(record.cost_usd)}, since", *record.retry_reasons)
