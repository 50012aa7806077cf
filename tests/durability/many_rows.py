"""Map many rows of an iterator: `store rows [kill]`. It says how much memory this took, or dies half-way."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Iterator

from pydantic_ai.models.test import TestModel

from fastroai import FastroAgent
from fastroai.rows import RowEnded


def most_memory() -> float:
    """The most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def main(store: str, count: int, *, kill: bool) -> None:
    """Map the rows, and print what came of it."""
    agent, ended = FastroAgent(TestModel(custom_output_text="fine"), name="fine"), 0

    def rows() -> Iterator[str]:
        for number in range(count):
            yield f"text {number}"

    def note(event: object) -> None:
        nonlocal ended
        ended += isinstance(event, RowEnded)
        if kill and ended == count // 2:
            os.kill(os.getpid(), signal.SIGKILL)

    await agent.map(["warm up"] * 300, store=store, run_id="before")
    before = most_memory()
    table = await agent.map(rows(), store=store, run_id="many", on_event=note)
    after = most_memory()
    read = 0
    async for row in table:
        assert (row.number, row.output) == (read, "fine")
        read += 1
    told = f"{read} rows, {before:.0f} MiB before, {after:.0f} MiB after, {most_memory():.0f} MiB when read"
    print(told, table.resumed, sep="; ", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), kill="kill" in sys.argv))
