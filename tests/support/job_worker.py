"""Processes that spend in every way at once, all under one spend limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any, Final

from pydantic_ai import Agent
from pydantic_ai.capabilities import BatchModelRequests
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart
from pydantic_ai.models.openai import OpenAICompaction

from fastroai import BudgetExceeded, FastroAgent, SpendLimit, budget_scope, spend
from support.jobs import JobProvider
from support.patience import PATIENCE
from support.spend_worker import Place

KEY: Final = "shared"
KINDS: Final = ("answer", "compaction", "background", "batch", "spend")
PURCHASE: Final = Decimal("0.0015")
"""US dollars that each purchase costs, of twice as much that is reserved."""
HISTORY: Final[list[ModelMessage]] = [
    ModelRequest.user_text_prompt("before"),
    ModelResponse([TextPart("yes")]),
]


@dataclass(frozen=True)
class Rush:
    """What one process does."""

    place: Place
    limit_usd: Decimal
    rounds: int
    calls: int
    """Of each round, of all kinds in turn; the round ends when one of its tasks fails."""


@dataclass
class Bill:
    """What it was billed, by others than FastroAI."""

    requests_usd: Decimal
    purchases_usd: Decimal
    refusals: int


class SiblingFailed(Exception):
    """What ends a round while others are in flight."""


class Spender:
    """One task of one process."""

    def __init__(self, rush: Rush) -> None:
        self.rush, self.provider = rush, JobProvider(polls=1)
        self.purchases, self.refusals = Decimal(0), 0
        self.limit = SpendLimit(usd=rush.limit_usd, window="total", key=KEY, store=rush.place.open())
        model, batching = (
            self.provider.model(),
            BatchModelRequests(
                max_requests=3,
                max_wait=timedelta(milliseconds=20),
                poll_interval=timedelta(milliseconds=10),
                max_poll_interval=timedelta(milliseconds=10),
            ),
        )
        background: Any = {"openai_background": True}
        self.agents: dict[str, FastroAgent[Any, str]] = {
            "answer": FastroAgent(model, max_tokens=40),
            "compaction": FastroAgent(model, capabilities=[OpenAICompaction(message_count_threshold=2)]),
            "background": FastroAgent(model, max_tokens=40, model_settings=background),
            "batch": FastroAgent(model, max_tokens=40, capabilities=[batching]),
        }

    async def run(self) -> Bill:
        with Agent.using_sleep(_no_sleep):
            for number in range(self.rush.rounds):
                await self._round(number)
        return Bill(self.provider.billed_usd, self.purchases, self.refusals)

    async def _round(self, number: int) -> None:
        tasks: list[Awaitable[None]] = [
            self._call(KINDS[call % len(KINDS)], f"{number} {call}") for call in range(self.rush.calls)
        ]
        running = [asyncio.ensure_future(task) for task in (*tasks, self._fail(number))]
        try:
            async with budget_scope(self.limit):
                await asyncio.gather(*running)
        except SiblingFailed:
            await asyncio.wait(running)

    async def _call(self, kind: str, prompt: str) -> None:
        try:
            if kind == "spend":
                await self._buy()
            else:
                history = HISTORY if kind == "compaction" else None
                await self.agents[kind].run(prompt, message_history=history, budget=self.limit)
        except BudgetExceeded:
            self.refusals += 1

    async def _buy(self) -> None:
        async with budget_scope(self.limit), spend(PURCHASE * 2, model="shop") as purchase:
            await asyncio.sleep(0.001)
            self.purchases += PURCHASE
            purchase.settle(PURCHASE)

    async def _fail(self, number: int) -> None:
        if number % 2:
            await asyncio.sleep(0.02)
            raise SiblingFailed


async def _no_sleep(seconds: float) -> None:
    await asyncio.sleep(0.001)


def work(name: str, pipe: Connection, barrier: Barrier) -> None:
    """Do one task after the other, each from the moment on at which all processes are ready."""
    while True:
        task: Rush = pipe.recv()
        spender = Spender(task)
        barrier.wait(PATIENCE)
        pipe.send(asyncio.run(spender.run()))
