"""The four stores of spending, each with a way to let time pass for it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest
import redis
from psycopg.sql import SQL, Identifier

from fastroai.store import MemorySpendStore, PostgresSpendStore, RedisSpendStore, SQLiteSpendStore
from fastroai.usage import SpendAccount, SpendClaim, SpendStore, Window
from fastroai.usage.memory_spend_store import utc_now

KINDS = ("memory", "sqlite", "redis", "postgres")
SHARED_KINDS = ("sqlite", "redis", "postgres")


class Kept(Protocol):
    """A store under test."""

    store: Any
    skipped: timedelta
    """What the store's clock does not know of the time that has passed."""

    def another(self) -> SpendStore:
        """The same data, as another process sees it."""
        ...

    def pass_time(self, seconds: float) -> None:
        """Let time pass; if negative, set the clock back."""
        ...

    def clear(self) -> None:
        """Forget everything, quickly."""
        ...


@dataclass
class KeptInMemory:
    offset = timedelta(0)
    skipped = timedelta(0)

    def __post_init__(self) -> None:
        self.store = MemorySpendStore(clock=self.clock)

    def clock(self) -> datetime:
        return utc_now() + self.offset

    def another(self) -> SpendStore:
        return self.store

    def pass_time(self, seconds: float) -> None:
        self.offset += timedelta(seconds=seconds)

    def clear(self) -> None: ...

    def end(self) -> None: ...


class KeptInSQLite(KeptInMemory):
    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = SQLiteSpendStore(path, clock=self.clock)

    def another(self) -> SpendStore:
        return SQLiteSpendStore(self.path, clock=self.clock)


class KeptInRedis:
    """The server has its own clock, so what is kept gets older instead."""

    skipped = timedelta(0)

    def __init__(self, url: str) -> None:
        self.url, self.prefix = url, f"test-{uuid.uuid4().hex}"
        self.store = self.another()
        self.client = redis.Redis.from_url(url, decode_responses=True, protocol=2)

    def another(self) -> RedisSpendStore:
        return RedisSpendStore(self.url, prefix=self.prefix)

    def names(self, part: str = "*") -> list[str]:
        return list(self.client.scan_iter(f"{self.prefix}:*:{part}"))

    def pass_time(self, seconds: float) -> None:
        self.skipped += timedelta(seconds=seconds)
        age = round(seconds * 1_000_000)

        def older(time: str) -> int:
            return int(time) - age if int(time) else 0

        for key in self.names("account"):
            kept = self.client.hgetall(key)
            self.client.hset(key, mapping={name: older(kept[name]) for name in ("seen", "closes")})
        for key in self.names("claims"):
            for claim, text in self.client.hgetall(key).items():
                state, amount, closes = text.split()
                self.client.hset(key, claim, f"{state} {amount} {older(closes)}")
        for key in self.names("leases"):
            for claim, _ in self.client.zrange(key, 0, -1, withscores=True):
                self.client.zincrby(key, -age, claim)

    def clear(self) -> None:
        for key in self.names():
            self.client.delete(key)

    def end(self) -> None:
        self.clear()
        self.client.close()


class KeptInPostgres:
    """The server has its own clock, so what is kept gets older instead."""

    skipped = timedelta(0)

    def __init__(self, dsn: str, schema: str | None = None) -> None:
        self.dsn, self.schema = dsn, schema or f"test_{uuid.uuid4().hex}"
        self.store = self.another()
        self.connection = psycopg.connect(dsn, autocommit=True)

    def another(self) -> PostgresSpendStore:
        return PostgresSpendStore(self.dsn, schema=self.schema)

    def execute(self, statement: str, *parameters: object) -> psycopg.Cursor[tuple[Any, ...]]:
        self.connection.execute(SQL("SET search_path TO {}").format(Identifier(self.schema)))
        return self.connection.execute(statement.encode(), parameters)

    def pass_time(self, seconds: float) -> None:
        age = timedelta(seconds=seconds)
        self.skipped += age
        self.execute("UPDATE spend_account SET seen = seen - %s, closes_at = closes_at - %s", age, age)
        self.execute(
            "UPDATE spend_claim SET lease_until = lease_until - %s, closes_at = closes_at - %s", age, age
        )

    def clear(self) -> None:
        self.execute("DELETE FROM spend_account")

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
) -> SpendClaim:
    return SpendClaim(
        id=claim_id,
        account=of or account(),
        amount_usd=Decimal(amount),
        limit_usd=Decimal(limit),
        lease=lease,
    )
