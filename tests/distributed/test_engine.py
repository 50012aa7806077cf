"""DBOS under the workers: its schedules, one that the program launches itself, and what it must not see."""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from dbos import DBOS
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.test import TestModel
from support.carried import Notes, Workers, application

from fastroai import Pipeline, StepContext, step
from fastroai.distributed import Client, Distributed, QueueOptions, worker
from fastroai.distributed.engine import FIRING, places_of
from fastroai.distributed.roster import read_roster, sign_on
from fastroai.errors import ConfigurationError, ContractViolation, RunNotFound, RunStoreUnavailable

FAST: Any = {"every": 0.05, "graceful_timeout": 1.0}
EACH_SECOND = "* * * * * *"


# --- schedules ---


async def _scheduled(app: Distributed, count: int) -> list[str]:
    """The ids of the runs of a schedule, once there are so many."""
    while len(found := [run.run_id for run in (await app.list()).items]) < count:
        await asyncio.sleep(0.05)
    return sorted(found)


@pytest.mark.slow
async def test_a_schedule_fires_once_however_many_workers(app: Distributed, workers: Workers) -> None:
    app.schedule("often", "work", EACH_SECOND, {"number": 4}, tenant="acme", tags=["nightly"])
    workers.begin(SCHEDULE=EACH_SECOND)
    while not (await read_roster(app.store, app.app)).workers:
        await asyncio.sleep(0.05)
    async with app.worker(**FAST):
        for run_id in await _scheduled(app, 4):
            assert (await app.handle(run_id).wait()).outputs["third"] == "acme/4:8"
            assert set(Notes.ran(run_id).values()) == {1}
        await app.delete_schedule("often")
    workers.close()
    async with app.worker(**FAST):
        found = await _scheduled(app, 4)
        for run_id in found:
            assert (await app.handle(run_id).wait()).outputs["third"] == "acme/4:8"
    times = [datetime.strptime(one, "often-%Y%m%dT%H%M%SZ").replace(tzinfo=UTC) for one in found]
    assert times == [times[0] + timedelta(seconds=number) for number in range(len(times))]


async def test_a_firing_whose_worker_died_is_not_lost(app: Distributed, url: str) -> None:
    app.schedule("often", "work", EACH_SECOND, {"number": 4})
    async with app.worker(**FAST):
        lost, *_ = await _scheduled(app, 1)
        await app.handle(lost).wait()
        await app.delete_schedule("often")
    await app.history.delete(lost)
    with pytest.raises(RunNotFound):
        await app.handle(lost).status()
    with closing(sqlite3.connect(f"{url}.queues", isolation_level=None)) as rows:
        dead = "UPDATE workflow_status SET status = 'PENDING', executor_id = 'dead' WHERE name = ?"
        rows.execute(dead, [FIRING])
    other = application(url, app.app)  # its code has no schedule
    async with other, other.worker(**FAST):
        while lost not in await _scheduled(other, 1):
            await asyncio.sleep(0.05)
        assert (await other.handle(lost).wait()).outputs["third"] == "None/4:8"


async def test_a_schedule_that_cannot_do_what_it_says_is_refused(app: Distributed) -> None:
    def refused(match: str, *given: Any, **options: Any) -> None:
        with pytest.raises(ConfigurationError, match=match):
            app.schedule(*given, **options)

    refused("five fields of cron", "n", "work", "every day", {"number": 1})
    refused("five fields of cron", "n", "work", "61 * * * *", {"number": 1})
    refused("name a time to come", "n", "work", "0 0 30 2 *", {"number": 1})
    refused("five fields of cron", "n", "work", 3, {"number": 1})
    refused("name of a time zone", "n", "work", "0 3 * * *", {"number": 1}, cron_timezone="Mars/Base")
    refused("a registered name: 'work'", "n", "wrok", "0 3 * * *", {"number": 1})
    refused("a whole number from 1", "n", "work", "0 3 * * *", {"number": 1}, priority=0)
    refused("run_id=", "n" * 300, "work", "0 3 * * *", {"number": 1})
    app.register_queue("tenants", QueueOptions(partition_concurrency=1))
    refused("which queue 'tenants' needs", "n", "work", "0 3 * * *", {"number": 1}, queue="tenants")
    refused("queue 'default' has no part", "n", "work", "0 3 * * *", {"number": 1}, partition="acme")
    with pytest.raises(ContractViolation):
        app.schedule("n", "work", "0 3 * * *", {"number": "four"})
    app.schedule("n", "work", "0 3 * * *", {"number": 1}, cron_timezone="Europe/Berlin")
    refused("another schedule is called 'n'", "n", "work", "0 4 * * *", {"number": 1})


# --- a DBOS of the program ---


@asynccontextmanager
async def launched(url: str, name: str, **config: Any) -> AsyncGenerator[None]:
    DBOS(
        config={
            "name": name,
            "system_database_url": places_of(url)[1],
            "log_level": "ERROR",
            **config,  # type: ignore[typeddict-item]
        }
    )
    await asyncio.to_thread(DBOS.launch)
    try:
        yield
    finally:
        await asyncio.to_thread(DBOS.destroy)


