"""A process that maps rows until it is done or kills itself.

`kind store url rows at_once seed [batch|record]`
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from typing import Any

INTENT = "Repeat the text"


def target(kind: str, url: str) -> Any:
    """A function, an agent or a pipeline, which asks the model server at `url`."""
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from fastroai import Pipeline, StepContext, infer, step
    from fastroai.agent import FastroAgent

    model = OpenAIResponsesModel("gpt-5-mini", provider=OpenAIProvider(base_url=url, api_key="none"))
    if kind == "function":

        @infer(intent=INTENT, model=model)
        async def repeat(text: str) -> str:
            raise NotImplementedError

        return repeat
    agent = FastroAgent(model, name="repeat")
    if kind == "agent":
        return agent

    @step
    async def first(ctx: StepContext[Any]) -> str:
        return (await ctx.run(agent, ctx.get_input("text"))).output

    return Pipeline("repeats", {"first": first})


def rows_for(kind: str, count: int) -> list[Any]:
    """The rows, as the target takes them."""
    texts = [f"text {number}" for number in range(count)]
    return texts if kind != "pipeline" else [{"text": text} for text in texts]


async def main(kind: str, store: str, url: str, count: int, at_once: int, seed: int, how: str = "") -> None:
    """Map the rows. With a seed, the process kills itself soon after the first end of a row."""
    from pydantic_ai.capabilities import BatchModelRequests

    from fastroai.rows import RowEnded

    chance = random.Random(seed)
    left = 1 if seed >= 0 else -1

    def note(event: object) -> None:
        nonlocal left
        if isinstance(event, RowEnded):
            left -= 1
            if left == 0:
                wait = chance.random() * 0.02
                asyncio.get_running_loop().call_later(wait, os.kill, os.getpid(), signal.SIGKILL)

    batch = BatchModelRequests(max_requests=at_once) if how == "batch" else False
    table = await target(kind, url).map(
        rows_for(kind, count),
        store=store,
        run_id="rows",
        concurrency=at_once,
        batch=batch,
        record_rows=how == "record",
        on_event=note,
    )
    resumed = table.resumed
    print(len(table), table.cost_usd, table.usage.committed_usd, table.ok, resumed, sep="\t", flush=True)


if __name__ == "__main__":
    kind, store, url, count, at_once, seed, *more = sys.argv[1:]
    asyncio.run(main(kind, store, url, int(count), int(at_once), int(seed), *more))
