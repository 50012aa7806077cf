"""A ceiling for each customer and day, kept in a file that every worker process shares.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fastroai import FastroAgent, SpendLimit, SpendLimitExceeded
from fastroai.pipelines import BudgetWarning
from fastroai.store import SQLiteSpendStore
from fastroai.testing import ModelServer

server = ModelServer().start()  # offline
os.environ.update(server.environment())  # offline


@dataclass
class Deps:
    customer: str


def alert(warning: BudgetWarning) -> None:
    print(f"{warning.key}: {warning.threshold:.0%} of ${warning.limit_usd} is spent")


daily = SpendLimit(
    usd="0.002",
    window="day",
    key=lambda deps: deps.customer,
    store=SQLiteSpendStore(Path(tempfile.mkdtemp()) / "spend.db"),
    warn_at=(0.25, 0.5),
    on_warning=alert,
)
writer = FastroAgent("openai:gpt-5-mini", deps_type=Deps, max_tokens=100, budget=daily)


async def serve(customer: str, questions: int) -> None:
    """All questions of a customer at once: those that the day's money cannot pay for are stopped."""
    answers = await asyncio.gather(
        *(writer.run(f"Question {number}", deps=Deps(customer)) for number in range(questions)),
        return_exceptions=True,
    )
    stops = [answer for answer in answers if isinstance(answer, SpendLimitExceeded)]
    status = await daily.status(Deps(customer))
    print(f"{customer}: {questions - len(stops)} of {questions} answered for ${status.spent_usd}")
    print(f"  within the limit: {status.spent_usd <= status.limit_usd}, until {status.resets_at:%H:%M} UTC")


async def main() -> None:
    await asyncio.gather(serve("ada", 5), serve("grace", 200))


asyncio.run(main())
