"""Applications for tests, each with a name of its own."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.carried import Workers, application, workers_of

from fastroai.distributed import Distributed


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for runs and queues, on one machine and for many."""
    if request.param == "sqlite":
        return str(tmp_path / "runs.db")
    dsn: str = request.getfixturevalue("postgres_dsn")
    return dsn


@pytest.fixture
def name() -> str:
    """The name of an application."""
    return f"app-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def workers(url: str, name: str, tmp_path: Path) -> Iterator[Workers]:
    """Processes that carry runs of the application, ended with the test."""
    with workers_of(url, name, tmp_path / "notes") as workers:
        yield workers


@pytest.fixture
async def app(url: str, name: str) -> AsyncIterator[Distributed]:
    """The application, with the pipelines of `support.carried`."""
    async with application(url, name) as app:
        yield app
