"""PostgreSQL is restarted in the middle, and the runs that workers carry end all the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest
from support.carried import Notes, application, workers_of
from support.servers import own_postgres, restart_postgres

pytestmark = pytest.mark.slow


MOST_OF_WORKER, MOST_OF_CLIENT = 12, 7
"""Connections that the guide promises."""


def _connections(url: str) -> int:
    """The connections to the database, besides this one."""
    with psycopg.connect(url) as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname IS NOT NULL AND pid <> pg_backend_pid()"
        row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


async def test_a_database_that_is_restarted_loses_no_run(name: str, tmp_path: Path) -> None:
    with own_postgres() as server, workers_of(server.get_uri(), name, tmp_path / "notes") as workers:
        async with application(workers.url, name) as app:
            first, _ = workers.begin(), workers.begin()
            runs = [await app.start("work", {"number": number}) for number in range(20)]
            # Both carry runs by then: a worker that begins while its database is away ends at once.
            while len({words[2] for words in Notes.read() if words[0] == "deps"}) < 2:
                runs.append(await app.start("work", {"number": len(runs)}))
            await asyncio.to_thread(restart_postgres, server)
            workers.kill(first)
            runs += [await app.start("work", {"number": len(runs) + number}) for number in range(5)]
            for number, run in enumerate(runs):
                assert (await run.result()).output == f"None/{number}:{number * 2}"
            assert _connections(workers.url) <= MOST_OF_WORKER + MOST_OF_CLIENT
