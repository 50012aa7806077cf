"""The stores of spending, each with clocks that tests set: in memory, of ours, and one of a user."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import psycopg
import pytest
import redis
from psycopg.sql import SQL, Identifier

from fastroai.store import (
    MemorySpendStore,
    PostgresSpendStore,
    RedisSpendStore,
    SQLiteSpendStore,
    StoredValues,
)
from fastroai.store.backends.adapter import adapt_run_store
from fastroai.store.shared_spending.spend_keyed import KeyedSpendStore
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
from fastroai.usage.shared.memory_spend_store import utc_now
from support.patience import PATIENCE
from support.run_stores import PlainStore

KINDS = ("memory", "sqlite", "redis", "postgres", "user")
OURS = ("sqlite", "redis", "postgres")
SHARED_KINDS = (*OURS, "user")
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
    kind = "sqlite"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = self.another()

    def another(self) -> SQLiteSpendStore:
        return SQLiteSpendStore(self.path, timeout=PATIENCE, clock=self.clock, steady_clock=self.steady_clock)


class KeptInFileOfUser(KeptInMemory):
    """A store of runs that a user has written: its own clock is the only one."""

    kind = "user"
    steady = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = self.another()

    def another(self) -> KeyedSpendStore:
        return KeyedSpendStore(Ahead(adapt_run_store(PlainStore(self.path)), lambda: self.ahead))


class Ahead:
    """A store of runs whose clock is ahead."""

    def __init__(self, store: Any, ahead: Callable[[], timedelta]) -> None:
        self.store_within, self._ahead = store, ahead

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store_within, name)

    async def read(self, key: str, *, after: int = 0) -> StoredValues:
        found: StoredValues = await self.store_within.read(key, after=after)
        return replace(found, now=found.now + self._ahead())


class KeptOnServer:
    """Its clients take the clock of the server for a later or an earlier one."""

    steady = False
    client: type[RedisSpendStore] | type[PostgresSpendStore]

    def __init__(self, kind: str, url: str, **options: str) -> None:
        self.kind, self.url, self.options, self.ahead = kind, url, options, timedelta(0)
        self.store = self.another()
        self.runs: Any = self.store.runs.store_within  # type: ignore[attr-defined]

    def another(self) -> KeyedSpendStore:
        store = self.client(self.url, timeout=PATIENCE, **self.options)
        store.runs = Ahead(store.runs, lambda: self.ahead)  # type: ignore[assignment]
        return store

    def pass_time(self, seconds: float) -> None:
        self.set_clock(seconds)

    def set_clock(self, seconds: float) -> None:
        self.ahead += timedelta(seconds=seconds)


class KeptInRedis(KeptOnServer):
    client = RedisSpendStore

    def __init__(self, url: str) -> None:
        self.prefix = f"test-{uuid.uuid4().hex}"
        super().__init__("redis", url, prefix=self.prefix)
        self.server = redis.Redis.from_url(url, decode_responses=True, protocol=2)

    def names(self) -> list[str]:
        return list(self.server.scan_iter(f"{{{self.prefix}}}:*"))

    def clear(self) -> None:
        self.ahead = timedelta(0)
        for key in self.names():
            self.server.delete(key)

    def end(self) -> None:
        self.clear()
        self.server.close()


class KeptInPostgres(KeptOnServer):
    client = PostgresSpendStore

    def __init__(self, dsn: str, schema: str | None = None) -> None:
        self.schema = schema or f"test_{uuid.uuid4().hex}"
        super().__init__("postgres", dsn, schema=self.schema)
        self.connection = psycopg.connect(dsn, autocommit=True)

    def execute(self, statement: str, *parameters: object) -> psycopg.Cursor[tuple[Any, ...]]:
        self.connection.execute(SQL("SET search_path TO {}").format(Identifier(self.schema)))
        return self.connection.execute(statement.encode(), parameters or None)

    def clear(self) -> None:
        self.ahead = timedelta(0)
        self.runs._driver.connect().close()  # makes the tables where there are none
        self.execute("DELETE FROM run_key")
        self.execute("DELETE FROM run_value")

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
    if kind == "user":
        return KeptInFileOfUser(folder / "file.db")
    if kind == "redis":
        return KeptInRedis(request.getfixturevalue("redis_url"))
    return KeptInPostgres(request.getfixturevalue("postgres_dsn"))


async def swept(store: KeyedSpendStore) -> None:
    """Wait until accounts that nobody uses are forgotten."""
    while store._is_sweeping:
        await asyncio.sleep(0.001)


def account(window: Window = "total", key: str = "acme") -> SpendAccount:
    return SpendAccount(key=key, window=window)


def claim(
    claim_id: str,
    amount: str | int | Decimal = 1,
    *,
    limit: str | int | Decimal = 10,
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
