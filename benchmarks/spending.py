"""What a ceiling that processes share costs each request, by store."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack
from decimal import Decimal
from functools import partial
from pathlib import Path

from support.servers import running_postgres, running_redis
from support.spend_worker import Deed, Place, Task, Workers

from benchmarks.measure import Row, medians
from fastroai.usage.memory_spend_store import MemorySpendStore

PROCESSES = (1, 2, 4)
REQUESTS = 200
"""At once, in each process, all on one account."""


def task(place: Place) -> Task:
    amount = Decimal("0.000123")
    return Task("spend", place, amount, Decimal(1_000_000), cost=amount, count=REQUESTS)


async def shared_spending() -> AsyncIterator[Row]:
    """Each request reserves, is marked sent, and is settled."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        places = {
            "SQLite": Place("sqlite", str(Path(folder) / "spend.db")),
            "Redis": Place("redis", stack.enter_context(running_redis()), {"prefix": "bench"}),
            "PostgreSQL": Place("postgres", stack.enter_context(running_postgres())),
        }
        workers = Workers(max(PROCESSES))
        stack.callback(workers.end)
        memory = MemorySpendStore()

        async def in_memory() -> None:
            await Deed("memory", task(places["SQLite"]), memory).spend()

        async def in_processes(name: str, processes: int) -> None:
            await asyncio.to_thread(workers.do, task(places[name]), processes)

        names = [(name, processes) for name in places for processes in PROCESSES]
        took = await medians(
            {"memory": in_memory}
            | {f"{name} {processes}": partial(in_processes, name, processes) for name, processes in names},
            rounds=5,
            warm_up=1,
        )
    bare = took["memory"] / REQUESTS
    for name, processes in names:
        each = took[f"{name} {processes}"] / (REQUESTS * processes)
        yield Row(
            f"requests a second under one SpendLimit in {name}, processes: {processes}",
            f"{1 / each:,.0f} /s",
            f"{1 / bare:,.0f} /s (memory)",
            each / bare,
        )


BENCHMARKS = (shared_spending,)
