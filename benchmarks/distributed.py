"""Runs that workers carry, beside the same work on plain DBOS: runs a second with 1, 2 and 3 workers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from dbos import DBOSClient, WorkflowSerializationFormat
from support.servers import running_postgres

from benchmarks.distributed_worker import AT_ONCE, STEPS, application
from benchmarks.measure import Row
from fastroai.distributed.engine import places_of, upgrade
from fastroai.distributed.roster import read_roster

NOTHING, SLOW = 200, 100
"""Runs of steps that do nothing, and of steps that take half a second."""
_WORKER = str(Path(__file__).with_name("distributed_worker.py"))


@contextmanager
def working(url: str, name: str, kind: str, count: int, seconds: float) -> Iterator[None]:
    """So many workers, which are killed in the end."""
    environment = {**os.environ, "STEP_SECONDS": str(seconds)}
    command = [sys.executable, _WORKER, url, name, kind]
    processes = [subprocess.Popen(command, env=environment) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


async def ours(url: str, count: int, runs: int, seconds: float) -> float:
    """Seconds from the first start to the last end."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    async with application(url, name) as app:
        with working(url, name, "ours", count, seconds):
            while len((await read_roster(app.store, name)).workers) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            await (await app.start("steps")).wait()
            await asyncio.sleep(2)
            started = perf_counter()
            async with asyncio.TaskGroup() as tasks:
                handles = [tasks.create_task(app.start("steps")) for _ in range(runs)]
            for handle in handles:
                await handle.result().wait()
            return perf_counter() - started


async def plain(url: str, count: int, runs: int, seconds: float) -> float:
    """The same for hand-written DBOS."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    await asyncio.to_thread(upgrade, places_of(url)[1])
    client = DBOSClient(system_database_url=places_of(url)[1], application_name=name)

    async def enqueue() -> object:
        handle = await client.enqueue_async(
            {
                "workflow_name": "plain",
                "queue_name": f"{name}.plain",
                "app_version": name,
                "serialization_type": WorkflowSerializationFormat.PORTABLE,
            }
        )
        return await handle.get_result(polling_interval_sec=0.05)

    try:
        with working(url, name, "plain", count, seconds):
            await enqueue()
            await asyncio.sleep(4)
            started = perf_counter()
            await asyncio.gather(*(enqueue() for _ in range(runs)))
            return perf_counter() - started
    finally:
        await asyncio.to_thread(client.destroy)


async def beside_plain_dbos() -> AsyncIterator[Row]:
    """Runs of five steps a second."""
    with tempfile.TemporaryDirectory() as folder, running_postgres() as dsn:
        places = {"SQLite": "", "PostgreSQL": dsn}
        for store, place in places.items():
            for seconds, runs in ((0.0, NOTHING), (0.5, SLOW)):
                for count in (1, 2, 3):
                    url = place or str(Path(folder) / f"{uuid.uuid4().hex}.db")
                    took = await ours(url, count, runs, seconds)
                    bare = await plain(url, count, runs, seconds)
                    what = f"runs a second, {store}, {count} workers, {STEPS} steps of {seconds:g} s"
                    aim, met = "≥ plain DBOS", bare / took >= 1
                    if seconds:
                        waves = -(-runs // (count * AT_ONCE))
                        ideal = runs / (waves * STEPS * seconds)
                        aim, met = f"≥ 95 % of the ideal {ideal:.0f}", runs / took >= 0.95 * ideal
                    yield Row(what, f"{runs / took:.1f}", f"{runs / bare:.1f}", bare / took, aim, met)


BENCHMARKS = (beside_plain_dbos,)
