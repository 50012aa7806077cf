"""Signals to a run in any process: to pause, to interrupt, to cancel. A store keeps them beside the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, Literal, TypeAlias, get_args

from fastroai.errors import RevisionConflict
from fastroai.store.entries import RunHeader
from fastroai.store.headers import signal_key
from fastroai.store.run_store import RunStore

Signal: TypeAlias = Literal["pause", "interrupt", "cancel"]
"""A signal to a run."""

EVERY: Final = 0.5
"""Seconds between two looks for signals."""

logger = logging.getLogger("fastroai.store")


async def send_signal(store: RunStore, header: RunHeader, signal: Signal) -> None:
    """Leave a signal for the process that runs the run. A later signal replaces it."""
    key = signal_key(header)
    while True:
        found = await store.read(key)
        try:
            await store.compare_and_set(key, signal.encode(), revision=found.revision)
        except RevisionConflict:
            continue
        return


async def last_signal(store: RunStore, header: RunHeader) -> int:
    """Return the revision of the last signal to a run; 0 if there was none."""
    return (await store.read(signal_key(header))).revision


@asynccontextmanager
async def heeding_signals(
    store: RunStore, header: RunHeader, heed: Callable[[Signal], None], *, after: int = 0
) -> AsyncGenerator[None]:
    """Call `heed` once with each signal to a run, except for those up to revision `after`."""
    # Imported here, because the command line deletes signals, and does not load all of the runtime for it.
    from fastroai.runtime.tasks import end_task

    watch = _Watch(store, header, heed, after)
    watcher = asyncio.get_running_loop().create_task(watch.run())
    try:
        yield
    finally:
        await end_task(watcher)
        if watch.revision:
            with suppress(Exception):  # it may stay: the process that resumes the run knows that it is old
                await store.delete(signal_key(header))


class _Watch:
    """Looks for signals to a run."""

    def __init__(
        self, store: RunStore, header: RunHeader, heed: Callable[[Signal], None], after: int
    ) -> None:
        self._store, self._run_id, self._key, self._heed = store, header.run_id, signal_key(header), heed
        self.revision = after
        """Revision of the last signal that is known."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            try:
                found = await self._store.read(self._key, after=self.revision)
            except Exception as error:  # a store can be the user's, and raise anything
                logger.warning("run %r: what is asked of it could not be read: %s", self._run_id, error)
                continue
            if found.values:
                self.revision = found.revision
                self._take_in(found.values[-1].decode(errors="replace"))

    def _take_in(self, word: str) -> None:
        for signal in get_args(Signal):
            if signal == word:
                self._heed(signal)
