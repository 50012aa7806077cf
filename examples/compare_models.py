"""Two models on the same cases: which is better, what each costs, and on which cases they differ.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import os
import tempfile
from pathlib import Path
from typing import Literal

from fastroai import Budget, infer
from fastroai.evaluation import Case, compare_sync
from fastroai.testing import ModelServer, Reply, ServedRequest, Usage


def answer(request: ServedRequest) -> Reply:  # offline
    is_wrong = "nano" in request.model and "not" in request.prompt
    return Reply(data={"response": "other" if is_wrong else "billing"}, usage=Usage(100, 4))


server = ModelServer().start()  # offline
server.rule(None, answer)  # offline
os.environ.update(server.environment())  # offline

Category = Literal["billing", "technical", "other"]


@infer(intent="Classify the ticket", model="openai:gpt-5-nano")
async def small(text: str) -> Category:
    raise NotImplementedError


@infer(intent="Classify the ticket", model="openai:gpt-5-mini")
async def large(text: str) -> Category:
    raise NotImplementedError


CASES = [
    Case(name=f"{text} {number}", inputs=f"{text} {number}", expected_output="billing")
    for number in range(12)
    for text in ("I paid twice for order", "I could not pay for order")
]


def main(folder: Path) -> None:
    comparison = compare_sync(
        {"small": small, "large": large},
        CASES,
        budget=Budget(usd=1),
        store=folder / "evals.db",
        run_id="models",
    )
    print(comparison)
    print(f"\nThe comparison has cost ${comparison.cost_usd:f}")
    (folder / "quality-against-cost.svg").write_text(comparison.to_svg())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
