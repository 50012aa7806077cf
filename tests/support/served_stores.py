"""Stores of runs on real servers, whose connections go through a proxy."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fastroai.store import PostgresRunStore, RedisRunStore
from support.proxy import Proxy, proxy_to

TIMEOUT: Final = 5.0
"""Seconds."""


class Opens(Protocol):
    """Opens clients of a store."""

    def __call__(self, timeout: float = ...) -> Any:
        """`timeout` is that of the client, if not the one that all have."""
        ...


@dataclass(frozen=True)
class Served:
    """One new and empty store."""

    open_store: Opens
    """Opens clients of it, through the proxy."""
    direct: Any
    """A client that needs no proxy."""
    proxy: Proxy


@contextmanager
def served(kind: str, request: pytest.FixtureRequest, *, timeout: float = TIMEOUT) -> Iterator[Served]:
    """A store of this kind on a server that the tests run. `timeout` is that of its clients."""
    name = f"test_{uuid.uuid4().hex}"
    if kind == "redis":
        url = request.getfixturevalue("redis_url")
        at = urlsplit(url)
        with proxy_to((at.hostname or "127.0.0.1", at.port or 6379)) as proxy:
            through = url.replace(f"{at.hostname}:{at.port}", f"127.0.0.1:{proxy.port}")
            direct = RedisRunStore(url, prefix=name)
            yield Served(
                lambda timeout=timeout: RedisRunStore(through, prefix=name, timeout=timeout), direct, proxy
            )
        direct.connections.close_idle()
        with redis.Redis.from_url(url) as client:
            client.delete(*client.keys(f"{{{name}}}*"), b"none")
        return
    dsn = request.getfixturevalue("postgres_dsn")
    facts = conninfo_to_dict(dsn)
    host, port = str(facts.get("host", "127.0.0.1")), int(facts.get("port") or 5432)
    with proxy_to(f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port)) as proxy:
        through = make_conninfo(dsn, host="127.0.0.1", port=proxy.port)
        first = PostgresRunStore(dsn, schema=name)
        yield Served(
            lambda timeout=timeout: PostgresRunStore(through, schema=name, timeout=timeout), first, proxy
        )
    first.connections.close_idle()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())
