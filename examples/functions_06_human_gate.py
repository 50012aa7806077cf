"""A flow that asks a person before it acts: it stops, and goes on with the answer. Nothing is paid twice.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os
import tempfile
from contextlib import aclosing
from pathlib import Path
from typing import Literal

from fastroai import Inbox, SQLiteRunStore, compute, flow, infer, opaque
from fastroai.errors import FlowStopped
from fastroai.functions import HumanReviewContext, await_human
from fastroai.testing import ModelServer, Reply

server = ModelServer().start()  # offline
server.script(Reply(data={"response": 80}))  # offline
os.environ.update(server.environment())  # offline


@infer(intent="Say how many dollars the customer wants back", model="openai:gpt-5-mini")
async def wanted(text: opaque[str]) -> int:
    raise NotImplementedError


@compute
async def pay(amount: int) -> str:
    return f"paid {amount} dollars"


@flow
async def refund(text: opaque[str]) -> str:
    amount = await wanted(text)
    if amount > 50:
        review = HumanReviewContext(f"Refund {amount} dollars?", "above 50", {"letter": text})
        decision = await await_human(review, Literal["refund", "refuse"])
        if decision.value == "refuse":
            return f"{decision.reviewer} refused: {decision.rationale}"
    return await pay(amount)


async def main(file: Path) -> None:
    async with aclosing(SQLiteRunStore(file)) as store:
        try:
            await refund.run("I want my 80 dollars back.", run_id="letter-7", store=store)
        except FlowStopped as stopped:
            print(stopped)
        (asked,) = await Inbox(store).list()
        await Inbox(store).answer(asked.id, "refund", reviewer="Mia")
    async with aclosing(SQLiteRunStore(file)) as store:  # days later, in another process
        print(await refund.resume("letter-7", store=store))
    print(len(server.ledger.entries), "request")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder) / "runs.db"))
