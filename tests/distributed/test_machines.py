"""For `make machines`: databases that go away, other code, very many runs, and a network that is cut."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from support.carried import application, workers_of
from support.carrying import KINDS, Started, answer_questions, check_all, start_all, until_ready
from support.namespaces import network
from support.proxy import proxy_to
from support.servers import own_postgres, postgres_on, restart_postgres

from fastroai.distributed import Client, Distributed, RunHandle
from fastroai.errors import FastroAIError, RunExists, RunStoreUnavailable
from fastroai.store import RunQuery
from fastroai.testing import ModelServer, Reply

TIMES = int(os.environ.get("FASTROAI_MACHINES", "0"))
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not TIMES, reason="takes minutes: make machines")]
QUEUED = int(os.environ.get("QUEUED", "10000"))


@pytest.fixture(autouse=True)
async def in_time() -> AsyncIterator[None]:
    async with asyncio.timeout(1800):
        yield


@pytest.fixture(autouse=True)
def models(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in model_server.environment().items():
        monkeypatch.setenv(variable, value)
    model_server.rule(None, lambda request: Reply(request.prompt))


async def test_a_database_is_restarted_in_the_middle_and_during_takeovers(name: str, tmp_path: Path) -> None:
    chance = random.Random(5)
    with own_postgres() as server, workers_of(server.get_uri(), name, tmp_path / "notes") as workers:
        async with application(workers.url, name) as app, asyncio.TaskGroup() as tasks:
            for _ in range(3):
                workers.begin()
            await until_ready(app, 3)
            starting = tasks.create_task(_start_whatever_happens(app, 20 * TIMES, 8 * TIMES, chance))
            answering = tasks.create_task(_answer_whatever_happens(app))
            for number in range(2 * TIMES):
                await asyncio.sleep(chance.uniform(1, 4))
                if number % 2:
                    workers.kill(workers.running[0])
                    workers.begin()
                    await asyncio.sleep(chance.uniform(0, 2.5))  # the lease is two seconds
                await asyncio.to_thread(restart_postgres, server)
            await _check_whatever_happens(await starting)
            answering.cancel()


async def _answer_whatever_happens(app: Distributed) -> None:
    while True:
        with suppress(FastroAIError):
            await answer_questions(app)
        await asyncio.sleep(0.5)


async def _start_whatever_happens(
    app: Distributed, count: int, seconds: float, chance: random.Random
) -> Started:
    """Start runs, again where it is not known whether they are on record."""
    runs = list[tuple[str, int, RunHandle[Any]]]()
    for number in range(count):
        kind, run_id = KINDS[number % len(KINDS)], f"{app.app}-{number}"
        while True:
            try:
                await app.start(kind, {"number": number}, run_id=run_id, tenant="t")
            except RunExists:
                break
            except FastroAIError:
                await asyncio.sleep(0.5)
            else:
                break
        runs.append((kind, number, app.handle(run_id)))
        await asyncio.sleep(chance.uniform(0, 2 * seconds / count))
    return runs


async def _check_whatever_happens(runs: Started) -> None:
    while True:
        try:
            return await check_all(runs)
        except RunStoreUnavailable:
            await asyncio.sleep(0.5)


async def test_old_and_new_code_side_by_side(postgres_dsn: str, name: str, tmp_path: Path) -> None:
    """Old workers are replaced one by one. Runs end with the code that they have begun with."""
    with workers_of(postgres_dsn, name, tmp_path / "notes") as workers:
        old = [workers.begin(CODE="old") for _ in range(2)]
        async with application(postgres_dsn, name) as app:
            await until_ready(app, 2)
            handles = {"old": [await _asking(app) for _ in range(10 * TIMES)], "new": list[RunHandle[Any]]()}
            new = [workers.begin(CODE="new") for _ in range(2)]
            await until_ready(app, 4)
            async with Client(postgres_dsn, name=name) as client:
                # What is published last is new; and so are the runs that begin now.
                handles["new"] = [await _asking(client) for _ in range(10 * TIMES)]
                workers.kill(old[0])
                workers.kill(new[0])
                workers.begin(CODE="new")
                async with asyncio.TaskGroup() as tasks:
                    answering = tasks.create_task(answer_questions(app))
                    for code, runs in handles.items():
                        for handle in runs:
                            while (state := await handle.wait()).status == "paused":
                                await asyncio.sleep(0.05)
                            assert list(state.outputs) == [code, "asks", "says"]
                            assert state.outputs["says"] == code
                    answering.cancel()


async def _asking(client: Client) -> RunHandle[Any]:
    """A run that waits for an answer."""
    handle = await client.start("changing", {"number": 1})
    await handle.wait()
    return handle


async def test_very_many_queued_runs_take_little_memory(
    postgres_dsn: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with workers_of(postgres_dsn, name, tmp_path / "notes") as workers:
        async with application(postgres_dsn, name) as app:
            workers.begin()
            await until_ready(app, 1)
            for _ in range(50):
                await (await app.start("tripled", {"number": 1})).wait()
            idle, here = _megabytes(workers.running[0].pid), _megabytes(os.getpid())
            workers.close()
            workers.running.clear()
            for number in range(0, QUEUED, 50):
                await asyncio.gather(
                    *(app.start("tripled", {"number": one}) for one in range(number, number + 50))
                )
            queued = _megabytes(os.getpid())
            began, most = time.monotonic(), 0.0
            for _ in range(3):
                workers.begin()
            while await app.history.count(RunQuery(status="finished")) < QUEUED + 50:
                most = max([most, *(_megabytes(one.pid) for one in workers.running)])
                await asyncio.sleep(2)
            took = time.monotonic() - began
    with capsys.disabled():
        print(
            f"\n{QUEUED:,} queued runs: {QUEUED / took:.0f} a second by 3 workers; MB of a worker {idle:.0f},"
        )
        print(f"at most {most:.0f}; of the process that starts them {here:.0f}, after that {queued:.0f}")
    assert most < idle + 100
    assert queued < here + 100


def _megabytes(pid: int) -> float:
    """Memory of a process."""
    (line,) = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


async def test_a_worker_that_is_cut_off_for_longer_than_its_lease_disturbs_nobody(
    name: str, tmp_path: Path, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Network namespaces: each worker believes to be on a machine of its own."""
    chance = random.Random(9)
    with ExitStack() as stack:
        net = stack.enter_context(network(2))
        remote, local = stack.enter_context(postgres_on(net.server))
        address = "127.0.0.1", int(model_server.url.rpartition(":")[2])
        for machine in net.hosts:
            stack.enter_context(proxy_to(address, machine.listener(address[1])))
        workers = stack.enter_context(workers_of(local, name, tmp_path / "notes"))
        async with application(local, name) as app, asyncio.TaskGroup() as tasks:
            for machine in net.hosts:
                workers.begin(inside=machine.alone, url=remote)
            await until_ready(app, 2)
            answering = tasks.create_task(answer_questions(app))
            starting = tasks.create_task(start_all(app, 20 * TIMES, 10 * TIMES, chance))
            for number in range(2 * TIMES):
                await asyncio.sleep(1)
                lost = ("all", "requests", "answers")[number % 3]
                net.cut(net.hosts[number % 2], lost)
                await asyncio.sleep(4)  # the lease is two seconds
                net.heal()
            await check_all(await starting)
            answering.cancel()
