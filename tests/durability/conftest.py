"""A worker with a model server, and a store of each kind when it is first needed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
import redis
from durability.sweep import Lane, Worker

_lanes: list[Lane] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How much was swept."""
    if _lanes:
        kills, runs = sum(lane.kills for lane in _lanes), sum(lane.runs for lane in _lanes)
        shapes = {shape for lane in _lanes for shape in lane.shapes}
        stores = ", ".join(f"{lane.place[0]} ({lane.kills})" for lane in _lanes)
        terminalreporter.write_line(
            f"kill sweep: {kills} kills in {runs} runs of {len(shapes)} shapes, on {stores}"
        )


@pytest.fixture(scope="session")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with Worker.started(tmp_path_factory.mktemp("runs")) as started:
        yield started


@pytest.fixture
def lane(request: pytest.FixtureRequest) -> Lane:
    """That of the kind that is asked for."""
    opened: Lane = request.getfixturevalue(f"{request.param}_lane")
    return opened


@pytest.fixture(scope="session")
def sqlite_lane(worker: Worker) -> Iterator[Lane]:
    with opened(worker, "sqlite", str(worker.folder / "runs.db")) as lane:
        yield lane


@pytest.fixture(scope="session")
def redis_lane(worker: Worker, redis_url: str) -> Iterator[Lane]:
    with opened(worker, "redis", redis_url) as lane:
        yield lane
    with redis.Redis.from_url(redis_url) as client:
        client.delete(*client.keys(f"{{{lane.place[2]}}}*"), b"none")


@pytest.fixture(scope="session")
def postgres_lane(worker: Worker, postgres_dsn: str) -> Iterator[Lane]:
    with opened(worker, "postgres", postgres_dsn) as lane:
        yield lane
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {lane.place[2]} CASCADE".encode())


@contextmanager
def opened(worker: Worker, kind: str, place: str) -> Iterator[Lane]:
    """One for all tests of a kind, so that what a shape does undisturbed is found out once."""
    lane = Lane(worker, (kind, place, f"test_{uuid.uuid4().hex}"))
    _lanes.append(lane)
    yield lane
    lane.close()
