"""Processes that take up runs, and are ended by SIGINT, SIGTERM or SIGKILL."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.fork_server import Program

from fastroai import Pipeline, PipelineConfig, RunHistory, Service, SQLiteRunStore, StepContext, step
from fastroai.pipelines import RunEvent, StepStarted

LEASE = 3600.0
"""Seconds: longer than the tests, which wait for no lease, and for no step to be cut off in time."""
EVERY = 0.1

pytestmark = pytest.mark.slow


@step
async def first(ctx: StepContext[Any]) -> str:
    print("first", flush=True)
    folder = Path(ctx.get_input("folder", str))
    while not (folder / "go on").exists():
        await asyncio.sleep(0.02)
    return "first"


@step
async def second(ctx: StepContext[Any]) -> str:
    print("second", flush=True)
    return "second"


JOB = Pipeline(
    "job", {"first": first, "second": second}, {"second": ["first"]}, config=PipelineConfig(lease=LEASE)
)


class Process(Program):
    """A process that serves the runs of a folder."""

    def __init__(self, way: str, folder: Path) -> None:
        super().__init__(__file__, way, folder)

    def wait_for(self, line: str) -> None:
        for read in self.stdout:
            if read == f"{line}\n":
                return
        raise AssertionError(f"it ended: {self.end()}")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteRunStore]:
    """A store with a run `r` that no process has."""
    store = SQLiteRunStore(tmp_path / "runs.db")
    begun = asyncio.Event()

    def listen(event: RunEvent) -> None:
        if isinstance(event, StepStarted):
            begun.set()

    run = asyncio.create_task(
        JOB.execute({"folder": str(tmp_path)}, run_id="r", store=store, on_event=listen)
    )
    await begun.wait()
    await JOB.interrupt()
    run.cancel()
    await asyncio.wait([run])
    assert await status_of(store) == "interrupted"
    yield store
    await store.aclose()


async def status_of(store: SQLiteRunStore) -> str:
    return (await RunHistory(store).summary("r")).status


SIGINT, SIGTERM, SIGKILL = signal.SIGINT, signal.SIGTERM, signal.SIGKILL


async def test_a_worker_that_is_killed_is_replaced_at_the_next_look_of_another(
    store: SQLiteRunStore, tmp_path: Path
) -> None:
    worker, another = Process("serve", tmp_path), Process("idle", tmp_path)
    worker.wait_for("first")
    another.wait_for("ready")
    another.send_signal(signal.SIGUSR1)  # it begins to serve
    another.wait_for("serving")
    worker.send_signal(SIGKILL)
    await asyncio.to_thread(another.wait_for, "first")
    (tmp_path / "go on").touch()
    await asyncio.to_thread(another.wait_for, "second")
    another.send_signal(SIGTERM)
    code, _, err = await asyncio.to_thread(another.end)
    assert (code, err) == (128 + SIGTERM, "")
    assert await status_of(store) == "finished"
    worker.end()


async def test_a_worker_lets_a_step_finish_at_sigterm_and_leaves_the_next_one(
    store: SQLiteRunStore, tmp_path: Path
) -> None:
    worker = Process("serve", tmp_path)
    worker.wait_for("first")
    worker.send_signal(SIGTERM)
    await asyncio.to_thread(worker.wait_for, "ending")
    (tmp_path / "go on").touch()
    code, out, err = await asyncio.to_thread(worker.end)
    assert (code, out, err) == (128 + SIGTERM, "closed\n", "")
    assert await status_of(store) == "interrupted"
    assert [*(await JOB.recover(store=store))] == ["r"]
    assert (await RunHistory(store).state("r")).outputs == {"first": "first", "second": "second"}


@pytest.mark.parametrize(
    ("way", "numbers", "code"),
    [
        ("serve", [SIGINT, SIGTERM], -SIGINT),
        ("a task", [SIGINT, SIGINT], -SIGINT),
        ("wake and recover", [SIGINT], -SIGINT),
        ("uvicorn", [SIGTERM], -SIGTERM),
        ("uvicorn, cancelled", [signal.SIGUSR1], 0),
    ],
)
async def test_a_process_that_is_told_to_end_hands_its_runs_over(
    way: str, numbers: list[int], code: int, store: SQLiteRunStore, tmp_path: Path
) -> None:
    """The second signal cuts off the step that the first one lets finish."""
    process = Process(way, tmp_path)
    await asyncio.to_thread(process.wait_for, "first")
    process.send_signal(numbers[0])
    for number in numbers[1:]:
        await asyncio.to_thread(process.wait_for, "ending")
        process.send_signal(number)
    ended, out, err = await asyncio.to_thread(process.end)
    assert await status_of(store) == "interrupted"
    assert (await RunHistory(store).summary("r")).lease_until is None  # it was given up, and not left behind
    assert "closed\n" in out
    assert "Exception ignored" not in err
    assert "Task was destroyed" not in err
    assert ended == code, err
    (tmp_path / "go on").touch()
    assert [*(await JOB.recover(store=store))] == ["r"]
    assert await status_of(store) == "finished"


# --- the processes ---


def _told_when_it_ends() -> None:
    """Print a line when the service asks its runs to halt."""
    interrupt = JOB.interrupt

    async def and_tell(*given: Any, **options: Any) -> None:
        await interrupt(*given, **options)
        print("ending", flush=True)

    JOB.interrupt = and_tell  # type: ignore[method-assign]


@asynccontextmanager
async def _opened(folder: str) -> AsyncGenerator[SQLiteRunStore]:
    store = SQLiteRunStore(Path(folder) / "runs.db")
    try:
        yield store
    finally:
        await store.aclose()
        print("closed", flush=True)


async def _serve(folder: str) -> None:
    async with _opened(folder) as store:
        await JOB.serve(every=EVERY, store=store, graceful_timeout=LEASE)


async def _serve_in_a_task(folder: str) -> None:
    async with _opened(folder) as store:
        serving = asyncio.create_task(JOB.serve(every=EVERY, store=store, graceful_timeout=LEASE))
        try:
            await asyncio.Event().wait()  # what the program does besides
        finally:
            serving.cancel()


async def _idle(folder: str) -> None:
    """Import everything, and serve when told to, so that the test measures the taking over."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, told.set)
    print("ready", flush=True)
    await told.wait()
    asyncio.get_running_loop().call_later(EVERY, lambda: print("serving", flush=True))
    await _serve(folder)


