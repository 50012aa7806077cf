"""Stores of runs: the four of ours, new and empty, and two as users may write them."""

from __future__ import annotations

import os
import sqlite3
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from fastroai.errors import RevisionConflict
from fastroai.store import (
    MemoryRunStore,
    PostgresRunStore,
    RedisRunStore,
    SQLiteRunStore,
    StoredKey,
    StoredValues,
)
from support.patience import PATIENCE

KINDS = ("memory", "sqlite", "redis", "postgres")
OpenStore = Callable[[], Any]
Held = dict[str, tuple[int, tuple[bytes, ...]]]


@contextmanager
def run_stores(kind: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[OpenStore]:
    """What opens clients of one new and empty store of this kind."""
    name = f"test_{uuid.uuid4().hex}"
    if kind == "memory":
        one = MemoryRunStore()
        yield lambda: one
    elif kind == "sqlite":
        yield lambda: SQLiteRunStore(folder / f"{name}.db", timeout=PATIENCE)
    elif kind == "redis":
        url = request.getfixturevalue("redis_url")
        yield lambda: RedisRunStore(url, prefix=name, timeout=PATIENCE)
        with redis.Redis.from_url(url) as client:
            client.delete(*client.keys(f"{{{name}}}*"), b"none")
    else:
        dsn = request.getfixturevalue("postgres_dsn")
        yield lambda: PostgresRunStore(dsn, schema=name, timeout=PATIENCE)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())


async def lose_value(store: Any, key: str, position: int, redis_url: str = "") -> None:
    """Remove one value of a key behind the back of a store. `redis_url` is the server, if it is Redis.

    A dict has no index beside its values, so the memory store forgets a key with its last value.
    """
    name = key.encode()
    if isinstance(store, MemoryRunStore):
        held = store._held[name]
        if len(held.values) == 1:
            await store.delete(key)
        else:
            del held.values[position - held.before - 1]
    elif isinstance(store, SQLiteRunStore):
        with sqlite3.connect(store._driver.path) as connection:
            place = "(SELECT id << 32 FROM run_key WHERE key = ?) + ?"
            connection.execute(f"DELETE FROM run_value WHERE place = {place}", (name, position))
        connection.close()
    elif isinstance(store, RedisRunStore):
        with redis.Redis.from_url(redis_url) as client:
            at = store._held + name
            before = int(client.lindex(at, 0))
            client.lset(at, position - before, b"lost")
            client.lrem(at, 1, b"lost")
            if client.llen(at) == 1:  # the position before the first value
                client.delete(at)
    else:
        with psycopg.connect(store._driver._dsn, autocommit=True) as connection:
            schema = store.schema
            of_key = f"key_id = (SELECT id FROM {schema}.run_key WHERE key = %s)"
            query = f"DELETE FROM {schema}.run_value WHERE {of_key} AND position = %s"
            connection.execute(query.encode(), (name, position))


def as_an_earlier_version_left_it(store: Any, redis_url: str = "") -> None:
    """Remove what earlier versions did not write: what shows that the last value of a key is lost."""
    if isinstance(store, SQLiteRunStore):
        with sqlite3.connect(store._driver.path) as connection:
            connection.execute("DELETE FROM run_value WHERE typeof(value) = 'integer'")
        connection.close()
    elif isinstance(store, RedisRunStore):
        with redis.Redis.from_url(redis_url) as client:
            client.delete(store._revisions)


class PlainStore:
    """As somebody might write it who has no use for async: SQLite, and one connection for one thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: sqlite3.Connection | None = None
        self._process = 0

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._opened is None or self._process != os.getpid():  # SQLite's are for one process, and thread
            self._process = os.getpid()
            self._opened = sqlite3.connect(
                self.path, isolation_level=None, timeout=PATIENCE, check_same_thread=False
            )
            weakref.finalize(self, self._opened.close)  # by whichever thread is the last to have the store
            self._opened.execute("PRAGMA synchronous = OFF")
            self._opened.execute("CREATE TABLE IF NOT EXISTS v (k BLOB, p INT, v BLOB, PRIMARY KEY (k, p))")
        return self._opened

    def _check(self, key: str, revision: int) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        actual = self._revision(key)
        if actual != revision:
            self._connection.execute("ROLLBACK")
            raise RevisionConflict(key, revision, actual)

    def _revision(self, key: str) -> int:
        found = self._connection.execute("SELECT max(p) FROM v WHERE k = ?", (key.encode(),)).fetchone()
        return found[0] or 0

    def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
        self._check(key, revision)
        rows = [(key.encode(), position, value) for position, value in enumerate(values, revision + 1)]
        self._connection.executemany("INSERT INTO v VALUES (?, ?, ?)", rows)
        self._connection.execute("COMMIT")

    def read(self, key: str, *, after: int = 0) -> StoredValues:
        self._connection.execute("BEGIN")
        query = "SELECT v FROM v WHERE k = ? AND p > ? ORDER BY p"
        found = self._connection.execute(query, (key.encode(), after)).fetchall()
        revision = self._revision(key)
        self._connection.execute("COMMIT")
        return StoredValues(
            values=tuple(value for (value,) in found), revision=revision, now=datetime.now(UTC)
        )

    def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        self._check(key, revision)
        self._connection.execute("DELETE FROM v WHERE k = ?", (key.encode(),))
        self._connection.execute("INSERT INTO v VALUES (?, ?, ?)", (key.encode(), revision + 1, value))
        self._connection.execute("COMMIT")

    def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        query = "SELECT k, v, max(p) FROM v WHERE k > ? AND substr(k, 1, ?) = ? GROUP BY k ORDER BY k LIMIT ?"
        begins = prefix.encode()
        found = self._connection.execute(query, (after.encode(), len(begins), begins, limit)).fetchall()
        return [StoredKey(key=key.decode(), value=value, revision=revision) for key, value, revision in found]

    def delete(self, key: str) -> None:
        self._connection.execute("DELETE FROM v WHERE k = ?", (key.encode(),))


class AsyncStore:
    """As somebody might write it who keeps all of it in a dict."""

    def __init__(self, held: Held) -> None:
        self._held = held

    def _get(self, key: str) -> tuple[int, tuple[bytes, ...]]:
        return self._held.get(key, (0, ()))

    def _check(self, key: str, revision: int) -> tuple[bytes, ...]:
        actual, values = self._get(key)
        if actual != revision:
            raise RevisionConflict(key, revision, actual)
        return values

    async def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
        before = self._check(key, revision)
        if values:
            self._held[key] = (revision + len(values), (*before, *values))

    async def read(self, key: str, *, after: int = 0) -> StoredValues:
        revision, values = self._get(key)
        first = max(after - (revision - len(values)), 0)
        return StoredValues(values=values[first:], revision=revision, now=datetime.now(UTC))

    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        self._check(key, revision)
        self._held[key] = (revision + 1, (value,))

    async def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        names = sorted(key for key in self._held if key.startswith(prefix) and key > after)
        return [
            StoredKey(key=name, value=self._held[name][1][-1], revision=self._held[name][0])
            for name in names[:limit]
        ]

    async def delete(self, key: str) -> None:
        self._held.pop(key, None)
