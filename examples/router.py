"""A router: short tickets go to a small model, long ones to a large one, which the small one stands in for.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from fastroai import BasePipeline, FastroAgent, Pipeline
from fastroai.testing import Fault, ModelServer, Reply

server = ModelServer().start()  # offline
server.rule(lambda request: request.model == "gpt-5", Reply(fault=Fault.status(503)))  # offline: it is down
os.environ.update(server.environment())  # offline


def answer_with(model: str) -> Pipeline:
    agent = FastroAgent(model, request_retries=0)
    return Pipeline(model, {"answer": agent.as_step(lambda ctx: str(ctx.get_input("ticket")))})


class Support(BasePipeline):
    def __init__(self) -> None:
        super().__init__("support")
        self.register_pipeline("small", answer_with("openai:gpt-5-nano"))
        self.register_pipeline("large", answer_with("openai:gpt-5"), fallback="small")

    async def route(self, inputs: Mapping[str, Any], deps: object) -> str:
        """The name of one of those above."""
        return "large" if len(inputs["ticket"]) > 100 else "small"


async def main() -> None:
    support = Support()
    for ticket in ("It is broken.", "It all began in the summer of 1987. " * 4):
        result = await support.execute({"ticket": ticket})
        asked = [f"{record.model} ({record.outcome})" for record in result.usage.records]
        print(f"{len(ticket)} characters: {', '.join(asked)}, ${result.usage.cost_usd}")


asyncio.run(main())
