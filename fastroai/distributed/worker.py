"""A worker: one process that carries runs of an application, until it is told to end."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from inspect import isawaitable
from types import TracebackType
from typing import Any, Final, Never, Self

from fastroai.distributed.engine import (
    Engine,
    EngineClient,
    Fire,
    QueueOptions,
    Schedule,
    StretchFailed,
    upgrade,
)
from fastroai.distributed.reconciling import Reconciler
from fastroai.distributed.registered import CarriedRun, Registered
from fastroai.distributed.roster import (
    Roster,
    WorkerRecord,
    publish,
    published,
    read_roster,
    sign_off,
    sign_on,
)
from fastroai.distributed.stretches import is_mine
from fastroai.errors import (
    ConfigurationError,
    FastroAIError,
    RevisionConflict,
    RunDefinitionChanged,
    RunInProgress,
    RunNotFound,
    RunStatusConflict,
)
from fastroai.runs.request import RunRequest
from fastroai.runs.taking_up.termination import catching_termination, end_by
from fastroai.runtime.concurrency.tasks import end_tasks
from fastroai.runtime.events import OnEvent, both, listener_of
from fastroai.runtime.owner import process_owner
from fastroai.store.partial_text import PartialTextWriter
from fastroai.store.reading.index import store_time
from fastroai.store.record.definitions import fingerprint
from fastroai.store.record.headers import UNREADABLE, FoundHeader, read_header
from fastroai.store.record.payloads import seal_text
from fastroai.store.record.runs import change_header
from fastroai.store.run_store import RunStore

_SIGNS: Final = 3
"""Times that a worker says that it lives, within the time after which it counts as dead."""
_REMEMBERED: Final = 10_000
"""Most runs that a worker remembers as not carried by its code."""
_CLOCK_OFF: Final = 5.0
"""Most seconds between the clock of a worker and that of its store about which nothing is said."""
_LAST_ROWS: Final = 5
"""Most seconds for which an ending worker lets the engine write which stretches are over."""

logger: Final = logging.getLogger("fastroai.distributed")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTerms:
    """How a worker works."""

    queues: Sequence[str]
    declared: Mapping[str, QueueOptions]
    """Queues that the worker makes, or changes, when it begins."""
    schedules: Sequence[Schedule]
    """The same of cron schedules."""
    version: str
    every: float
    """Seconds between two looks for runs that need a stretch."""
    lease: float
    """Seconds after which the worker counts as dead, if it has not said that it lives."""
    grace: float
    """Seconds for which steps that are running may finish at the end."""
    most_deaths: int


class Worker:
    """Carries runs while it is open: `async with app.worker(): ...`."""

    def __init__(
        self,
        store: RunStore,
        engine: EngineClient,
        doors: Mapping[str, Registered],
        terms: WorkerTerms,
        fire: Fire,
        on_event: OnEvent | None,
    ) -> None:
        """Called by `Distributed.worker`."""
        self._store, self._engine, self._doors, self._terms = store, engine, doors, terms
        self._fire, self._on_event = fire, on_event
        executor = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._rows = Engine(engine.url, engine.app, executor=executor, version=terms.version)
        self._knows = {name: fingerprint(one.door.keeper_of(store).definition) for name, one in doors.items()}
        self._carried: dict[str, asyncio.Task[None]] = {}
        """The stretches that go on here, by id."""
        self._run_ids: dict[str, tuple[str, str]] = {}
        """The name of the pipeline and the id of the run, for each of them."""
        self._not_ours: dict[tuple[str, int], None] = {}
        """Runs, by epoch and revision of the header, that the code of this worker cannot carry."""
        self._beside: list[asyncio.Task[Any]] = []
        self._texts: dict[str, PartialTextWriter] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_ending = False

    @property
    def executor(self) -> str:
        """The id of this worker, which no other one has."""
        return self._rows.executor

    @property
    def is_open(self) -> bool:
        """Whether it takes stretches of runs."""
        return bool(self._beside) and not self._is_ending

    @property
    def running(self) -> int:
        """The number of runs that it carries now."""
        return len(self._carried)

    async def check_ready(self) -> None:
        """Check that it takes stretches, and reaches its store and its queues.

        Raises:
            RunStoreUnavailable: it does not reach one of them.
            RunStatusConflict: it has not begun, or is ending.
        """
        if not self.is_open:
            raise RunStatusConflict(self.executor, "ending", "a worker that takes runs")
        await store_time(self._store)
        await self._engine.rows([self.executor])

    # --- from its beginning to its end ---

    async def serve(self) -> Never:
        """Carry runs until the process is told to end, by SIGINT (Ctrl-C) or SIGTERM, and hand them over.

        Then the program ends as usual. A second signal cuts off the steps that are still running.
        """
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def heed(number: int) -> None:
            if not told.done():
                told.set_result(number)
            else:
                for task in self._carried.values():
                    task.cancel()

        with catching_termination(heed):
            async with self:
                number = await told
        await end_by(number)

    async def __aenter__(self) -> Self:
        """Begin to take stretches of runs."""
        await asyncio.to_thread(self._rows.join)
        await self._check_others()
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(upgrade, self._engine.url)
        for name, options in self._terms.declared.items():
            await self._engine.declare(name, options)
        for one in self._doors.values():
            await publish(self._store, self._engine.app, one.known(self._store))
        await self._sign_on()
        self._texts = {
            name: PartialTextWriter(self._store, one.door.config.codec) for name, one in self._doors.items()
        }
        try:
            await asyncio.to_thread(
                self._rows.launch,
                self._carry,
                self._start_scheduled,
                self._terms.queues,
                self._terms.schedules,
            )
        except BaseException:
            self._loop = None
            await sign_off(self._store, self._engine.app, self.executor)
            raise
        reconciler = Reconciler(
            self._store,
            self._engine,
            executor=self.executor,
            most_deaths=self._terms.most_deaths,
            is_carried=self._carried.__contains__,
            adopts=self._adopts,
            sweep_firings=self._sweep_firings,
        )
        self._beside = [
            asyncio.create_task(self._live_on()),
            asyncio.create_task(reconciler.keep_looking(self._terms.every)),
            *(asyncio.create_task(texts.write()) for texts in self._texts.values()),
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Take no more stretches, let steps finish within the grace period, and hand over the runs."""
        self._is_ending, seconds = True, _LAST_ROWS if self._carried else 0
        try:
            await end_tasks(self._beside[:2])
            with suppress(FastroAIError):  # then the others wait until it counts as dead
                await sign_off(self._store, self._engine.app, self.executor)
            if not isinstance(error, asyncio.CancelledError):
                await self._halt()
        finally:
            await end_tasks([*self._carried.values()])
            await end_tasks(self._beside)
            await asyncio.to_thread(self._rows.destroy, seconds)
            self._loop = None

    async def _halt(self) -> None:
        """Let the steps that are running finish, and wait for them."""
        for name, run_id in self._run_ids.values():
            with suppress(FastroAIError):  # it has ended, or goes on elsewhere
                await self._doors[name].door.interrupt(run_id, store=self._store)
        if self._carried:
            await asyncio.wait([*self._carried.values()], timeout=self._terms.grace)

    async def _live_on(self) -> Never:
        while True:
            await asyncio.sleep(self._terms.lease / _SIGNS)
            try:
                await self._sign_on()
            except FastroAIError as error:
                logger.warning("worker %s could not report that it is running: %s", self.executor, error)

    async def _sign_on(self) -> None:
        now = await store_time(self._store)
        record = WorkerRecord(
            executor=self.executor,
            owner=process_owner(),
            version=self._rows.version,
            queues=tuple(self._terms.queues),
            knows=self._knows,
            since=now,
            until=now + timedelta(seconds=self._terms.lease),
        )
        await sign_on(self._store, self._engine.app, record)

    async def _check_others(self) -> None:
        """Compare this worker with the others, and its clock with that of the store.

        Raises:
            ConfigurationError: living workers of its version have other definitions. The engine would give
                them the runs of each other.
        """
        before = datetime.now(UTC)
        now = await store_time(self._store)
        ahead = ((before - now) / 2 + (datetime.now(UTC) - now) / 2).total_seconds()
        if abs(ahead) > _CLOCK_OFF:
            way = "ahead of" if ahead > 0 else "behind"
            logger.warning(
                "the clock of this machine is %.1f seconds %s that of the store. Leases go by the store, but "
                "delays and schedules go by this clock: set it right",
                abs(ahead),
                way,
            )
        for other in (await read_roster(self._store, self._engine.app)).workers:
            if other.version == self._rows.version and other.knows != self._knows:
                expected = (
                    "a different version: running workers of this one have other definitions. Leave version= "
                    "out, or give each code its own (application_version, if the program launches DBOS)"
                )
                raise ConfigurationError("version", self._rows.version, expected)

    # --- schedules ---

    async def _start_scheduled(self, says: str, at: datetime) -> None:
        """Start the run of a schedule, until the store has it. The engine calls it on its own event loop."""
        loop = self._loop
        if loop is not None and not self._is_ending:
            starting = self._fire(says, at)
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(starting, loop))

    async def _sweep_firings(self, roster: Roster) -> None:
        """Start the runs of schedules whose workers have died, or whose version nobody has."""
        for one in await asyncio.to_thread(self._rows.firings):
            is_known = any(worker.version == one.version for worker in roster.workers)
            if not (is_known if one.executor is None else roster.is_living(one.executor)):
                await self._fire(one.says, one.at)
                await self._engine.cancel([one.id])

    # --- stretches ---

    async def _carry(self, run_id: str, epoch: str, number: int) -> None:
        """Carry a run for a stretch, on the event loop of the worker. The engine calls it on its own."""
        loop = self._loop
        if loop is None or self._is_ending:
            return  # the run gets another stretch
        # In a context of its own, in which no workflow of the engine is current: otherwise the engine would
        # keep results of steps by their positions.
        stretch = self._stretch(run_id, epoch, number)
        carried = contextvars.Context().run(asyncio.run_coroutine_threadsafe, stretch, loop)
        try:
            await asyncio.shield(asyncio.wrap_future(carried))
        except asyncio.CancelledError:
            if not carried.cancelled():  # else it has handed its run over
                raise

    async def _stretch(self, run_id: str, epoch: str, number: int) -> None:
        """Carry a run until it ends or waits. Do nothing if another process has it."""
        stretch, task = f"{run_id}:{epoch}:{number}", asyncio.current_task()
        assert task is not None
        self._carried[stretch] = task
        try:
            await self._go_on(run_id, epoch, number, stretch)
        except (RunInProgress, RunNotFound) as error:
            if error.run_id != run_id:
                raise
        except FastroAIError as error:
            logger.warning("run %r could not be resumed: %s: %s", run_id, type(error).__name__, error)
            raise StretchFailed.of(error) from error
        finally:
            self._carried.pop(stretch, None)
            self._run_ids.pop(stretch, None)

    async def _go_on(self, run_id: str, epoch: str, number: int, stretch: str) -> None:
        def is_wanted(found: FoundHeader) -> bool:
            return is_mine(found, self._engine.app, epoch, number)

        found = await read_header(self._store, run_id)
        if not is_wanted(found) or self._is_ending:
            return
        name = found.header.pipeline
        registered = self._doors.get(name)
        if registered is None:
            known = ", ".join(map(repr, sorted(self._doors)))
            raise ConfigurationError("pipeline", name, f"a name that this worker has registered: {known}")
        try:
            opening = await registered.door.keeper_of(self._store).take_up_if(run_id, is_wanted)
            if opening is None:
                return
            header = found.header
            deps = None
            if registered.deps_factory is not None:
                carried = CarriedRun(
                    run_id=run_id,
                    pipeline=name,
                    tenant=header.tenant,
                    tags=header.tags,
                    inputs=opening.inputs,
                )
                made = registered.deps_factory(carried)
                deps = await made if isawaitable(made) else made
            listener = both(listener_of(self._texts[name].add), listener_of(self._on_event))
            request: RunRequest[Any] = RunRequest(None, deps, listener=listener)
            if self._is_ending:
                return
            self._run_ids[stretch] = name, run_id
            await registered.door.carry_out(replace(request.opened_by(opening), is_handed_over=True))
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:  # also SystemExit: a step must not end the other runs of a worker
            if isinstance(error, RunInProgress) and error.run_id == run_id:
                return  # another worker was faster; if it has died meanwhile, the run gets another stretch
            if await self._is_not_taken_up(run_id, is_wanted, error, registered):
                raise StretchFailed.of(error) from error
            if not isinstance(error, FastroAIError):
                logger.warning("run %r has stopped: %s: %s", run_id, type(error).__name__, error)

    async def _is_not_taken_up(
        self, run_id: str, is_wanted: Callable[[FoundHeader], bool], error: BaseException, of: Registered
    ) -> bool:
        """Return whether an error came before the run was taken up; then put it on record for people."""
        try:
            found = await read_header(self._store, run_id)
            if not is_wanted(found):
                return False  # it is on record how the run has stopped, or another process has it
            routing = found.header.routing
            assert routing is not None
            failure = f"{type(error).__name__}: {seal_text(str(error), of.door.config.codec)}"
            logger.warning("run %r could not be resumed: %s: %s", run_id, type(error).__name__, error)
            with suppress(RevisionConflict):
                told = replace(found.header, routing=replace(routing, failure=failure))
                await change_header(self._store, found, told)
        except RunNotFound:
            return False
        except FastroAIError as unread:
            logger.warning("run %r: its progress is unknown: %s", run_id, unread)
        return True

    async def _adopts(self, found: FoundHeader) -> str | None:
        """Return the version of the code of this worker if it can carry a run that has another definition.

        It can if the run has not reached what has changed. A run of rows asks changed rows anew, so older
        code leaves it to newer code, which would ask, and pay for, every row once more.
        """
        header = found.header
        registered, key = self._doors.get(header.pipeline), (header.epoch, found.revision)
        routing = header.routing
        if registered is None or routing is None or routing.queue not in self._terms.queues:
            return None
        if key in self._not_ours or (header.rows is not None and not await self._is_newest(header.pipeline)):
            return None
        keeper = registered.door.keeper_of(self._store)
        try:
            recorded, _ = await keeper.read(header.run_id, running_too=True)
            keeper.check_definition(recorded, recorded.entries)
        except (RunDefinitionChanged, *UNREADABLE) as error:
            logger.warning("run %r waits for a worker that has its definition: %s", header.run_id, error)
            if len(self._not_ours) >= _REMEMBERED:
                self._not_ours.pop(next(iter(self._not_ours)))
            self._not_ours[key] = None
            return None
        return self._rows.version

    async def _is_newest(self, name: str) -> bool:
        """Return whether no worker has begun after this one that has another definition of this name."""
        known = await published(self._store, self._engine.app, name)
        return known is not None and fingerprint(known.definition) == self._knows[name]
