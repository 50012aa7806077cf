"""A step asks a person: the run halts, and goes on with an answer that comes from the command line.

Run: python examples/ask_a_person.py
"""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from fastroai import Inbox, Pipeline, SQLiteRunStore, StepContext, step


@step
async def refund(ctx: StepContext) -> str:
    # It runs again when the run is resumed, and `once` does not.
    amount = await ctx.once("look up", look_up)
    agreed = await ctx.ask(f"Refund {amount} dollars?", bool, to="finance")
    return f"refunded {amount} dollars" if agreed else "not refunded"


def look_up() -> int:
    print("looking up the order")
    return 120


def desk() -> Pipeline[None]:
    return Pipeline("desk", {"refund": refund})


async def begin(file: Path) -> str:
    store = SQLiteRunStore(file)
    paused = await desk().execute(run_id="order-1182", store=store)
    print(f"waits for {len(paused.questions)} answer")
    (asked,) = await Inbox(store).list()
    print(f"for {asked.to}: {asked.question}")
    await store.aclose()
    return asked.id


async def go_on(file: Path) -> None:
    store = SQLiteRunStore(file)
    result = await desk().resume("order-1182", store=store)
    print(result.output)
    await store.aclose()


def main(file: Path) -> None:
    question = asyncio.run(begin(file))
    # Days later, somebody at another desk: fastroai review answer QUESTION true --reviewer Mia
    command = [sys.executable, "-m", "fastroai.cli", "review", "answer", question, "true"]
    given = subprocess.check_output([*command, "--reviewer", "Mia", "--store", str(file)], text=True)
    print(given.strip())
    asyncio.run(go_on(file))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder) / "runs.db")
