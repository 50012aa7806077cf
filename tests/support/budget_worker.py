"""Processes that ask a model server with FastroAgents, all under one spend limit."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Literal

from fastroai import FastroAgent, SpendLimit, SpendLimitExceeded
from support.patience import PATIENCE
from support.spend_worker import Place

MODEL = "openai-chat:gpt-5-mini"
MAX_TOKENS = 200
LINES = 3
"""Requests that one process has under way at once."""
SHARED = "shared"
LEASE = 2 * PATIENCE
"""Seconds: longer than a test, so that no lease ends by itself."""
TAKEN = "taken"
"""A second limit, of which the test holds everything: who asks for it has its place in the first already."""


@dataclass(frozen=True)
class Work:
    """What one process does, and with which store and server."""

    do: Literal["ask", "share", "exhaust", "hold"]
    place: Place
    environment: Mapping[str, str]
    limit_usd: Decimal
    count: int = 0
    warn_at: tuple[float, ...] = ()


@dataclass
class Outcome:
    """What it saw."""

    answers: int = 0
    cuts: int = 0
    """Answers that were lowered, and cut there: they are paid for."""
    refusals: list[int] = field(default_factory=list)
    """What was spent of the limit, in microcents, when a request was refused."""
    told: list[float] = field(default_factory=list)
    """The shares that its handler was told of."""


class Worker:
    """One task of one process."""

    def __init__(self, work: Work) -> None:
        self.work, self.outcome = work, Outcome()
        store = work.place.open()
        self.shared = SpendLimit(
            usd=work.limit_usd,
            window="total",
            key=SHARED,
            store=store,
            lease=LEASE,
            warn_at=work.warn_at,
            on_warning=lambda warning: self.outcome.told.append(warning.threshold),
        )
        self.taken = SpendLimit(usd=work.limit_usd, window="total", key=TAKEN, store=store, lease=LEASE)
        self.agent = FastroAgent(MODEL, max_tokens=MAX_TOKENS)

    async def ask(self) -> Outcome:
        """So many requests, some at once; all can be paid."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(self.work.count):
                tasks.create_task(self._ask_once(number))
        return self.outcome

    async def share(self) -> Outcome:
        """The same with an agent that sets no `max_tokens`."""
        self.agent = FastroAgent(MODEL)
        return await self.ask()

    async def _ask_once(self, number: int) -> None:
        await self.agent.run(f"work {number}", budget=self.shared)
        self.outcome.answers += 1

    async def exhaust(self) -> Outcome:
        """One request after the other, in some lines at once, until there is a refusal in each."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(LINES):
                tasks.create_task(self._exhaust(number))
        return self.outcome

    async def _exhaust(self, number: int) -> None:
        while True:
            try:
                await self._ask_once(number)
            except SpendLimitExceeded as stop:
                if stop.partial_response is None:
                    self.outcome.refusals.append(stop.committed)
                    return
                self.outcome.cuts += 1

    async def hold(self) -> Outcome:
        """Requests that get no answer, and as many that wait for the second limit: until it is killed."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(self.work.count):
                tasks.create_task(self.agent.run(f"hang {number}", budget=self.shared))
                tasks.create_task(self.agent.run(f"wait {number}", budget=[self.shared, self.taken]))
        raise AssertionError("nothing of this ends")


def work(name: str, pipe: Connection, barrier: Barrier) -> None:
    """Do one task after the other, each from the moment on at which all processes are ready."""
    while True:
        task: Work = pipe.recv()
        os.environ.update(task.environment)
        worker = Worker(task)
        barrier.wait(PATIENCE)
        pipe.send(asyncio.run(getattr(worker, task.do)()))