async def test_a_worker_takes_part_in_the_engine_that_the_program_has_launched(
    app: Distributed, url: str, name: str
) -> None:
    @DBOS.workflow(name=f"own-{name}")
    async def own(number: int) -> int:
        handle = await app.start("work", {"number": number}, run_id=f"from-{number}")
        return number + len((await handle.result()).output)

    async with launched(url, name, executor_id=uuid.uuid4().hex, application_version="v1"):
        for _ in range(2):  # it can begin again
            async with app.worker(**FAST) as carrier:
                assert carrier.executor == DBOS.executor_id
                (one,) = (await read_roster(app.store, name)).workers
                assert (one.executor, one.version) == (DBOS.executor_id, "v1")
                assert (await (await app.start("people", {"number": 1})).wait()).status == "paused"
                assert (await (await app.start("work", {"number": 1})).result()).output == "None/1:2"
        async with app.worker(**FAST):
            handle = await asyncio.to_thread(DBOS.start_workflow, own, 3)
            assert await asyncio.to_thread(handle.get_result) == 3 + len("None/3:6")
        assert await asyncio.to_thread(DBOS.list_queues)  # it goes on without the worker


async def test_an_engine_that_others_would_share_is_refused(app: Distributed, url: str, name: str) -> None:
    async with app.worker(**FAST):
        with pytest.raises(ConfigurationError, match="only one worker in a process at a time"):
            await app.worker().__aenter__()
    async with launched(url, name):
        with pytest.raises(ConfigurationError, match="executor_id='local': expected an id that no other"):
            await app.worker().__aenter__()
        assert (await (await app.start("work", {"number": 1})).status()).status == "queued"
    async with launched(url, "another-app", executor_id="mine"):
        with pytest.raises(ConfigurationError, match="the database and the application name of the DBOS"):
            await app.worker().__aenter__()
    async with launched(f"{url}.other", name, executor_id="mine"):
        with pytest.raises(ConfigurationError, match="the database and the application name of the DBOS"):
            await app.worker().__aenter__()
    DBOS(config={"name": name, "system_database_url": places_of(url)[1], "executor_id": "mine"})
    with pytest.raises(ConfigurationError, match=r"DBOS.launch\(\) before the worker starts"):
        await app.worker().__aenter__()
    await asyncio.to_thread(DBOS.destroy)
    assert not (await read_roster(app.store, name)).workers


async def test_other_code_of_the_same_version_is_refused(app: Distributed, url: str, name: str) -> None:
    async with app.worker(version="v1", **FAST):
        (living,) = (await read_roster(app.store, name)).workers
    elsewhere = replace(living, executor="elsewhere", knows={"work": "otherwise"})
    await sign_on(app.store, name, elsewhere)
    with pytest.raises(ConfigurationError, match="running workers of this one have other definitions"):
        await app.worker(version="v1").__aenter__()
    async with app.worker(version="v2", **FAST):
        pass


async def test_a_database_that_is_not_there_is_told_before_any_run(
    postgres_dsn: str, name: str, tmp_path: Path
) -> None:
    (tmp_path / "letter.txt").write_text("no database, but a letter" * 100)
    missing = postgres_dsn.replace("/postgres", "/missing", 1)
    assert missing != postgres_dsn
    for place in ("postgresql://localhost:1/none", missing, str(tmp_path / "letter.txt")):
        async with application(place, name) as app:
            with pytest.raises(RunStoreUnavailable):
                await app.worker().__aenter__()
            with pytest.raises(RunStoreUnavailable):
                await app.upgrade()
            with pytest.raises(RunStoreUnavailable):
                await app.start("work", {"number": 1})


async def test_what_cannot_cross_processes_is_refused_before_the_run(app: Distributed, url: str) -> None:
    async with app.worker(**FAST), Client(url) as client:
        with pytest.raises(ConfigurationError, match="values that JSON can hold"):
            await client.start("people", {"number": object()})
        with pytest.raises(ConfigurationError, match="expected a mapping|inputs="):
            await client.start("people", [1])  # type: ignore[arg-type]
        assert (await app.list()).items == ()


async def test_a_worker_says_that_its_clock_is_off(
    app: Distributed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with app.worker(**FAST):
        assert "the clock of this machine" not in caplog.text
    real = worker.store_time

    async def slow(store: Any) -> datetime:
        return await real(store) - timedelta(seconds=60)

    monkeypatch.setattr(worker, "store_time", slow)
    async with app.worker(**FAST):
        assert "the clock of this machine is 60.0 seconds ahead of that of the store" in caplog.text


# --- the engine does not see what the steps do ---


async def test_steps_of_the_engine_are_not_kept_by_their_positions(url: str, name: str) -> None:
    """Called as 1, 2, and after the run was handed over as 2, 1, each gets its own result."""
    order, got, leave = [1, 2], list[tuple[int, int]](), asyncio.Event()

    @DBOS.step(name=f"number-{name}")
    async def number(of: int) -> int:
        return of

    @step
    async def calls(ctx: StepContext[None]) -> None:
        assert DBOS.workflow_id is None
        for one in order:
            got.append((one, await number(one)))
        Notes.write("called", ctx.run_id)
        await leave.wait()

    async with Distributed(url, name=name) as app:
        app.register(Pipeline("calls", {"calls": calls}))
        async with app.worker(every=0.05, graceful_timeout=0.05):
            handle = await app.start("calls")
            while len(Notes.read()) < 1:
                await asyncio.sleep(0.02)
        order.reverse()
        leave.set()
        async with app.worker(**FAST):
            await handle.result()
    assert got == [(1, 1), (2, 2), (2, 2), (1, 1)]


async def test_an_agent_with_the_durability_of_the_engine_runs_as_without(url: str, name: str) -> None:
    agent = Agent(
        TestModel(custom_output_text="hello"), name=f"agent-{name}", capabilities=[DBOSDurability()]
    )

    @step
    async def asks(ctx: StepContext[None]) -> str:
        assert DBOS.workflow_id is None
        return str((await agent.run("hi")).output)

    async with Distributed(url, name=name) as app:
        app.register(Pipeline("agents", {"asks": asks}))
        async with app.worker(**FAST):
            assert (await (await app.start("agents")).result()).output == "hello"