async def _wake_and_recover(folder: str) -> None:
    async with _opened(folder) as store, asyncio.TaskGroup() as tasks:
        tasks.create_task(JOB.recover_every(EVERY, store=store))
        tasks.create_task(JOB.wake_every(EVERY, store=store))


def _application(folder: str) -> Any:
    from starlette.applications import Starlette

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with _opened(folder) as store, Service(JOB, every=EVERY, store=store, graceful_timeout=0.1):
            yield

    return Starlette(lifespan=lifespan)


def _uvicorn(folder: str) -> None:
    import uvicorn

    uvicorn.run(_application(folder), port=0, log_level="critical")


async def _cancelled_uvicorn(folder: str) -> None:
    import uvicorn

    serving = asyncio.create_task(
        uvicorn.Server(uvicorn.Config(_application(folder), port=0, log_level="critical")).serve()
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, serving.cancel)
    await asyncio.wait([serving])


def _main(way: str, folder: str) -> None:
    _told_when_it_ends()
    coroutines = {
        "serve": _serve,
        "a task": _serve_in_a_task,
        "idle": _idle,
        "wake and recover": _wake_and_recover,
        "uvicorn, cancelled": _cancelled_uvicorn,
    }
    if way == "uvicorn":
        _uvicorn(folder)
    else:
        asyncio.run(coroutines[way](folder))


if __name__ == "__main__":
    _main(*sys.argv[1:])
