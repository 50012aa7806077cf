"""Resuming of runs that no process has: interrupted runs, and paused runs that are due."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Never

from typing_extensions import TypeVar

from fastroai.errors import RecordedError, RunInProgress, RunNotFound, RunStoreUnavailable
from fastroai.runs.openings import RunKeeper
from fastroai.runs.request import RunRequest
from fastroai.runs.signatures import DepsFor
from fastroai.runtime import Listener
from fastroai.store.headers import FoundHeader
from fastroai.store.history import RunSummary
from fastroai.tracing import Tracer

DepsT = TypeVar("DepsT", default=Any)
ResultT = TypeVar("ResultT", default=Any)

AT_ONCE: Final = 10
"""Number of runs that go on at the same time."""

logger = logging.getLogger("fastroai.runs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Waking(Generic[DepsT, ResultT]):
    """Finds runs of a pipeline or graph and takes them up."""

    keeper: RunKeeper
    find: Callable[[], Awaitable[Iterable[RunSummary]]]
    is_wanted: Callable[[FoundHeader], bool]
    """Function that says, by the header, whether a run that was found must still be taken up."""
    execute: Callable[[RunRequest[DepsT]], Awaitable[ResultT]]
    deps_for: DepsFor[DepsT] | None
    tracer: Tracer | None
    context: MutableMapping[str, Any] | None
    listener: Listener | None

    async def once(self) -> Mapping[str, ResultT | Exception]:
        """Take up the runs that are found now. Return their results or exceptions when all have ended."""
        outcomes, places = dict[str, ResultT | Exception](), asyncio.Semaphore(AT_ONCE)
        found = await self.find()  # not in the group, so that an error of the store is raised as it is
        async with asyncio.TaskGroup() as group:
            for run in found:
                group.create_task(self._go_on(run, places, outcomes))
        return outcomes

    async def every(self, seconds: float) -> Never:
        """Look for runs every `seconds`, without waiting for those that still go on. Never returns."""
        outcomes, places = dict[str, ResultT | Exception](), asyncio.Semaphore(AT_ONCE)
        going: dict[str, asyncio.Task[None]] = {}
        told: dict[str, str] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    for run in await self.find():
                        if run.run_id not in going:
                            task = group.create_task(self._go_on(run, places, outcomes))
                            going[run.run_id] = task
                except RunStoreUnavailable as error:
                    logger.warning("runs that are due could not be looked up: %s", error)
                await asyncio.sleep(seconds)
                for run_id in [run_id for run_id, task in going.items() if task.done()]:
                    del going[run_id]
                    outcome = outcomes.pop(run_id, None)
                    if not isinstance(outcome, Exception):
                        told.pop(run_id, None)
                    elif told.get(run_id) != (text := str(outcome)):  # the same text is logged once
                        told[run_id] = text
                        logger.warning("run %r has not gone on: %s", run_id, text)

    async def _go_on(
        self, run: RunSummary, places: asyncio.Semaphore, outcomes: dict[str, ResultT | Exception]
    ) -> None:
        async with places:
            try:
                opening = await self.keeper.take_up_if(run.run_id, self.is_wanted)
                if opening is None:
                    return
                deps = None if self.deps_for is None else self.deps_for(run)
                given: DepsT | None = await deps if inspect.isawaitable(deps) else deps
                request = RunRequest(None, given, self.tracer, self.context, self.listener)
                outcomes[run.run_id] = await self.execute(request.opened_by(opening))
            except (RunInProgress, RunNotFound) as error:
                if error.run_id != run.run_id:  # else another process has taken the run up or deleted it
                    outcomes[run.run_id] = error
            except Exception as error:
                outcomes[run.run_id] = error
            except (asyncio.CancelledError, KeyboardInterrupt):
                raise
            except BaseException as error:  # also SystemExit: a step must not end the other runs
                outcomes[run.run_id] = as_exception(error)


def as_exception(error: BaseException) -> RecordedError:
    """Return an `Exception` for an error that is none, as a value."""
    kind = type(error)
    told = RecordedError(f"{kind.__module__}.{kind.__qualname__}", f"{kind.__name__}: {error}")
    told.__cause__ = error
    return told
