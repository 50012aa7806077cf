"""What a ceiling that processes share costs each request, by store."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path
from time import perf_counter

from support.servers import running_postgres, running_redis
from support.spend_worker import Place, Task, Workers

from benchmarks.measure import Row
from fastroai.usage import SpendAccount, SpendClaim

SHAPES = ((1, 12), (2, 12), (4, 12), (1, 50), (4, 1))
"""Numbers of processes, and of requests that each makes at once, all on one account."""
REQUESTS = 240
"""How many a process makes, with the times of a third more that come before and do not count."""
ROUNDS = 5
IN_FLIGHT = 1_000
LEAST_RATE, MOST_MS, MOST_KB = 100, 20, 50


@contextmanager
def places() -> Iterator[dict[str, Place]]:
    """A new and empty store of each kind."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        yield {
            "SQLite": Place("sqlite", str(Path(folder) / "spend.db")),
            "Redis": Place("redis", stack.enter_context(running_redis()), {"prefix": "bench"}),
            "PostgreSQL": Place("postgres", stack.enter_context(running_postgres())),
        }


def task(place: Place, lines: int) -> Task:
    amount = Decimal("0.000123")
    return Task(
        "in_lines",
        place,
        amount,
        Decimal(1_000_000),
        cost=amount,
        count=max(REQUESTS, 8 * lines),
        lines=lines,
    )


async def shared_spending() -> AsyncIterator[Row]:
    """Each request reserves, is marked sent, and is settled."""
    with places() as stores, ExitStack() as stack:
        workers = Workers(max(processes for processes, _ in SHAPES))
        stack.callback(workers.end)
        for name, place in stores.items():
            for processes, lines in SHAPES:
                rates, medians = [], []
                for turn in range(ROUNDS + 1):
                    started = perf_counter()
                    took = await asyncio.to_thread(workers.do, task(place, lines), processes)
                    passed = perf_counter() - started
                    if turn:
                        rates.append(sum(map(len, took)) / passed)
                        medians.append(statistics.median([each for one in took for each in one]) * 1000)
                rate, median = statistics.median(rates), statistics.median(medians)
                slow = lines == 1
                yield Row(
                    f"requests under one SpendLimit in {name}, {processes} processes with {lines} at once",
                    f"{rate:,.0f} /s, median {median:,.1f} ms",
                    aim=f">= {LEAST_RATE} /s, <= {MOST_MS} ms" if slow else "",
                    met=rate >= LEAST_RATE and median <= MOST_MS if slow else None,
                )


async def many_in_flight() -> AsyncIterator[Row]:
    """One more request, from its reservation to its end, beside a thousand that were sent."""
    with places() as stores:
        for name, place in stores.items():
            store = place.open()
            account = SpendAccount(key="in flight", window="total")
            claims = [_claim(account, number) for number in range(IN_FLIGHT + 20)]
            await asyncio.gather(*map(store.reserve, claims[:IN_FLIGHT]))
            await asyncio.gather(*map(store.mark_sent, claims[:IN_FLIGHT]))
            took = []
            for claim in claims[IN_FLIGHT:]:
                for call in (store.reserve(claim), store.mark_sent(claim), store.settle(claim, Decimal(0))):
                    started = perf_counter()
                    await call
                    took.append((perf_counter() - started) * 1000)
            median = statistics.median(took)
            yield Row(
                f"one operation in {name} beside {IN_FLIGHT:,} requests in flight",
                f"median {median:,.1f} ms",
                aim=f"<= {MOST_MS} ms",
                met=median <= MOST_MS,
            )
            await store.aclose()


def _claim(account: SpendAccount, number: int) -> SpendClaim:
    return SpendClaim(
        id=f"{number:032x}",
        account=account,
        amount_usd=Decimal("0.000123") + number,
        limit_usd=Decimal(10**8),
        lease=600,
    )


BENCHMARKS = (shared_spending, many_in_flight)
