"""A worker with a model server, and a store of each kind when it is first needed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest
import redis
from durability.sweep import TIMES, Lane, Worker

_figures: dict[str, tuple[int, int]] = {}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was done, where everything was swept."""
    if TIMES:
        for kind, (runs, kills) in _figures.items():
            terminalreporter.write_line(f"{kind}: {runs} runs were killed {kills} times")


@pytest.fixture(scope="session")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with Worker.started(tmp_path_factory.mktemp("runs")) as started:
        yield started


@pytest.fixture(scope="session")
def lane(request: pytest.FixtureRequest, worker: Worker) -> Iterator[Lane]:
    """Of the kind that is asked for; tests of one kind are run together."""
    kind, name = request.param, f"test_{uuid.uuid4().hex}"
    place = str(worker.folder / f"{name}.db")
    if kind != "sqlite":
        place = request.getfixturevalue("redis_url" if kind == "redis" else "postgres_dsn")
    opened = Lane(worker, (kind, place, name))
    yield opened
    opened.close()
    _figures[kind] = opened.runs, opened.kills
    if kind == "redis":
        with redis.Redis.from_url(place) as client:
            client.delete(*client.keys(f"{{{name}}}*"), b"none")
    elif kind == "postgres":
        with psycopg.connect(place, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())
