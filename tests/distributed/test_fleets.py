"""Several workers: versions of their code, runs that kill them, ends of processes, and the command line."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.carried import Notes, Workers
from support.patience import PATIENCE

from fastroai import Pipeline, StepContext, step
from fastroai.distributed import Distributed
from fastroai.errors import RunStatusConflict

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


async def test_a_run_that_kills_its_workers_is_set_aside_until_it_is_released(
    app: Distributed, workers: Workers
) -> None:
    handle = await app.start("deadly")
    for death in range(3):
        process = workers.begin(MAX_DEATHS="3")
        assert await asyncio.to_thread(process.wait, PATIENCE) == -signal.SIGKILL, death
    workers.begin(MAX_DEATHS="3", SPARED="1")
    state = await handle.wait()
    standing = await handle.status()
    assert (state.status, standing.status) == ("set_aside", "set_aside")
    assert standing.reason.startswith("3 workers in a row died while they ran it")
    other = await app.start("work", {"number": 1})
    assert (await other.result()).output == "None/1:2"
    await asyncio.to_thread(
        subprocess.run, command("runs", "release", handle.run_id, "--store", workers.url), check=True
    )
    await handle.result()
    assert Notes.ran(handle.run_id) == {"dies": 4}
    with pytest.raises(RunStatusConflict):
        await handle.release()


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "fastroai.cli", *words]


@pytest.mark.parametrize("url", ["postgres"], indirect=True)  # a stopped process keeps its locks on a file
async def test_a_stopped_worker_loses_its_run_and_disturbs_nobody_when_it_goes_on(
    app: Distributed, workers: Workers
) -> None:
    stopped = workers.begin()
    handle = await app.start("endless")
    while not Notes.ran(handle.run_id):
        await asyncio.sleep(0.02)
    stopped.send_signal(signal.SIGSTOP)
    other = workers.begin()
    while Notes.ran(handle.run_id)["waits"] < 2:  # after the lease of 2 seconds
        await asyncio.sleep(0.02)
    stopped.send_signal(signal.SIGCONT)
    workers.kill(other)
    while Notes.ran(handle.run_id)["waits"] < 3:  # the one that was stopped takes it up again
        await asyncio.sleep(0.02)
    await handle.cancel()
    assert (await handle.wait()).status == "cancelled"
    assert (await (await app.start("work", {"number": 1})).result()).output == "None/1:2"
    pids = [words[4] for words in Notes.read() if words[:2] == ["ran", handle.run_id]]
    assert pids == [stopped.pid, other.pid, stopped.pid]


async def test_a_worker_that_is_told_to_end_hands_over_at_once(app: Distributed, workers: Workers) -> None:
    first = workers.begin()
    handle = await app.start("work", {"number": 1})
    while not Notes.ran(handle.run_id):
        await asyncio.sleep(0.01)
    workers.begin()
    first.terminate()
    assert await asyncio.to_thread(first.wait, PATIENCE) == 128 + signal.SIGTERM
    assert (await handle.result()).output == "None/1:2"
    assert set(Notes.ran(handle.run_id).values()) == {1}  # what ran has finished


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_applications_with_the_same_pipelines_share_a_database(
    url: str, name: str, tmp_path: Path
) -> None:
    Notes.path = tmp_path / "notes"
    for one in (name, f"{name}-too"):
        async with version(url, one, "first", "last") as app, app.worker(**FAST):
            assert (await (await app.start("versioned")).result()).output == "last"


# --- versions ---


def pipeline(*names: str, fails: bool = False) -> Pipeline[Any, Any, Any]:
    def made(name: str) -> Any:
        @step
        async def works(ctx: StepContext[None]) -> str:
            Notes.write("ran", ctx.run_id, name)
            if name == "asks":
                await ctx.ask("go on?", bool)
            return name

        return works

    needs = {later: [earlier] for earlier, later in pairwise(names)}
    return Pipeline("versioned", {name: made(name) for name in names}, dependencies=needs)


def version(url: str, name: str, *steps: str) -> Distributed:
    app = Distributed(url, name=name)
    app.register(pipeline(*steps))
    return app


FAST: Any = {"every": 0.05, "graceful_timeout": 1.0}


async def test_new_code_carries_old_runs_that_have_not_reached_what_changed(
    url: str, name: str, tmp_path: Path
) -> None:
    Notes.path = tmp_path / "notes"
    async with version(url, name, "first", "asks", "last") as old, old.worker(**FAST):
        handle = await old.start("versioned")
        (asked,) = (await handle.wait()).questions
    async with version(url, name, "first", "asks", "other") as new, new.worker(**FAST):
        handle = new.handle(handle.run_id)
        await handle.answer(asked.id, True)
        while (state := await handle.wait()).status == "paused":
            await asyncio.sleep(0.02)
        assert list(state.outputs) == ["first", "asks", "other"]


async def test_a_run_that_no_worker_knows_waits_and_says_so(url: str, name: str, tmp_path: Path) -> None:
    Notes.path = tmp_path / "notes"
    async with version(url, name, "first", "asks", "last") as old:
        async with old.worker(**FAST):
            handle = await old.start("versioned")
            (asked,) = (await handle.wait()).questions
        async with version(url, name, "renamed", "asks", "last") as new, new.worker(**FAST):
            await new.inbox.answer(asked.id, True)
            while not (why := (await new.handle(handle.run_id).status()).reason):
                await asyncio.sleep(0.02)
            advice = "in the version that this run has; start one that has"
            assert why == f"no running worker has 'versioned' {advice}"
            fresh = await new.start("versioned")
            assert [one.id for one in (await fresh.wait()).questions]
        async with old.worker(**FAST):
            while (await handle.wait()).status == "paused":
                await asyncio.sleep(0.02)
            assert (await handle.result()).output == "last"


# --- the command line ---


MODULE = """
from fastroai import Pipeline, StepContext, step

@step
async def says(ctx: StepContext[None]) -> str:
    return "hello"

greeting = Pipeline("greeting", {"says": says})
"""


async def test_workers_are_begun_from_the_command_line(tmp_path: Path, url: str, name: str) -> None:
    (tmp_path / "greetings.py").write_text(MODULE)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    upgraded = [*command("db", "upgrade", "--url", url)]
    await asyncio.to_thread(subprocess.run, upgraded, check=True, cwd=tmp_path, env=environment)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["worker", "--import", "greetings", "--url", url, "--name", name, "--health-port", str(port)]
    process = subprocess.Popen(  # noqa: ASYNC220
        command(*words, "--grace", "1"), cwd=tmp_path, env=environment
    )
    try:
        while await asyncio.to_thread(status, port, "ready") != 200:
            await asyncio.sleep(0.05)
        assert await asyncio.to_thread(status, port, "live") == 200
        assert await asyncio.to_thread(status, port, "other") == 404
        app = Distributed(url, name=name)
        async with app:
            handle = await app.start("greeting")
            assert (await handle.wait()).outputs == {"says": "hello"}
    finally:
        process.terminate()
        assert process.wait(PATIENCE) == 128 + signal.SIGTERM


def status(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=PATIENCE) as answer:
            code: int = answer.status
            return code
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
