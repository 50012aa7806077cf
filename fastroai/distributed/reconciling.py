"""Looks for runs that need a stretch, and gives them one, in every worker."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final, TypeAlias

from fastroai.distributed.engine import AT_ONCE, EngineClient, Row, stretch_id
from fastroai.distributed.roster import Roster, read_roster
from fastroai.distributed.stretches import (
    delay_of,
    died_with,
    is_due,
    next_of,
    renewed,
)
from fastroai.errors import FastroAIError, RevisionConflict, RunNotFound
from fastroai.runtime.fact_base import Ends
from fastroai.runtime.owner import steady_seconds
from fastroai.store.reading.index import find_runs, store_time
from fastroai.store.reading.run_queries import Place, RunQuery
from fastroai.store.record.entries import RunState
from fastroai.store.record.headers import UNREADABLE, FoundHeader, decode_header, read_header, read_log
from fastroai.store.record.runs import change_header
from fastroai.store.run_store import RunStore

_UNENDED: Final = RunQuery(status="interrupted", sort="updated", ascending=True)
"""Runs that have begun or are queued, and have not ended, those first that have shown no life for longest."""
_MICROSECOND: Final = timedelta(microseconds=1)
_UNHEARD: Final = 15.0
"""Seconds after which a stretch counts as lost that a worker has begun and knows nothing of."""
_SWEEP: Final = 10
"""Looks between two sweeps over the stretches of workers that have died."""
_FORGET: Final = 1000
"""Looks between two deletions of the rows of stretches that are over, which nothing reads."""
_KEPT: Final = timedelta(days=1)
"""Time for which such rows are kept, for people."""


logger: Final = logging.getLogger("fastroai.distributed")


Adopts: TypeAlias = Callable[[FoundHeader], Awaitable[str | None]]
"""Function that returns a version of the code that can carry a run whose definition no worker knows."""


async def go_on(
    store: RunStore,
    engine: EngineClient,
    found: FoundHeader,
    row: Row | None,
    roster: Roster,
    *,
    most_deaths: int,
    adopts: Adopts | None = None,
    lost: frozenset[str] = frozenset(),
) -> None:
    """Give a run that is due the stretch that it needs, if a worker can carry it.

    A run is set aside when so many workers in a row have died with it. `adopts` is asked where no worker
    knows its definition.
    """
    needs = next_of(found, row, roster, lost)
    if needs.fate == "has one":
        return
    version = needs.version or (None if adopts is None else await adopts(found))
    if version is None:
        return  # nobody knows the run: it waits
    header = found.header
    if needs.fate == "renew":
        assert row is not None
        done = await _done(store, found) if died_with(found) else None
        header = renewed(found, row, done, most_deaths)
        try:
            await change_header(store, found, header)
        except RevisionConflict:
            return  # it goes on, or another worker was faster
        await engine.cancel([row.id])  # so that it keeps no place in its queue
        if header.routing is not None and header.routing.is_set_aside:
            logger.error(
                "run %r is set aside: %d workers in a row died while they ran it",
                header.run_id,
                header.routing.deaths,
            )
            return
    await engine.enqueue(header, version, delay_of(found, header))


async def _done(store: RunStore, found: FoundHeader) -> int:
    """Return how much a run has finished, in a number that only grows; 0 if its log cannot be read."""
    try:
        return sum(isinstance(fact, Ends) for fact in await read_log(store, found.header))
    except UNREADABLE:
        return 0


class Reconciler:
    """Looks for runs that need a stretch, a page at a time, until it is cancelled."""

    def __init__(
        self,
        store: RunStore,
        engine: EngineClient,
        *,
        executor: str,
        most_deaths: int,
        is_carried: Callable[[str], bool],
        adopts: Adopts,
        sweep_firings: Callable[[Roster], Awaitable[None]],
    ) -> None:
        """Prepare it for a worker.

        `is_carried` says whether the worker carries a stretch now. `sweep_firings` starts runs of schedules
        that nobody starts.
        """
        self._store, self._engine = store, engine
        self._executor, self._most_deaths = executor, most_deaths
        self._is_carried, self._adopts, self._sweep_firings = is_carried, adopts, sweep_firings
        self._after: dict[RunState | None, Place | None] = {}
        """Where the next page of a query begins, by the status of its runs."""
        self._unheard: dict[str, float] = {}
        """Stretches that this worker has begun and knows nothing of, and since when."""
        self._looks = 0
        self._failure = ""

    async def keep_looking(self, seconds: float) -> None:
        """Look every `seconds` or so, until the task is cancelled. An error is logged once."""
        while True:
            await asyncio.sleep(seconds * random.uniform(0.8, 1.2))
            try:
                await self.look()
                self._failure = ""
            except FastroAIError as error:
                if self._failure != (text := str(error)):
                    logger.warning("runs to continue could not be looked up: %s", text)
                    self._failure = text

    async def look(self) -> None:
        """Look once: at the runs that are due, and at a page of those that have not ended."""
        self._looks += 1
        found = [*await self._due(), *await self._mine(_UNENDED)]
        if found or self._looks % _SWEEP == 0:
            roster = await read_roster(self._store, self._engine.app)
            if self._looks % _SWEEP == 0:
                await self.sweep(roster)
                await self._sweep_firings(roster)
            if self._looks % _FORGET == 0:
                await self._engine.forget(await store_time(self._store) - _KEPT)
            await self._go_on_with(found, roster)

    async def _due(self) -> Sequence[FoundHeader]:
        until = await store_time(self._store) + _MICROSECOND
        query = RunQuery(status="paused", due_until=until, sort="updated", ascending=True)
        return await self._mine(query)

    async def _mine(self, query: RunQuery) -> Sequence[FoundHeader]:
        """Return the runs on the next page that are due, and that this application carries."""
        found = await find_runs(self._store, query, after=self._after.get(query.status), limit=AT_ONCE)
        self._after[query.status] = found.runs[-1].place if len(found.runs) == AT_ONCE else None
        mine = list[FoundHeader]()
        for one in found.runs:
            with suppress(*UNREADABLE):
                header = decode_header(one.place.run_id, one.value)
                run = FoundHeader(header=header, revision=one.revision, now=found.now)
                if is_due(run, self._engine.app):
                    mine.append(run)
        return mine

    async def _go_on_with(self, due: Sequence[FoundHeader], roster: Roster) -> None:
        rows = await self._engine.rows([stretch_id(found.header) for found in due])
        lost = self._lost(rows)
        for found in due:
            with suppress(RunNotFound):  # it was deleted meanwhile
                await go_on(
                    self._store,
                    self._engine,
                    found,
                    rows.get(stretch_id(found.header)),
                    roster,
                    most_deaths=self._most_deaths,
                    adopts=self._adopts,
                    lost=lost,
                )

    def _lost(self, rows: Mapping[str, Row]) -> frozenset[str]:
        """Return the stretches that this worker has begun by their rows, and knows nothing of."""
        unheard = {
            row.id
            for row in rows.values()
            if row.state == "running" and row.executor == self._executor and not self._is_carried(row.id)
        }
        now = steady_seconds()
        self._unheard = {one: self._unheard.get(one, now) for one in unheard}
        return frozenset(one for one, since in self._unheard.items() if now - since > _UNHEARD)

    async def sweep(self, roster: Roster) -> None:
        """Take the stretches of dead workers out of their queues. Their runs have others, or need none."""
        offset = 0
        while page := await self._engine.running(offset):
            if dead := [row.id for row in page if not roster.is_living(row.executor)]:
                await self._engine.cancel(dead)
            offset += len(page) - len(dead)


async def go_on_soon(store: RunStore, engine: EngineClient, run_id: str) -> None:
    """Let a worker continue a run at once, if it is due. If this fails, a worker does it at its next look.

    Runs whose workers have died are left to the others, which count that.
    """
    try:
        found = await read_header(store, run_id)
        if is_due(found, engine.app) and not died_with(found):
            rows = await engine.rows([stretch_id(found.header)])
            roster = await read_roster(store, engine.app)
            await go_on(store, engine, found, rows.get(stretch_id(found.header)), roster, most_deaths=1)
    except FastroAIError as error:
        logger.warning(
            "run %r: no worker could be notified, so it continues when one polls next: %s", run_id, error
        )


async def begin_soon(store: RunStore, engine: EngineClient, found: FoundHeader, roster: Roster) -> None:
    """Give a new run its first stretch. If this fails, a worker does it at its next look."""
    try:
        await go_on(store, engine, found, None, roster, most_deaths=1)
    except FastroAIError as error:
        logger.warning("run %r begins when a worker polls next: %s", found.header.run_id, error)
