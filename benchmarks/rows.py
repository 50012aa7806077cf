"""Rows with a model that answers at once, beside `asyncio.gather` over a bare agent with a semaphore."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from benchmarks.measure import Row, timings
from fastroai import FastroAgent, MemoryRunStore, SQLiteRunStore, infer
from fastroai.rows import RowTable

ROWS = int(os.environ.get("FASTROAI_BENCH_ROWS", "300"))
MANY = int(os.environ.get("FASTROAI_BENCH_MANY_ROWS", "1200"))
AT_ONCE = 16
LEAST_OF_BARE, LEAST_OF_BARE_STORED = 0.9, 0.6
MOST_GROWTH = 600
"""Bytes of memory that each further row may add, in a run on record."""


def model() -> TestModel:
    return TestModel(custom_output_text="fine")


@infer(intent="Classify", model=model())
async def classify(text: str) -> str:
    raise NotImplementedError


async def rows_a_second() -> AsyncIterator[Row]:
    """As rates: a ratio of 1 is as many rows a second as the bare agent gives."""
    bare, ours = Agent(model()), FastroAgent(model())
    texts = [f"text {number}" for number in range(ROWS)]
    numbers = count()

    async def gathered() -> None:
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(text: str) -> str:
            async with slots:
                return (await bare.run(text)).output

        await asyncio.gather(*map(one, texts))

    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteRunStore(Path(folder, "rows.db"))

        def stored(target: FastroAgent | object) -> Callable[[], Awaitable[object]]:
            return lambda: target.map(texts, store=store, run_id=f"run {next(numbers)}")  # type: ignore[attr-defined]

        runs: dict[str, Callable[[], Awaitable[object]]] = {
            "bare": gathered,
            "agent": lambda: ours.map(texts),
            "function": lambda: classify.map(texts),
            "stored agent": stored(ours),
            "stored function": stored(classify),
        }
        took = await timings(runs, rounds=5, warm_up=1)
    for name in ("agent", "function", "stored agent", "stored function"):
        ratio = took["bare"].cpu / took[name].cpu
        least = LEAST_OF_BARE_STORED if name.startswith("stored") else LEAST_OF_BARE
        where = "SQLite" if name.startswith("stored") else "no store"
        yield Row(
            f"rows of {name.removeprefix('stored ')}s, {where}, beside gather over a bare agent (by CPU)",
            took[name].each(ROWS),
            took["bare"].each(ROWS),
            ratio,
            f"≥ {least} x",
            ratio >= least,
        )


async def bytes_of_a_row() -> AsyncIterator[Row]:
    """What each row adds to the store, and to memory while the run goes on and when it is read again.

    The rows are those of an agent: a process keeps the last 10,000 calls of typed functions besides.
    """
    ours = FastroAgent(model())
    await ours.map(["what is loaded once"], store=MemoryRunStore())
    with tempfile.TemporaryDirectory() as folder:
        sizes: list[int] = []
        memory: list[int] = []
        for rows in (MANY // 4, MANY):
            path = Path(folder, f"rows{rows}.db")
            store = SQLiteRunStore(path)
            try:
                gc.collect()
                tracemalloc.start()
                table: RowTable[str] = await ours.map(
                    (f"text {number}" for number in range(rows)), store=store, run_id="r"
                )
                assert table.ok
                del table
                gc.collect()
                memory.append(tracemalloc.get_traced_memory()[1])
                tracemalloc.stop()
            finally:
                await store.aclose()
            sizes.append(os.path.getsize(path))  # noqa: ASYNC240
        more = MANY - MANY // 4
        yield Row("a row of an agent in SQLite", f"{(sizes[1] - sizes[0]) / more:,.0f} bytes")
        grown = (memory[1] - memory[0]) / more
        yield Row(
            f"memory at its highest: {MANY:,} rows beside {MANY // 4:,}",
            f"{memory[1] / 2**20:.1f} MiB",
            f"{memory[0] / 2**20:.1f} MiB",
            aim=f"≤ {MOST_GROWTH} bytes a row",
            met=grown <= MOST_GROWTH,
        )


BENCHMARKS = (rows_a_second, bytes_of_a_row)
