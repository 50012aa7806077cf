"""`Distributed`: an application whose runs are carried by any number of workers, on DBOS."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, cast, overload

from pydantic import JsonValue, TypeAdapter
from typing_extensions import TypeVar, Unpack

from fastroai.distributed.client import Client, as_json, check_partition, check_priority
from fastroai.distributed.connection import check_name
from fastroai.distributed.engine import QueueOptions, Schedule, check_schedule
from fastroai.distributed.handle import RunHandle
from fastroai.distributed.options import DEFAULT, DEFAULTS, MapOptions, PlaceOptions, StartOptions
from fastroai.distributed.registered import CarriedRun, Registered
from fastroai.distributed.worker import Worker, WorkerTerms
from fastroai.errors import ConfigurationError, FastroAIError, RunExists, RunStoreUnavailable
from fastroai.keyword_options import takes_options
from fastroai.other_names import other_names
from fastroai.records import Duration, in_seconds
from fastroai.rows.door import MapsRows
from fastroai.rows.keeper import name_of
from fastroai.rows.row_runs import RowRuns
from fastroai.rows.source import RowSource
from fastroai.rows.table import RowTable
from fastroai.runs.door import FrontDoor
from fastroai.runtime.events import OnEvent
from fastroai.runtime.labels import labels_of
from fastroai.runtime.options import check_count, check_seconds, seconds_above_zero
from fastroai.store.record.definitions import fingerprint
from fastroai.store.record.headers import check_run_id
from fastroai.store.record.payloads import PayloadCodec

DepsT = TypeVar("DepsT")
ResultT = TypeVar("ResultT")

EVERY: Final = 1.0
"""Seconds between two looks of a worker for runs that need a stretch."""
LEASE: Final = 30.0
GRACE: Final = 20.0
MOST_DEATHS: Final = 5

logger: Final = logging.getLogger("fastroai.distributed")


@dataclass(frozen=True, slots=True)
class Scheduled:
    """The run that a schedule starts, as the engine keeps it: any worker can start it."""

    name: str
    pipeline: str
    inputs: dict[str, JsonValue]
    options: dict[str, JsonValue]
    """`PlaceOptions`, as JSON."""


_SCHEDULED: Final = TypeAdapter(Scheduled)


@other_names()
class Distributed(Client):
    """An application whose runs are executed by any number of workers, of one machine or of many.

    `start` puts a run on record and in a queue, and returns its handle without waiting. Workers, which are
    processes with the same code, take runs from queues and execute them.

        app = Distributed("postgresql://localhost/app", name="support")
        app.register(letters)

        run = await app.start("letters", {"text": "..."})   # in any process
        asyncio.run(app.worker().serve())                   # in each worker; or: fastroai worker --import ...

    The URL is that of PostgreSQL; or it is a file of SQLite, for workers of one machine. The library DBOS
    (extra `dbos`) keeps the queues there: in a schema of the database, or in a second file.
    """

    def __init__(self, url: str, *, name: str, codec: PayloadCodec | None = None) -> None:
        """Prepare an application. It connects when it is first used. The arguments are those of `Client`.

        Raises:
            ConfigurationError: the URL is of another kind, or the name has other characters.
            MissingExtraError: the extra `dbos` is not installed.
        """
        check_name(name)
        super().__init__(url, name=name, codec=codec)
        self._doors: dict[str, Registered] = {}
        self._declared: dict[str, QueueOptions] = {}
        self._schedules: dict[str, Schedule] = {}

    @overload
    def register(
        self, *doors: FrontDoor[None, Any, Any] | MapsRows[Any], deps_factory: None = None
    ) -> None: ...
    @overload
    def register(
        self,
        *doors: FrontDoor[DepsT, Any, Any] | MapsRows[Any],
        deps_factory: Callable[[CarriedRun], DepsT | Awaitable[DepsT]],
    ) -> None: ...
    def register(
        self,
        *doors: FrontDoor[Any, Any, Any] | MapsRows[Any],
        deps_factory: Callable[[CarriedRun], Any] | None = None,
    ) -> None:
        """Let workers execute runs of pipelines, graphs, routers, flows, bound workflows and `map`.

        Register everything before you make the worker. If one of the objects is refused, none is registered.
        Pipelines, graphs, routers and flows are registered for `start` and for `map`, where each row is a run
        of its own.

        Args:
            *doors: The pipelines and so on, each with a name of its own; also typed functions and agents,
                whose runs are those of `map`.
            deps_factory: Function that makes the `deps` of a run, in the worker that executes it. It is given
                a `CarriedRun`: the id, tenant, tags and inputs. It may be async. Typed functions, and
                flows, take no `deps`.

        Raises:
            ConfigurationError: the object cannot be run, its name is registered already, or its
                codec differs from that of the application.
        """
        registered = dict(self._doors)
        for door in doors:
            if not isinstance(door, FrontDoor | MapsRows):  # pyright: ignore[reportUnnecessaryIsInstance]
                expected = "a pipeline, graph, router, flow, typed function, agent, or workflow.bind(...)"
                raise ConfigurationError("register", door, expected)
            target = door.rows_target() if isinstance(door, MapsRows) else None
            factory = deps_factory if target is None or target.takes_deps else None
            runnable: list[FrontDoor[Any, Any, Any]] = [door] if isinstance(door, FrontDoor) else []
            if target is not None:
                config = target.config if target.makes_runs else replace(target.config, codec=self.codec)
                runnable.append(RowRuns(target, config))
            for front_door in runnable:
                if front_door.name in registered:
                    expected = f"a different name: another {front_door.name!r} is registered"
                    raise ConfigurationError("register", front_door, expected)
                if front_door.config.codec is not self.codec:
                    expected = (
                        f"the codec of {front_door.name!r}, so that this process can read its runs: codec=..."
                    )
                    raise ConfigurationError("codec", self.codec, expected)
                registered[front_door.name] = Registered(front_door, factory)
        self._doors = registered  # all of them or none

    @property
    def registered(self) -> Collection[str]:
        """Names of what is registered here for `start`: pipelines, graphs, routers, flows, workflows.

        Typed functions and agents, which only `map` runs, are not among them.
        """
        return [name for name, one in self._doors.items() if not isinstance(one.door, RowRuns)]

    def door_of(self, name: str) -> FrontDoor[Any, Any, Any] | None:
        """Return the pipeline, graph, router, flow or workflow of a name that is registered here.

        Returns `None` if nothing has this name.
        """
        registered = self._doors.get(name)
        return None if registered is None else registered.door

    def register_queue(self, name: str, options: QueueOptions | None = None) -> None:
        """Declare a queue. Workers make it, or change it, when they begin; nothing is written before.

        A worker takes runs from it only if it is among the worker's `queues`. By default, the queue has no
        limits and no partitions. A second call with the same name replaces the options.

        Raises:
            ConfigurationError: the name is not text, or `options` are not `QueueOptions`.
        """
        if not isinstance(name, str) or not name:
            raise ConfigurationError("name", name, "the name of a queue")
        if not isinstance(options, QueueOptions | None):
            raise ConfigurationError("options", options, "QueueOptions(...)")
        self._declared[name] = options or QueueOptions()

    @takes_options(PlaceOptions, defaults=DEFAULTS)
    def schedule(
        self,
        name: str,
        pipeline: str | FrontDoor[Any, Any, Any],
        schedule: str,
        inputs: Mapping[str, Any] | None = None,
        *,
        cron_timezone: str | None = None,
        automatic_backfill: bool = False,
        **options: Unpack[PlaceOptions],
    ) -> None:
        """Declare a cron schedule, which starts a run each time that it fires: once, however many workers.

            app.schedule("nightly", "report", "0 3 * * *", {"days": 1}, cron_timezone="Europe/Berlin")

        Workers make it, or change it, when they begin. To end it, remove this call from the code of the
        workers, and then call `delete_schedule`. The id of a run has the name and the time in UTC:
        `nightly-20261129T020000Z`.

        Args:
            name: The name of the schedule, which the application has once.
            pipeline: The pipeline, or its name. `register` it first.
            schedule: Five fields of cron, or six, which begin with the second.
            inputs: As in `start`, as JSON. The same each time.
            cron_timezone: The time zone of the schedule, such as `Europe/Berlin`; by default UTC.
            automatic_backfill: Whether a worker, when it starts, also starts the runs that were missed since
                the schedule last fired, because there was no worker.
            queue: As in `start`. `register_queue` it first; a queue that only other processes declare is
                checked each time that the schedule fires.
            priority: As in `start`.
            partition: As in `start`.
            tags: As in `start`.
            tenant: As in `start`.

        Raises:
            ConfigurationError: it would never fire; the pipeline is not registered; the queue has partitions
                and none is given, or the other way round; there is another schedule of this name; or an
                option is invalid.
            ContractViolation: the inputs are not what the pipeline accepts.
        """
        door = self._doors.get(known := pipeline if isinstance(pipeline, str) else pipeline.name)
        if door is None:
            expected = f"a registered name: {', '.join(map(repr, self.registered)) or 'none'}"
            raise ConfigurationError("pipeline", known, expected)
        if name in self._schedules:
            expected = f"a different name: another schedule is called {name!r}"
            raise ConfigurationError("name", name, expected)
        check_run_id(_scheduled_id(name, datetime.now(UTC)))
        check_schedule(schedule, cron_timezone)
        check_priority(options.get("priority"))
        queue = options.get("queue", DEFAULT)
        if declared := self._declared_here(queue):
            check_partition(queue, options.get("partition"), has_partitions=declared.has_partitions)
        door.door.checked_inputs(dict(inputs or {}))
        labels_of(options.get("tags", ()), options.get("tenant"))
        door.check_tenant(options.get("tenant"))
        says = Scheduled(name, known, as_json(inputs), as_json(options))
        self._schedules[name] = Schedule(
            name=name,
            schedule=schedule,
            cron_timezone=cron_timezone,
            automatic_backfill=automatic_backfill,
            says=_SCHEDULED.dump_json(says).decode(),
        )

    async def _start_scheduled(self, text: str, at: datetime) -> None:
        """Start the run of a schedule, unless there is one. Try again as long as the store is away."""
        says = _SCHEDULED.validate_json(text)
        run_id, options = _scheduled_id(says.name, at), cast("PlaceOptions", says.options)
        while True:
            try:
                await super().start(says.pipeline, says.inputs, run_id=run_id, **options)
            except RunExists:
                return
            except RunStoreUnavailable as error:
                logger.warning("run %r of a schedule waits for the store: %s", run_id, error)
                await asyncio.sleep(EVERY)
            except FastroAIError:
                logger.exception("run %r of a schedule could not be started", run_id)
                return
            else:
                return

    @overload
    async def start(
        self,
        pipeline: FrontDoor[Any, Any, ResultT],
        inputs: Mapping[str, Any] | None = None,
        **options: Unpack[StartOptions],
    ) -> RunHandle[ResultT]: ...
    @overload
    async def start(
        self, pipeline: str, inputs: Mapping[str, Any] | None = None, **options: Unpack[StartOptions]
    ) -> RunHandle[Any]: ...
    @takes_options(StartOptions, defaults=DEFAULTS)
    async def start(
        self,
        pipeline: str | FrontDoor[Any, Any, Any],
        inputs: Mapping[str, Any] | None = None,
        **options: Unpack[StartOptions],
    ) -> RunHandle[Any]:
        """Put a run of a pipeline on record and in a queue, as `Client.start` does.

        Name the pipeline, or pass the object itself. If it is registered here, it takes the values that its
        `execute` takes; otherwise, JSON. This does not wait for the run: `await run.result()` of the returned
        handle does. The options and errors are those of `Client.start`.
        """
        name = pipeline.name if isinstance(pipeline, FrontDoor) else str(pipeline)
        registered = self._doors.get(name)
        if registered is None:
            keeper, checked = await self._keeper_and_inputs(name, inputs)
        else:
            registered.check_tenant(options.get("tenant"))
            keeper = registered.door.keeper_of(self.store)
            checked = registered.door.checked_inputs(dict(inputs or {}))
        return await self._start(keeper, checked, **options)

    @overload
    async def map(
        self, function: MapsRows[ResultT], rows: RowSource, **options: Unpack[MapOptions]
    ) -> RunHandle[RowTable[ResultT]]: ...
    @overload
    async def map(
        self, function: str, rows: RowSource, **options: Unpack[MapOptions]
    ) -> RunHandle[RowTable[Any]]: ...
    @takes_options(MapOptions, defaults=DEFAULTS)
    async def map(
        self, function: str | MapsRows[Any], rows: RowSource, **options: Unpack[MapOptions]
    ) -> RunHandle[RowTable[Any]]:
        """Put a run of rows on record and in a queue, as `Client.map` does, by its name or by the object.

            run = await app.map(classify, tickets, run_id="monday", key="id")
            table = await run.result()  # what classify.map(tickets, ...) returns

        If the function is registered here, its rows are checked like its inputs. This reads and writes all
        rows, but does not wait for the run. The options and errors are those of `Client.map`.
        """
        name = function.rows_target().name if isinstance(function, MapsRows) else str(function)
        registered = self._doors.get(name_of(name))
        if registered is None or not isinstance(registered.door, RowRuns):
            return await super().map(name, rows, **options)
        registered.check_tenant(options.get("tenant"))
        return await self._map(registered.door.keeper_of(self.store), registered.door.target, rows, **options)

    async def _has_partitions(self, queue: str) -> bool:
        declared = self._declared_here(queue)
        return await super()._has_partitions(queue) if declared is None else declared.has_partitions

    def _declared_here(self, queue: str) -> QueueOptions | None:
        """Return the options of a queue of `register_queue`, or of the default one."""
        return self._declared.get(queue, QueueOptions() if queue == DEFAULT else None)

    def worker(
        self,
        *,
        queues: Sequence[str] = (DEFAULT,),
        concurrency: int | None = None,
        version: str | None = None,
        every: Duration = EVERY,
        lease: Duration = LEASE,
        graceful_timeout: Duration = GRACE,
        max_deaths: int = MOST_DEATHS,
        on_event: OnEvent | None = None,
    ) -> Worker:
        """Return a worker for this process, which `serve` or `async with` begins.

        A process can have one open worker: a second one raises `ConfigurationError` when it begins.

        Args:
            queues: The queues from which it takes runs; by default only `default`.
            concurrency: The most runs that a worker executes at a time from one of these queues; by default
                any number. For a queue of `register_queue`, its options hold instead.
            version: A name for the code of this worker; by default a hash of its definitions. Workers of one
                version must have the same definitions.
            every: Seconds between two looks for runs that died with their workers, or are due; by default 1.
            lease: Seconds without a sign of life after which the worker counts as dead; by default 30. Other
                workers on its machine notice its death at once.
            graceful_timeout: Seconds for which steps that are running may finish at the end; by default 20.
            max_deaths: The number of workers in a row that may die with a run before it finishes anything
                more; by default 5. Then the run is set aside, until somebody releases it.
            on_event: Function that is called with all events of the runs, text included. It may be async.

        Raises:
            ConfigurationError: nothing is registered, or an option is invalid.
        """
        if not self._doors:
            raise ConfigurationError("worker()", self.app, "at least one pipeline: call register(...) first")
        if isinstance(queues, str) or not queues:
            raise ConfigurationError("queues", queues, "names of queues, such as ['default']")
        check_count("concurrency", concurrency, least=1)
        check_count("max_deaths", max_deaths, least=1, required=True)
        check_seconds("graceful_timeout", graceful_timeout, zero=True)
        knows = {
            name: fingerprint(one.door.keeper_of(self.store).definition) for name, one in self._doors.items()
        }
        terms = WorkerTerms(
            queues=tuple(queues),
            declared=dict.fromkeys(queues, QueueOptions(worker_concurrency=concurrency)) | self._declared,
            schedules=tuple(self._schedules.values()),
            # Applications of one database share the names of versions.
            version=f"{self.app}.{version or _version_of(knows)}",
            every=seconds_above_zero("every", every),
            lease=seconds_above_zero("lease", lease),
            grace=in_seconds(graceful_timeout),
            most_deaths=max_deaths,
        )
        return Worker(self.store, self._engine, self._doors, terms, self._start_scheduled, on_event)


def _scheduled_id(name: str, at: datetime) -> str:
    return f"{name}-{at:%Y%m%dT%H%M%SZ}"


def _version_of(knows: Mapping[str, str]) -> str:
    """Return a name of code that knows these definitions."""
    return hashlib.sha256(repr(sorted(knows.items())).encode()).hexdigest()[:16]
