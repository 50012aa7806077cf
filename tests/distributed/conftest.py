"""Applications for tests, each with a name of its own."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.carried import Notes, Workers, application, workers_of
from support.patience import PATIENCE

from fastroai.distributed import Distributed


@pytest.fixture(autouse=True)
def notes(tmp_path: Path) -> None:
    Notes.path = tmp_path / "notes"


@pytest.fixture(autouse=True)
async def in_time() -> AsyncIterator[None]:
    async with asyncio.timeout(PATIENCE):
        yield


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for runs and queues: for one machine, or for many where the parameter is "postgres"."""
    if getattr(request, "param", "sqlite") == "sqlite":
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
