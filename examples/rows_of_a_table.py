"""A typed function over a table: a quote, a budget that ends it too early, and a resume.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Literal

from fastroai import Budget, infer
from fastroai.testing import ModelServer, Reply, Usage

server = ModelServer().start()  # offline
server.rule(None, Reply(data={"response": "billing"}, usage=Usage(100, 4)))  # offline
os.environ.update(server.environment())  # offline

TICKETS = [{"id": f"T{number}", "text": f"I was charged {number} times"} for number in range(60)]


@infer(intent="Classify the ticket", model="openai:gpt-5-nano")
async def classify(text: str) -> Literal["billing", "technical", "other"]:
    raise NotImplementedError


async def main(store: Path) -> None:
    quote = await classify.estimate(rows=TICKETS, key="id", sample=5, store=store, run_id="tickets")
    print(f"60 rows will cost about ${quote.expected_usd:f}")

    small = Budget(usd="0.0003")
    table = await classify.map(TICKETS, key="id", budget=small, store=store, run_id="tickets")
    print(table.status, table.reason_code)

    enough = Budget(usd="0.01")
    table = await classify.map(TICKETS, key="id", budget=enough, store=store, run_id="tickets")
    print(table.status, len(table), f"rows for ${table.cost_usd:f}")
    print(table.records[7]["key"], "is about", table.outputs[7])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder) / "runs.db"))
