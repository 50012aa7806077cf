"""Runs that workers carry, beside the same work on plain DBOS: runs a second with 1, 2 and 3 workers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, time

import psycopg
from dbos import DBOSClient, WorkflowSerializationFormat
from support.servers import own_postgres, running_postgres

from benchmarks.distributed_worker import STEPS, application
from benchmarks.measure import Row
from fastroai.distributed import Distributed
from fastroai.distributed.app import EVERY
from fastroai.distributed.engine import places_of, upgrade
from fastroai.distributed.roster import read_roster
from fastroai.store import RunQuery

NOTHING = 200
"""Runs of steps that do nothing."""
SLOTS, WAVES, SLOW = 20, 8, 0.5
"""Runs at a time of a worker, times that these begin, and seconds of a step."""
IDLE = 60.0
"""Seconds for which an idle worker is watched."""
COUNTED = 1000
"""Runs whose costs are counted."""
KILLS = 10
_WORKER = str(Path(__file__).with_name("distributed_worker.py"))


@contextmanager
def working(
    url: str, name: str, kind: str, count: int, seconds: float, **options: object
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """So many workers, which are killed in the end."""
    given = {"STEP_SECONDS": seconds, "AT_ONCE": SLOTS if seconds else 50, **options}
    environment = {**os.environ, **{name: str(value) for name, value in given.items()}}
    command = [sys.executable, _WORKER, url, name, kind]
    processes = [subprocess.Popen(command, env=environment) for _ in range(count)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _places_taken(noted: Path, runs: int, places: int) -> float:
    """Runs a second while all places are taken: the starts of runs after those that have taken them first.

    What it takes to put all runs in the queue at once, and to see the last end, is no work of the workers.
    """
    begun = sorted(float(line.split()[-1]) for line in noted.read_text().splitlines())[-runs:]
    return (runs - places) / (begun[-1] - begun[places - 1])


async def ours(url: str, count: int, runs: int, seconds: float, **options: object) -> float:
    """Seconds from the first start to the last end."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    async with application(url, name) as app:
        with working(url, name, "ours", count, seconds, **options):
            await _until_workers(app, count)
            await (await app.start("steps")).wait()
            await asyncio.sleep(2)
            started = perf_counter()
            async with asyncio.TaskGroup() as tasks:
                handles = [tasks.create_task(app.start("steps")) for _ in range(runs)]
            for handle in handles:
                await handle.result().wait()
            return perf_counter() - started


async def plain(url: str, count: int, runs: int, seconds: float, **options: object) -> float:
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
        with working(url, name, "plain", count, seconds, **options):
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
            for count in (1, 2, 3):
                url = place or str(Path(folder) / f"{uuid.uuid4().hex}.db")
                took = await ours(url, count, NOTHING, 0.0)
                bare = await plain(url, count, NOTHING, 0.0)
                what = f"runs a second, {store}, {count} workers, {STEPS} steps that do nothing"
                least = 2 if store == "SQLite" else 1
                aim, met = f"≥ {least} x plain DBOS", bare / took >= least
                yield Row(what, f"{NOTHING / took:.1f}", f"{NOTHING / bare:.1f}", bare / took, aim, met)
                yield await _slow_steps(Path(folder), store, url, count)


async def _slow_steps(folder: Path, store: str, url: str, count: int) -> Row:
    places, rates = count * SLOTS, list[float]()
    for work in (ours, plain):
        noted = folder / uuid.uuid4().hex
        await work(url, count, places * WAVES, SLOW, STARTED=noted)
        rates.append(_places_taken(noted, places * WAVES, places))
    ideal = places / (STEPS * SLOW)
    what = f"runs a second, {store}, {count} workers, {STEPS} steps of {SLOW:g} s, all places taken"
    return Row(
        what,
        f"{rates[0]:.2f}",
        f"{rates[1]:.2f}",
        rates[0] / rates[1],
        f"≥ 95 % of the ideal {ideal:.0f}",
        rates[0] >= 0.95 * ideal,
    )


async def idle_workers() -> AsyncIterator[Row]:
    """Transactions a minute of a worker that has nothing to do, and looks at its queue each second."""
    with running_postgres() as dsn:
        await asyncio.to_thread(upgrade, places_of(dsn)[1])
        counts = dict[str, float]()
        for kind in ("ours", "plain"):
            name = f"bench-{uuid.uuid4().hex[:8]}"
            with working(dsn, name, kind, 1, 0, POLLING=1):
                await asyncio.sleep(75)  # for its first minute, the scheduler of DBOS looks each second
                before = await asyncio.to_thread(_transactions, dsn)
                await asyncio.sleep(IDLE)
                counts[kind] = (await asyncio.to_thread(_transactions, dsn) - before) * 60 / IDLE
        ours, bare = counts["ours"], counts["plain"]
        what = "transactions a minute, PostgreSQL, an idle worker"
        yield Row(what, f"{ours:.0f}", f"{bare:.0f}", ours / bare, "≤ 1.3 x plain DBOS", ours <= 1.3 * bare)


