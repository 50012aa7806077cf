"""What somebody asks of a run that is running in whatever process: a word, left beside its log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, Literal, TypeAlias, get_args

from fastroai.errors import RevisionConflict
from fastroai.runtime.tasks import end_task
from fastroai.store.run_store import RunStore

Signal: TypeAlias = Literal["pause", "cancel"]
"""What can be asked of a run."""

EVERY: Final = 0.5
"""Seconds between two looks at what is asked."""

logger = logging.getLogger("fastroai.store")


def signal_key(run_id: str) -> str:
    """Where it is left."""
    return f"signal:{run_id}"


async def send_signal(store: RunStore, run_id: str, signal: Signal) -> None:
    """Leave it for the process that runs the run; a later one takes its place."""
    key = signal_key(run_id)
    while True:
        found = await store.read(key)
        try:
            await store.compare_and_set(key, signal.encode(), revision=found.revision)
        except RevisionConflict:
            continue
        return


@asynccontextmanager
async def heeding_signals(
    store: RunStore, run_id: str, heed: Callable[[Signal], None]
) -> AsyncGenerator[None]:
    """Call `heed` with what is asked of a run from now on; what was asked of it before is forgotten."""
    await _forget(store, run_id)
    watcher = asyncio.get_running_loop().create_task(_watch(store, run_id, heed))
    try:
        yield
    finally:
        await end_task(watcher)
        if watcher.cancelled() is False:
            with suppress(Exception):  # it was heeded; nobody minds if it stays, the next run forgets it
                await _forget(store, run_id)


async def _watch(store: RunStore, run_id: str, heed: Callable[[Signal], None]) -> None:
    while True:
        await asyncio.sleep(EVERY)
        try:
            found = (await store.read(signal_key(run_id))).values
        except Exception as error:  # a store can be the user's, and raise anything
            logger.warning("run %r: what is asked of it could not be read: %s", run_id, error)
            continue
        signal = found[-1].decode(errors="replace") if found else None
        if signal in get_args(Signal):
            heed("pause" if signal == "pause" else "cancel")
            if signal == "cancel":
                return


async def _forget(store: RunStore, run_id: str) -> None:
    if (await store.read(signal_key(run_id))).values:
        await store.delete(signal_key(run_id))
