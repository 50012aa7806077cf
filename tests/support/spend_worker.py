"""Processes that reserve with a store of spending, as they are told through a pipe."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

from fastroai.runtime.owner import process_owner
from fastroai.store import PostgresSpendStore, RedisSpendStore, SQLiteSpendStore, open_spend_store
from fastroai.usage import (
    SpendAccount,
    SpendAdjustment,
    SpendBalance,
    SpendChange,
    SpendClaim,
    SpendStore,
)
from support.fork_server import forks
from support.patience import PATIENCE
from support.run_stores import PlainStore

STORES: Mapping[str, Callable[..., Any]] = {
    "sqlite": SQLiteSpendStore,
    "redis": RedisSpendStore,
    "postgres": PostgresSpendStore,
    "user": lambda path: open_spend_store(PlainStore(Path(path))),
}
SHARES = (0.5, 0.8, 1.0)
LEASE = 2 * PATIENCE
"""Seconds: longer than a test, which passes the time by hand where a lease must end."""
POLL = 0.005


@dataclass(frozen=True)
class Place:
    """Which store."""

    kind: str
    where: str
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, kept: Any) -> Place:
        """The place of a store under test."""
        if hasattr(kept, "path"):
            return cls(kept.kind, str(kept.path))
        return cls(kept.kind, kept.url, kept.options)

    def open(self) -> Any:
        timeout = {} if self.kind == "user" else {"timeout": PATIENCE}  # for each other, on a busy machine
        return STORES[self.kind](self.where, **timeout, **self.options)


@dataclass(frozen=True)
class Task:
    """What to do."""

    do: str
    place: Place
    amount: Decimal
    limit: Decimal
    cost: Decimal = Decimal(0)
    count: int = 1
    lines: int = 1
    """How many of its requests a process makes at once, if they go in lines."""
    key: str = "shared"
    seed: int = 0
    notes: str = ""
    """The file in which a process notes what it sends, if it does so without end."""
    by_hand: bool = False
    """Whether the limit is changed and the spending reset meanwhile."""

    def claims(self, worker: str) -> list[SpendClaim]:
        account = SpendAccount(key=self.key, window="total")
        return [
            SpendClaim(
                id=f"{worker} {number}",
                account=account,
                amount_usd=self.amount,
                limit_usd=self.limit,
                lease=LEASE,
                holder=process_owner(),
            )
            for number in range(self.count)
        ]


@dataclass
class Mixed:
    """What one process saw of random operations."""

    costs: Decimal = Decimal(0)
    told: list[float] = field(default_factory=list)
    adjustments: list[SpendAdjustment] = field(default_factory=list)
    granted: int = 0
    crossed: list[SpendBalance] = field(default_factory=list)
    """Balances above the limit in force, at the moment at which something was granted."""


class Deed:
    """One task, done by one process."""

    def __init__(self, worker: str, task: Task, store: SpendStore) -> None:
        self.worker, self.task, self.store = worker, task, store
        self.claims = task.claims(worker)

    async def nothing(self) -> int:
        """Let the others do it."""
        return 0

    async def rush(self) -> int:
        """Ask for everything at once, and twice: how many are granted."""
        verdicts = await asyncio.gather(*(self.store.reserve(claim) for claim in self.claims * 2))
        return sum(verdict.granted for verdict in verdicts[self.task.count :])

    async def spend(self) -> int:
        """Wait until each is granted, send it, and settle it: how many times the limit was seen crossed."""
        return sum(await asyncio.gather(*map(self._spend, self.claims)))

    async def _spend(self, claim: SpendClaim) -> int:
        crossed = 0
        granted = False
        while not granted:
            verdict = await self.store.reserve(claim)
            crossed += verdict.balance.spent_usd + verdict.balance.reserved_usd > self.task.limit
            if not (granted := verdict.granted):
                await asyncio.sleep(POLL)
        assert await self.store.mark_sent(claim)
        await self.store.settle(claim, self.task.cost)
        return crossed

    async def in_lines(self) -> list[float]:
        """Spend in some lines at once, one request after the other in each: the seconds that each took."""
        requests, took = iter(self.claims), list[float]()

        async def line() -> None:
            for claim in requests:
                started = perf_counter()
                await self._spend(claim)
                took.append(perf_counter() - started)

        await asyncio.gather(*(line() for _ in range(self.task.lines)))
        return took

    async def without_end(self) -> None:
        """Spend in some lines until somebody kills this process, and note what is sent and settled."""
        notes = os.open(self.task.notes, os.O_WRONLY | os.O_APPEND)

        async def line() -> None:
            while True:
                claim = replace(self.claims[0], id=uuid.uuid4().hex)
                while not (await self.store.reserve(claim)).granted:
                    await asyncio.sleep(POLL)
                if await self.store.mark_sent(claim):
                    os.write(notes, b"sent\n")
                    await self.store.settle(claim, self.task.cost)
                    os.write(notes, b"settled\n")

        await asyncio.gather(*(line() for _ in range(self.task.lines)))

    async def mix(self) -> Mixed:
        """Random operations, some at once."""
        mixed = Mixed()
        lines = (Random(f"{self.task.seed} {self.worker} {line}") for line in range(3))
        await asyncio.gather(*(self._mix(random, mixed) for random in lines))
        return mixed

    async def _mix(self, random: Random, mixed: Mixed) -> None:
        for _ in range(self.task.count):
            if self.task.by_hand and random.random() < 0.3:
                mixed.adjustments.append(await self._adjust(random))
                continue
            amount = self.task.amount * random.randint(1, 8) / 4
            claim = replace(self.claims[0], id=uuid.uuid4().hex, amount_usd=amount, warn_at=SHARES)
            verdict = await self.store.reserve(claim)
            if verdict.granted:
                mixed.granted += 1
                balance = verdict.balance
                limit = claim.limit_usd if balance.limit_usd is None else balance.limit_usd
                if balance.spent_usd + balance.reserved_usd > limit:
                    mixed.crossed.append(balance)
                assert await self.store.mark_sent(claim)
            cost = amount * random.randint(0, 4) / 4 if verdict.granted else Decimal(0)
            mixed.told += (await self.store.settle(claim, cost)).reached
            mixed.costs += cost

    async def _adjust(self, random: Random) -> SpendAdjustment:
        limit = random.choice([None, *(self.task.limit * part / 4 for part in range(1, 9))])
        change = SpendChange(
            id=uuid.uuid4().hex,
            changes=random.choice(["limit", "limit", "spent"]),
            limit_usd=limit,
            by=self.worker,
            reason="a test",
        )
        account = self.claims[0].account
        if (made := await self.store.adjust(account, change)) is None:  # nobody has reserved anything yet
            await self.store.reserve(self.claims[0])
            await self.store.settle(self.claims[0], Decimal(0))
            made = await self.store.adjust(account, change)
        assert made is not None
        return made

    async def hold(self) -> int:
        """Reserve all, and send every other one."""
        for number, claim in enumerate(self.claims):
            assert (await self.store.reserve(claim)).granted
            if number % 2:
                assert await self.store.mark_sent(claim)
        return len(self.claims)


def work(name: str, pipe: Connection, barrier: Barrier) -> None:
    """Do one task after the other. Each begins in all processes at once, and ends before the next begins."""
    place: Place | None = None
    store: Any = None
    while True:
        task: Task = pipe.recv()
        if task.place != place:
            place, store = task.place, task.place.open()
        barrier.wait(PATIENCE)
        pipe.send(asyncio.run(getattr(Deed(name, task, store), task.do)()))


class Workers:
    """Some processes, which live until they are ended."""

    def __init__(self, count: int, target: Callable[[str, Connection, Barrier], None] = work) -> None:
        """They run `target`."""
        context = forks()
        self.barrier = context.Barrier(count)  # kept, because it would be gone with its last name
        self.pipes: list[Connection] = []
        self.processes: list[BaseProcess] = []
        for number in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=target, args=(f"worker {number}", theirs, self.barrier), daemon=True
            )
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def do(self, task: Task, by: int | None = None) -> list[Any]:
        """Have all of them do it, or the first so many, released at a barrier."""
        count = len(self.pipes) if by is None else by
        for number, pipe in enumerate(self.pipes):
            pipe.send(task if number < count else replace(task, do="nothing"))
        return [self.answer(pipe) for pipe in self.pipes][:count]

    def answer(self, pipe: Connection) -> Any:
        """What a process says next."""
        assert pipe.poll(PATIENCE), "a worker does not answer"
        return pipe.recv()

    def end(self) -> None:
        """Kill them."""
        for process in self.processes:
            process.kill()
            process.join(PATIENCE)
            process.close()
        for pipe in self.pipes:
            pipe.close()