async def costs_of_a_run() -> AsyncIterator[Row]:
    """What a run of steps that do nothing takes, which a busy machine does not change."""
    with own_postgres() as server:
        dsn, name = server.get_uri(), f"bench-{uuid.uuid4().hex[:8]}"
        postmaster = server.get_pid()
        assert postmaster is not None
        async with application(dsn, name) as app:
            with working(dsn, name, "ours", 1, 0) as processes:
                await _until_workers(app, 1)
                await (await app.start("steps")).wait()
                await asyncio.sleep(2)

                def used() -> tuple[float, ...]:
                    of_worker, of_server = _cpu_ms(processes[0].pid), _cpu_ms(postmaster)
                    return of_worker, of_server, _transactions(dsn), *_bytes(dsn)

                before, here = await asyncio.to_thread(used), process_time()
                for _ in range(0, COUNTED, 50):
                    await asyncio.gather(*(app.start("steps") for _ in range(50)))
                here = (process_time() - here) * 1000 / COUNTED
                while await app.history.count(RunQuery(status="finished")) <= COUNTED:  # noqa: ASYNC110
                    await asyncio.sleep(0.5)
                after = await asyncio.to_thread(used)
    each = [(late - early) / COUNTED for late, early in zip(after, before, strict=True)]
    cpu = f"{each[0]:.1f} + {here:.1f} + {each[1]:.1f}"
    yield Row("CPU ms of a run: worker + process that starts it + PostgreSQL", cpu)
    yield Row("transactions of a run", f"{each[2]:.0f}")
    yield Row("bytes of a run: tables + write-ahead log", f"{each[3]:,.0f} + {each[4]:,.0f}")


def _cpu_ms(pid: int) -> float:
    """CPU of a process and its children, living and dead."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            words = stat.read_text().rpartition(")")[2].split()
            if int(stat.parent.name) == pid:
                ticks += sum(map(int, words[11:15]))
            elif int(words[1]) == pid:
                ticks += sum(map(int, words[11:13]))
    return ticks * 1000 / os.sysconf("SC_CLK_TCK")


def _bytes(dsn: str) -> tuple[float, float]:
    with psycopg.connect(dsn) as connection:
        tables = "SELECT sum(pg_total_relation_size(relid)) FROM pg_stat_user_tables"
        row = connection.execute(f"SELECT ({tables}), pg_current_wal_lsn() - '0/0'").fetchone()
    assert row is not None
    return float(row[0]), float(row[1])


def _transactions(dsn: str) -> int:
    """Transactions of all clients so far. What a client has done is reported after a second at most."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        query = "SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database WHERE datname IS NOT NULL"
        row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


async def first_steps_and_takeovers() -> AsyncIterator[Row]:
    """Seconds from a start to the first step, and from a kill to the first step of another worker."""
    with tempfile.TemporaryDirectory() as folder, running_postgres() as dsn:
        for polling in (1.0, 0.05):
            noted = Path(folder) / f"{polling}"
            name = f"bench-{uuid.uuid4().hex[:8]}"
            options = {"POLLING": polling, "STARTED": noted, "AT_ONCE": 50}
            async with application(dsn, name) as app:
                with working(dsn, name, "ours", 2, 600.0, **options) as processes:
                    await _until_workers(app, 2)
                    await asyncio.sleep(2)
                    waits = [await _to_first_step(app, noted) for _ in range(10)]
                    what = f"seconds from start to first step, polling each {polling:g} s"
                    yield Row(f"{what}: median, most", f"{median(waits):.2f}, {max(waits):.2f}")
                    takeovers = [
                        await _to_takeover(app, noted, processes, options, dsn) for _ in range(KILLS)
                    ]
                    bound = 1.2 * EVERY + 1.05 * polling + 1
                    what = f"seconds from SIGKILL to another worker, polling each {polling:g} s"
                    aim, met = f"≤ {bound:.1f} on one machine", max(takeovers) <= bound
                    yield Row(
                        f"{what}: median, most",
                        f"{median(takeovers):.2f}, {max(takeovers):.2f}",
                        aim=aim,
                        met=met,
                    )


def _begun(noted: Path, run_id: str) -> list[tuple[int, float]]:
    """The processes in which the first step of a run has begun, and when."""
    lines = noted.read_text().splitlines() if noted.exists() else []
    words = [line.split() for line in lines]
    return [(int(pid), float(at)) for one, pid, at in words if one == run_id]


async def _until_workers(app: Distributed, count: int) -> None:
    while len((await read_roster(app.store, app.app)).workers) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.1)


async def _nth_begin(noted: Path, run_id: str, count: int) -> tuple[int, float]:
    while len(begun := _begun(noted, run_id)) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return begun[count - 1]


async def _to_first_step(app: Distributed, noted: Path) -> float:
    began = time()
    handle = await app.start("steps")
    _, at = await _nth_begin(noted, handle.run_id, 1)
    await handle.cancel()
    return at - began


async def _to_takeover(
    app: Distributed,
    noted: Path,
    processes: list[subprocess.Popen[bytes]],
    options: Mapping[str, object],
    dsn: str,
) -> float:
    handle = await app.start("steps")
    pid, _ = await _nth_begin(noted, handle.run_id, 1)
    victim = next(process for process in processes if process.pid == pid)
    killed = time()
    victim.kill()
    victim.wait()
    _, at = await _nth_begin(noted, handle.run_id, 2)
    await handle.cancel()
    processes.remove(victim)
    given = {**os.environ, "STEP_SECONDS": "600", **{name: str(value) for name, value in options.items()}}
    processes.append(subprocess.Popen([sys.executable, _WORKER, dsn, app.app, "ours"], env=given))  # noqa: ASYNC220
    await _until_workers(app, len(processes))
    return at - killed


BENCHMARKS = (beside_plain_dbos, costs_of_a_run, idle_workers, first_steps_and_takeovers)
