"""A worker with a model server, and a store of each kind when it is first needed."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import psycopg
import pytest
import redis
from durability.sweep import Lane, Worker

Swept: TypeAlias = dict[str, list[int]]
"""By kind of store: runs, kills, and runs that broke a promise."""

_lanes: list[Lane] = []
_elsewhere: list[Swept] = []
"""What was swept in other processes of pytest-xdist."""


def _swept() -> Swept:
    return {lane.place[0]: [lane.runs, lane.kills, lane.violations] for lane in _lanes}


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that has the terminal what was swept in this one."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["swept"] = _swept()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Hear what was swept in another process."""
    _elsewhere.append(getattr(node, "workeroutput", {}).get("swept", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How much was swept, by store."""
    total = Counter[tuple[str, int]]()
    for swept in (_swept(), *_elsewhere):
        for kind, counts in swept.items():
            total.update({(kind, number): count for number, count in enumerate(counts)})
    for kind in sorted({kind for kind, _ in total}):
        runs, kills, violations = (total[kind, number] for number in range(3))
        terminalreporter.write_line(
            f"kill sweep on {kind}: {kills:,} kills in {runs:,} runs, {violations} of which broke a promise"
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
