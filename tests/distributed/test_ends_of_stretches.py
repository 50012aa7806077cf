"""A message that comes at any moment of a stretch, and above all at its end, is never missed."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from support.patience import PATIENCE

from fastroai import Pipeline, StepContext, send_message, step
from fastroai.distributed import Distributed, QueueOptions, RunHandle
from fastroai.distributed.worker import Worker

FAST: Any = {"every": 0.02, "graceful_timeout": 1.0}


class Interrupted:
    """A store that does something before or after one of the operations on a run."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.run_id, self.at, self.act = "-", -1, None
        self.operations = 0

    def watch(self, run_id: str, at: int, act: Callable[[], Awaitable[object]] | None) -> None:
        """Count the operations on a run; do something before number `at // 2`, or after it if `at` is odd."""
        self.run_id, self.at, self.act, self.operations = run_id, at, act, 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def operation(*args: Any, **options: Any) -> Any:
            if self.run_id not in repr(args):
                return await found(*args, **options)
            number, self.operations = self.operations, self.operations + 1
            if self.act is not None and self.at == 2 * number:
                await self.act()
            result = await found(*args, **options)
            if self.act is not None and self.at == 2 * number + 1:
                await self.act()
            return result

        return operation


@step
async def receives(ctx: StepContext[None]) -> str:
    return str(await ctx.receive("go"))


@pytest.fixture
async def app(tmp_path: Path, name: str) -> Any:
    async with Distributed(str(tmp_path / "runs.db"), name=name) as app, asyncio.timeout(PATIENCE):
        app.register(Pipeline("receiving", {"receives": receives}))
        app.register_queue("default", QueueOptions(polling_interval_sec=0.02))
        yield app


async def _received(handle: RunHandle[Any]) -> object:
    """Return what the run has received. Until it goes on, it is paused."""
    while (state := await handle.wait()).status == "paused":
        await asyncio.sleep(0.01)
    return state.outputs["receives"]


@pytest.mark.slow
async def test_a_message_at_each_operation_of_a_stretch_is_received(app: Distributed) -> None:
    real = app.store
    app.store = store = Interrupted(real)
    async with app.worker(**FAST):
        store.watch("alone", -1, None)
        handle = await app.start("receiving", run_id="alone")
        await handle.wait()
        count = store.operations
        assert count > 10
        for at in range(2 * count):
            run_id = f"at-{at}"

            async def send(run_id: str = run_id) -> None:
                try:
                    await send_message(run_id, "go", at, store=real)  # noqa: B023
                except LookupError:  # it is not on record yet
                    store.at += 1

            store.watch(run_id, at, send)
            handle = await app.start("receiving", run_id=run_id)
            assert await _received(handle) == str(at)
        await send_message("alone", "go", "late", store=real)
        assert await _received(app.handle("alone")) == "late"


async def test_a_message_between_a_run_and_the_outcome_of_its_stretch_is_received(
    app: Distributed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run waits on record, and its stretch still counts as running."""
    carry = Worker._stretch  # pyright: ignore[reportPrivateUsage]
    was_sent = asyncio.Event()

    async def carry_and_send(self: Worker, run_id: str, epoch: str, number: int) -> None:
        await carry(self, run_id, epoch, number)
        if not was_sent.is_set():
            was_sent.set()
            await send_message("one", "go", "now", store=app.store)

    monkeypatch.setattr(Worker, "_stretch", carry_and_send)
    async with app.worker(**FAST):
        handle = await app.start("receiving", run_id="one")
        assert await _received(handle) == "now"
    assert was_sent.is_set()
