"""Hosts that use up a spend limit which they share, request by request, in some lines at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from durability.shapes import agent
from support.spend_worker import STORES

from fastroai import FastroAgent, SpendLimit, SpendLimitExceeded
from fastroai.errors import SpendStoreUnavailable
from fastroai.usage import SpendAccount

SPENDING: Final = "spending"
"""The name of the task, and what the model is asked."""
LIMIT_USD: Final = Decimal("0.01")
LINES: Final = 3
ACCOUNT: Final = SpendAccount(key="shared", window="total")


def open_spend_store(kind: str, place: str, name: str, timeout: float = 5.0) -> Any:
    option = {"redis": "prefix", "postgres": "schema"}[kind]
    return STORES[kind](place, **{option: f"{name}_spending"}, timeout=timeout)


@dataclass
class Spender:
    """Asks until the limit has no room for another request, whether its store can be reached or not."""

    store: Any
    lease: float
    pause: float
    refusals: list[str] = field(default_factory=list)
    """What it was told while the store could not be reached."""
    answers: int = 0

    async def spend(self) -> dict[str, Any]:
        limit = SpendLimit(usd=LIMIT_USD, window="total", key="shared", store=self.store, lease=self.lease)
        one = agent("spender", budget=limit)
        async with asyncio.TaskGroup() as lines:
            for _ in range(LINES):
                lines.create_task(self._spend(one))
        return {"answers": self.answers, "refusals": self.refusals}

    async def _spend(self, one: FastroAgent[Any, Any]) -> None:
        while True:
            try:
                await one.run(SPENDING)
                self.answers += 1
            except SpendLimitExceeded:
                return
            except SpendStoreUnavailable as error:
                self.refusals.append(str(error))
                await asyncio.sleep(self.pause)
