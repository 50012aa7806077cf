"""Answers, batches, compactions, background responses and purchases, and tasks that outlive their scope.

All under one spend limit, in one process and in four. Judged by what the provider billed.
"""

from __future__ import annotations

import asyncio
import time
from decimal import Decimal
from pathlib import Path

from support.job_worker import KEY, Bill, Rush, Spender, work
from support.patience import PATIENCE
from support.spend_worker import Place, Workers

from fastroai.store import SQLiteSpendStore
from fastroai.usage import SpendAccount, SpendBalance

LIMIT = Decimal("0.012")
"""Room for one compaction, which is bounded by a cent, and for none once something is spent."""


async def settled(path: Path) -> SpendBalance:
    """Once the last endings are in the store; what a process took with it when it was killed lapses."""
    store, end = SQLiteSpendStore(path, timeout=PATIENCE), time.monotonic() + PATIENCE
    while True:
        balance = await store.balance(SpendAccount(key=KEY, window="total"))
        if not balance.reserved_usd or time.monotonic() > end:
            return balance
        await asyncio.sleep(0.02)


def assert_holds(bills: list[Bill], balance: SpendBalance) -> None:
    billed = sum((bill.requests_usd + bill.purchases_usd for bill in bills), Decimal(0))
    assert balance.reserved_usd == 0
    assert 0 < billed <= balance.spent_usd <= LIMIT


async def test_a_limit_holds_for_all_kinds_of_spending_at_once(tmp_path: Path) -> None:
    path = tmp_path / "spending.db"
    bill = await Spender(Rush(Place("sqlite", str(path)), LIMIT, rounds=4, calls=15)).run()
    assert_holds([bill], await settled(path))


def test_a_limit_holds_for_all_kinds_of_spending_in_four_processes(tmp_path: Path) -> None:
    path = tmp_path / "spending.db"
    workers = Workers(4, work)
    try:
        bills: list[Bill] = workers.do(Rush(Place("sqlite", str(path)), LIMIT, rounds=2, calls=10))  # type: ignore[arg-type]
    finally:
        workers.end()
    assert sum(bill.refusals for bill in bills), "the limit was reached"
    assert_holds(bills, asyncio.run(settled(path)))
