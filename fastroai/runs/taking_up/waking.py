"""Taking up of runs that no process has: interrupted runs, and paused runs that are due."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Never, TypeAlias

from typing_extensions import TypeVar

from fastroai.errors import FlowStopped, RecordedError, RunInProgress, RunNotFound
from fastroai.runs.openings import RunKeeper
from fastroai.runs.request import RunRequest
from fastroai.runs.signatures import DepsFor, OnError
from fastroai.runtime.concurrency.tasks import end_task, end_tasks
from fastroai.runtime.events import Listener, OnEvent
from fastroai.runtime.options import check_count
from fastroai.store.reading.history import RunSummary
from fastroai.store.record.declarations import OnChanged, check_on_changed
from fastroai.store.record.headers import FoundHeader
from fastroai.store.run_store import RunStoreLike
from fastroai.tracing import Tracer

DepsT = TypeVar("DepsT", default=Any)
ResultT = TypeVar("ResultT", default=Any)

AT_ONCE: Final = 10
"""Number of runs that go on at the same time, unless the caller says otherwise."""

_Run: TypeAlias = tuple[str | None, str]
"""The name of the pipeline or graph, and the id of the run."""

logger = logging.getLogger("fastroai.runs")


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeUp(Generic[DepsT]):
    """What the caller says of the runs to be taken up."""

    deps_for: DepsFor[DepsT] | None = None
    store: RunStoreLike | None = None
    tracer: Tracer | None = None
    context: MutableMapping[str, Any] | None = None
    on_changed: OnChanged | None = None
    on_event: OnEvent | None = None
    on_error: OnError | None = None
    max_concurrency: int = AT_ONCE

    def __post_init__(self) -> None:
        check_count("max_concurrency", self.max_concurrency, least=1, required=True)
        if self.on_changed is not None:
            check_on_changed(self.on_changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waking(Generic[DepsT, ResultT]):
    """Finds runs of a pipeline or graph, and opens them."""

    keeper: RunKeeper
    find: Callable[[], Awaitable[Iterable[RunSummary]]]
    is_wanted: Callable[[FoundHeader], bool]
    """Function that says, by the header, whether a run that was found must still be taken up."""
    execute: Callable[[RunRequest[DepsT]], Awaitable[ResultT]]
    deps_for: DepsFor[DepsT] | None
    tracer: Tracer | None
    context: MutableMapping[str, Any] | None
    listener: Listener | None

    async def opened(self, run: RunSummary) -> RunRequest[DepsT] | None:
        """Return the request that goes on with a run; `None` if the run is taken, or not wanted any more."""
        opening = await self.keeper.take_up_if(run.run_id, self.is_wanted)
        if opening is None:
            return None
        deps = None if self.deps_for is None else self.deps_for(run)
        given: DepsT | None = await deps if inspect.isawaitable(deps) else deps
        request = RunRequest(None, given, self.tracer, self.context, self.listener)
        return replace(request.opened_by(opening), is_handed_over=True)

    async def once(self, max_concurrency: int) -> Mapping[str, ResultT | Exception]:
        """Take up the runs that are found now. Return their results or exceptions when all have ended."""
        outcomes, places = dict[str, ResultT | Exception](), asyncio.Semaphore(max_concurrency)
        found = await self.find()  # not in the group, so that an error of the store is raised as it is
        async with asyncio.TaskGroup() as group:
            for run in found:
                group.create_task(self._go_on(run, places, outcomes))
        return outcomes

    async def _go_on(
        self, run: RunSummary, places: asyncio.Semaphore, outcomes: dict[str, ResultT | Exception]
    ) -> None:
        async with places:
            try:
                if (request := await self.opened(run)) is not None:
                    outcomes[run.run_id] = await self.execute(request)
            except Exception as error:
                if not is_taken(run, error):
                    outcomes[run.run_id] = error
            except (asyncio.CancelledError, KeyboardInterrupt):
                raise
            except BaseException as error:  # also SystemExit: a step must not end the other runs
                outcomes[run.run_id] = as_exception(error)


class Lookout:
    """Looks for runs again and again, and goes on with those that it finds, some at a time.

    It never waits for a run before it looks again. An error ends the run that has it, and nothing else.
    """

    def __init__(self, wakings: Sequence[Waking[Any, Any]], how: TakeUp[Any]) -> None:
        self._wakings, self._on_error = wakings, how.on_error
        self._places = asyncio.Semaphore(how.max_concurrency)
        self._going: dict[_Run, asyncio.Task[None]] = {}
        """Runs that go on, or that wait for their turn."""
        self._told: dict[_Run, str] = {}
        """Errors that were reported, so that each is reported once."""
        self._unread = ""
        """The last error of the store, until it can be read again."""
        self._looking: asyncio.Task[Never] | None = None
        self._is_closing = False

    async def every(self, seconds: float) -> Never:
        """Look every `seconds`. If this is cancelled, the runs are cut off."""
        try:
            await self._keep_looking(seconds)
        finally:
            await self.cut_off()

    def start(self, seconds: float) -> None:
        """Look every `seconds`, in a task of its own, until `close` or `cut_off`."""
        self._looking = asyncio.create_task(self._keep_looking(seconds))

    async def close(self, interrupt: Callable[[], Awaitable[None]], timeout: float) -> None:
        """Look no more, let `interrupt` halt the runs, and wait for them.

        Runs that have not halted after `timeout` seconds, or when this is cancelled, are cut off.
        """
        try:
            await self._look_no_more()
            await interrupt()
            if self._going:
                await asyncio.wait(self._going.values(), timeout=timeout)
        finally:
            await self.cut_off()

    def cancel(self) -> None:
        """Cut off the runs that still go on, while `close` waits for them."""
        for task in self._going.values():
            task.cancel()

    async def cut_off(self) -> None:
        """Look no more, and cut off the runs that still go on. Another process goes on with them."""
        try:
            await self._look_no_more()
        finally:
            await end_tasks(self._going.values())

    async def _look_no_more(self) -> None:
        self._is_closing = True
        if self._looking is not None:
            await end_task(self._looking)

    # --- parts ---

    async def _keep_looking(self, seconds: float) -> Never:
        while True:
            await self._look()
            await asyncio.sleep(seconds)

    async def _look(self) -> None:
        found = set[_Run]()
        try:
            for waking in self._wakings:
                for run in await waking.find():
                    key = run.pipeline, run.run_id
                    found.add(key)
                    if key not in self._going:
                        self._begin(key, run, waking)
        except Exception as error:  # a store can be the user's, and raise anything
            if self._unread != (text := _text_of(error)):
                logger.warning("runs to continue could not be looked up: %s", text)
                self._unread = text
            return
        self._unread = ""
        for key in self._told.keys() - found - self._going.keys():
            del self._told[key]  # nobody looks for this run any more

    def _begin(self, key: _Run, run: RunSummary, waking: Waking[Any, Any]) -> None:
        task = self._going[key] = asyncio.create_task(self._go_on(key, run, waking))
        task.add_done_callback(lambda _: self._going.pop(key))

    async def _go_on(self, key: _Run, run: RunSummary, waking: Waking[Any, Any]) -> None:
        try:
            async with self._places:
                request = None if self._is_closing else await waking.opened(run)
                if request is not None and not self._is_closing:
                    await waking.execute(request)
                    self._told.pop(key, None)
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:  # also SystemExit: a step must not end the other runs of a service
            if not is_taken(run, error) and not isinstance(
                error, FlowStopped
            ):  # it waits again, or was stopped
                await self._report(key, run, error)

    async def _report(self, key: _Run, run: RunSummary, error: BaseException) -> None:
        if self._told.get(key) == (text := _text_of(error)):
            return
        self._told[key] = text
        logger.warning("run %r was not continued: %s", run.run_id, text)
        if self._on_error is not None:
            try:
                told = self._on_error(run, error)
                if inspect.isawaitable(told):
                    await told
            except Exception:
                logger.exception("on_error failed on run %r; no run is affected", run.run_id)


def is_taken(run: RunSummary, error: BaseException) -> bool:
    """Return whether an error says that another process has taken the run up, or deleted it."""
    return isinstance(error, RunInProgress | RunNotFound) and error.run_id == run.run_id


def _text_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def as_exception(error: BaseException) -> RecordedError:
    """Return an `Exception` for an error that is none, as a value."""
    kind = type(error)
    told = RecordedError(f"{kind.__module__}.{kind.__qualname__}", f"{kind.__name__}: {error}")
    told.__cause__ = error
    return told
