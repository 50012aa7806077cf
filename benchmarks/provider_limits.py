"""What a shared `ProviderLimit` costs each request, by store, beside one of the process alone."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator
from contextlib import nullcontext
from time import perf_counter

from benchmarks.measure import Row
from benchmarks.spending import places
from fastroai.runtime import ProviderLimit
from fastroai.runtime.providers.provider_line import Ticket
from fastroai.runtime.providers.provider_queue import Queue

AT_ONCE = (1, 12, 50)
REQUESTS = 200
ROUNDS = 5


async def _request(queue: Queue) -> float:
    """One request that takes no time: the seconds for which it waits."""
    ticket, began = Ticket(10), perf_counter()
    granted_by = await queue.wait_turn(ticket, lambda: None, nullcontext, lambda wake: nullcontext())
    took = perf_counter() - began
    assert granted_by.send(ticket)
    granted_by.end(ticket, 10)
    return took


async def _waits(queue: Queue, at_once: int) -> float:
    """The median wait, in milliseconds, of requests in some rows at once."""
    left, took = iter(range(REQUESTS)), list[float]()

    async def row() -> None:
        for _ in left:
            took.append(await _request(queue))

    await asyncio.gather(*(row() for _ in range(at_once)))
    return statistics.median(took) * 1000


async def shared_provider_limits() -> AsyncIterator[Row]:
    """Each request waits for its turn, is sent, and ends."""
    numbers = {"max_concurrency": 100, "requests_per_minute": 10**9, "tokens_per_minute": 10**9}
    alone = ProviderLimit(**numbers).queue("openai")  # type: ignore[arg-type]
    with places() as stores:
        for name, place in stores.items():
            url = place.where if place.kind != "sqlite" else f"{place.where}.limits"
            queue = ProviderLimit(**numbers, store=url, key=name).queue("openai")  # type: ignore[arg-type]
            for at_once in AT_ONCE:
                rounds = [(await _waits(queue, at_once), await _waits(alone, at_once)) for _ in range(ROUNDS)]
                shared, bare = (statistics.median(column) for column in zip(*rounds, strict=True))
                yield Row(
                    f"wait of a request under a ProviderLimit in {name}, {at_once} at once",
                    f"{shared:,.2f} ms",
                    f"{bare:,.4f} ms in this process alone",
                    shared / bare,
                )


BENCHMARKS = (shared_provider_limits,)
