"""The four stores of spending, each with clocks that tests set."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import psycopg
import pytest
import redis
from psycopg.sql import SQL, Identifier

from fastroai.store import MemorySpendStore, PostgresSpendStore, RedisSpendStore, SQLiteSpendStore
from fastroai.usage import (
    SpendAccount,
    SpendAdjustment,
    SpendBalance,
    SpendChange,
    SpendClaim,
    SpendPage,
    SpendStatus,
    SpendStore,
    SpendVerdict,
    Window,
)
from fastroai.usage.memory_spend_store import utc_now

KINDS = ("memory", "sqlite", "redis", "postgres")
SHARED_KINDS = ("sqlite", "redis", "postgres")
DAY = timedelta(days=1)


class Passed:
    """A store in front of another one, of which a test changes some operations."""

    def __init__(self, store: SpendStore) -> None:
        self._store = store

    async def reserve(self, claim: SpendClaim) -> SpendVerdict:
        return await self._store.reserve(claim)

    async def mark_sent(self, claim: SpendClaim) -> bool:
        return await self._store.mark_sent(claim)

    async def settle(self, claim: SpendClaim, cost_usd: Decimal) -> SpendBalance:
        return await self._store.settle(claim, cost_usd)

    async def renew(self, claims: Collection[SpendClaim]) -> None:
        await self._store.renew(claims)

    async def end_leases(self, account: SpendAccount, holders: Collection[str]) -> None:
        await self._store.end_leases(account, holders)

    async def balance(self, account: SpendAccount) -> SpendBalance:
        return await self._store.balance(account)

    async def adjust(self, account: SpendAccount, change: SpendChange) -> SpendAdjustment | None:
        return await self._store.adjust(account, change)

    async def windows(self, account: SpendAccount, *, closed: bool = True) -> tuple[SpendStatus, ...]:
        return await self._store.windows(account, closed=closed)

    async def accounts(self, after: str | None = None) -> SpendPage:
        return await self._store.accounts(after)


class Kept(Protocol):
    """A store under test."""

    store: Any

    @property
    def steady(self) -> bool:
        """Whether it has a clock for leases that nobody sets."""
        ...

    def another(self) -> SpendStore:
        """The same data, as another process sees it."""
        ...

    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        ...

    def set_clock(self, seconds: float) -> None:
        """Set the clock ahead by so much; if negative, back."""
        ...

    def clear(self) -> None:
        """Forget everything, quickly, and set the clock right."""
        ...


@dataclass
class KeptInMemory:
    ahead = timedelta(0)
    """How far its clock is ahead of that of this machine."""
    passed = 0.0
    """Seconds that were let pass."""
    steady = True

    def __post_init__(self) -> None:
        self.store = MemorySpendStore(clock=self.clock, steady_clock=self.steady_clock)

    def clock(self) -> datetime:
        return utc_now() + self.ahead

    def steady_clock(self) -> float:
        return monotonic() + self.passed

    def another(self) -> SpendStore:
        return self.store

    def pass_time(self, seconds: float) -> None:
        self.passed += seconds
        self.set_clock(seconds)

    def set_clock(self, seconds: float) -> None:
        self.ahead += timedelta(seconds=seconds)

    def clear(self) -> None:
        self.ahead = timedelta(0)

    def end(self) -> None: ...


class KeptInSQLite(KeptInMemory):
    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = self.another()

    def another(self) -> SQLiteSpendStore:
        return SQLiteSpendStore(self.path, clock=self.clock, steady_clock=self.steady_clock)


class KeptInRedis:
    """Where the script asks the server for the time, it is told a later or an earlier one."""

    steady = False

    def __init__(self, url: str) -> None:
        self.url, self.prefix = url, f"test-{uuid.uuid4().hex}"
        self.store = self.another()
        self.client = redis.Redis.from_url(url, decode_responses=True, protocol=2)

    def another(self) -> RedisSpendStore:
        store = RedisSpendStore(self.url, prefix=self.prefix)
        source, time = store._driver._source, "redis.call('TIME')"
        assert source.count(time) == 1
        ahead = f"(redis.call('GET', '{self.prefix}-ahead') or 0)"
        store._driver._source = source.replace(time, f"{{{time}[1], {time}[2] + {ahead}}}")
        return store

    def names(self, part: str = "*") -> list[str]:
        return list(self.client.scan_iter(f"{self.prefix}:*:{part}"))

    def pass_time(self, seconds: float) -> None:
        self.set_clock(seconds)

    def set_clock(self, seconds: float) -> None:
        self.client.incrby(f"{self.prefix}-ahead", round(seconds * 1_000_000))

    def clear(self) -> None:
        for key in (*self.names(), f"{self.prefix}-ahead"):
            self.client.delete(key)

    def end(self) -> None:
        self.clear()
        self.client.close()


class KeptInPostgres:
    """Its functions ask another one for the time, which is replaced by one that is ahead or behind."""

    steady = False

    def __init__(self, dsn: str, schema: str | None = None) -> None:
        self.dsn, self.schema = dsn, schema or f"test_{uuid.uuid4().hex}"
        self.ahead = timedelta(0)
        self.store = self.another()
        self.connection = psycopg.connect(dsn, autocommit=True)

    def another(self) -> PostgresSpendStore:
        return PostgresSpendStore(self.dsn, schema=self.schema)

    def execute(self, statement: str, *parameters: object) -> psycopg.Cursor[tuple[Any, ...]]:
        self.connection.execute(SQL("SET search_path TO {}").format(Identifier(self.schema)))
        return self.connection.execute(statement.encode(), parameters or None)

    def pass_time(self, seconds: float) -> None:
        self.set_clock(seconds)

    def set_clock(self, seconds: float) -> None:
        self.ahead += timedelta(seconds=seconds)
        ahead = self.ahead // timedelta(microseconds=1)
        self.store._driver.connect().close()  # makes the functions where there are none
        self.execute(
            "CREATE OR REPLACE FUNCTION spend_clock_v1() RETURNS timestamptz LANGUAGE sql VOLATILE AS "
            f"$$ SELECT clock_timestamp() + interval '{ahead} microseconds' $$"
        )

    def clear(self) -> None:
        self.execute("DELETE FROM spend_account")
        self.set_clock(-self.ahead.total_seconds())

    def end(self) -> None:
        self.connection.execute(SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(Identifier(self.schema)))
        self.connection.close()


@asynccontextmanager
async def kept_in(kind: str, request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Kept]:
    """A new and empty store of this kind."""
    kept = make_kept(kind, request, folder)
    yield kept
    if kind != "memory":
        await kept.store.aclose()
    kept.end()


def make_kept(
    kind: str, request: pytest.FixtureRequest, folder: Path
) -> KeptInMemory | KeptInRedis | KeptInPostgres:
    if kind == "memory":
        return KeptInMemory()
    if kind == "sqlite":
        return KeptInSQLite(folder / "spend.db")
    if kind == "redis":
        return KeptInRedis(request.getfixturevalue("redis_url"))
    return KeptInPostgres(request.getfixturevalue("postgres_dsn"))


def account(window: Window = "total", key: str = "acme") -> SpendAccount:
    return SpendAccount(key=key, window=window)


def claim(
    claim_id: str,
    amount: str | int = 1,
    *,
    limit: str | int = 10,
    of: SpendAccount | None = None,
    lease: float = 30,
    holder: str = "",
    keep: timedelta = DAY,
    warn_at: tuple[float, ...] = (),
) -> SpendClaim:
    """A claim whose account keeps its windows for a day, which tests of forgetting can wait for."""
    return SpendClaim(
        id=claim_id,
        account=of or account(),
        amount_usd=Decimal(amount),
        limit_usd=Decimal(limit),
        lease=lease,
        holder=holder,
        keep=keep,
        warn_at=warn_at,
    )
