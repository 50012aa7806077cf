"""Signals to a run in any process: to pause, to interrupt, to cancel. A store keeps them beside the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from fastroai.errors import RevisionConflict
from fastroai.forks import in_forked_process
from fastroai.store.record.entries import RunHeader
from fastroai.store.record.headers import SIGNALS, keys_with, signal_key
from fastroai.store.run_store import RunStore, StoredKey

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
        with suppress(RevisionConflict):
            return await store.compare_and_set(key, signal.encode(), revision=found.revision)


async def last_signal(store: RunStore, header: RunHeader) -> int:
    """Return the revision of the last signal to a run; 0 if there was none."""
    return (await store.read(signal_key(header))).revision


@asynccontextmanager
async def heeding_signals(
    store: RunStore, header: RunHeader, heed: Callable[[Signal], None], *, after: int = 0
) -> AsyncGenerator[None]:
    """Call `heed` once with each signal to a run, except for those up to revision `after`."""
    key, heeded = signal_key(header), _Heeded(heed, after)
    watch = _Watch.of(store)
    watch.runs.setdefault(key, []).append(heeded)
    try:
        yield
    finally:
        watch.runs[key].remove(heeded)
        if not watch.runs[key]:
            del watch.runs[key]
        if not watch.runs:
            await watch.end()
        if heeded.revision:
            with suppress(Exception):  # it may stay: the process that resumes the run knows that it is old
                await store.delete(key)


@dataclass(slots=True, eq=False)
class _Heeded:
    """A run whose signals are heeded."""

    heed: Callable[[Signal], None]
    revision: int
    """Revision of the last signal that is known."""

    def take_in(self, found: StoredKey) -> None:
        if found.revision <= self.revision:
            return
        self.revision = found.revision
        for signal in get_args(Signal):
            if signal.encode() == found.value:
                self.heed(signal)


class _Watch:
    """Looks for signals to all runs of a store that one event loop has: however many, one look for all."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self.runs: dict[str, list[_Heeded]] = {}
        """The runs, by the keys of their signals. A run that was taken over here is there twice."""
        # Of no context: what a run keeps in its own would stay as long as any run of the store goes on.
        self._task = asyncio.get_running_loop().create_task(_look(store, self.runs), context=Context())
        self._task.add_done_callback(lambda _: self._leave())

    @classmethod
    def of(cls, store: RunStore) -> _Watch:
        """Return the watch of a store on the running loop."""
        key = id(store), asyncio.get_running_loop()
        if key not in _watches:
            _watches[key] = cls(store)
        return _watches[key]

    def _leave(self) -> None:
        """Let the next run of the store have a watch of its own, if it has none yet."""
        key = id(self._store), asyncio.get_running_loop()
        if _watches.get(key) is self:
            del _watches[key]

    async def end(self) -> None:
        """End with the last run."""
        # Imported here: the command line deletes signals, and does not load all of the runtime for it.
        from fastroai.runtime.concurrency.tasks import end_task

        self._leave()
        await end_task(self._task)


async def _look(store: RunStore, runs: Mapping[str, Sequence[_Heeded]]) -> None:
    # No method: the exception of a cancelled task refers to this frame, and the watch to the task.
    while True:
        await asyncio.sleep(EVERY)
        try:
            async for found in keys_with(store, SIGNALS):
                for heeded in runs.get(found.key, ()):
                    heeded.take_in(found)
        except Exception as error:  # a store can be the user's, and raise anything
            logger.warning("signals to runs could not be read: %s", error)


_watches: Final[dict[tuple[int, asyncio.AbstractEventLoop], _Watch]] = {}
"""The watch of each store on each event loop on which runs of it are open."""
in_forked_process(_watches.clear)
