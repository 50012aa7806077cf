"""`Distributed`: an application whose runs are carried by any number of workers, on DBOS."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, overload

from typing_extensions import TypeVar

from fastroai.distributed.client import DEFAULT, Client
from fastroai.distributed.engine import QueueOptions
from fastroai.distributed.handle import RunHandle
from fastroai.distributed.registered import CarriedRun, Registered
from fastroai.distributed.worker import Worker, WorkerTerms
from fastroai.errors import ConfigurationError
from fastroai.records import Duration, in_seconds
from fastroai.runs.door import FrontDoor
from fastroai.runtime.events import OnEvent
from fastroai.runtime.options import check_count, check_seconds, seconds_above_zero
from fastroai.store.record.definitions import fingerprint
from fastroai.store.record.payloads import PayloadCodec
from fastroai.usage import BudgetLike

DepsT = TypeVar("DepsT")
ResultT = TypeVar("ResultT")

EVERY: Final = 1.0
"""Seconds between two looks of a worker for runs that need a stretch."""
LEASE: Final = 30.0
GRACE: Final = 20.0
MOST_DEATHS: Final = 5


class Distributed(Client):
    """An application whose runs are carried by any number of workers, of one machine or of many.

        app = Distributed("postgresql://localhost/app", name="support")
        app.register(letters)

        run = await app.start("letters", {"text": "..."})   # in any process
        asyncio.run(app.worker().serve())                   # in each worker; or: fastroai worker --import ...

    DBOS, which is a library, brings the queues: in a second file of SQLite, or in a schema of the database.
    """

    def __init__(self, url: str, *, name: str, codec: PayloadCodec | None = None) -> None:
        """Prepare an application. It connects when it is first used. See `Client`."""
        super().__init__(url, name=name, codec=codec)
        self._doors: dict[str, Registered] = {}
        self._declared: dict[str, QueueOptions] = {}

    @overload
    def register(self, *doors: FrontDoor[None, Any, Any], deps_factory: None = None) -> None: ...
    @overload
    def register(
        self,
        *doors: FrontDoor[DepsT, Any, Any],
        deps_factory: Callable[[CarriedRun], DepsT | Awaitable[DepsT]],
    ) -> None: ...
    def register(
        self, *doors: FrontDoor[Any, Any, Any], deps_factory: Callable[[CarriedRun], Any] | None = None
    ) -> None:
        """Let workers carry the runs of pipelines, graphs, routers, flows and bound workflows.

        Args:
            *doors: The pipelines and so on, each with a name of its own.
            deps_factory: Function that makes the `deps` of a run in the worker that carries it, of the id,
                tenant, tags and inputs of the run. It may be async.

        Raises:
            ConfigurationError: it is no pipeline or graph, or another one of its name is registered; or its
                codec is not that of the application.
        """
        for door in doors:
            if not isinstance(door, FrontDoor):  # pyright: ignore[reportUnnecessaryIsInstance]
                expected = "a pipeline, graph, router, flow, or workflow with `bind`"
                raise ConfigurationError("door", door, expected)
            if door.name in self._doors:
                expected = f"a different name: another {door.name!r} is registered"
                raise ConfigurationError("door", door, expected)
            if door.config.codec is not self.codec:
                expected = f"that of {door.name!r}, so that this process can read its runs: codec=..."
                raise ConfigurationError("codec", self.codec, expected)
            self._doors[door.name] = Registered(door, deps_factory)

    @property
    def registered(self) -> Collection[str]:
        """Names of the pipelines and graphs that are registered here."""
        return self._doors.keys()

    def register_queue(self, name: str, options: QueueOptions | None = None) -> None:
        """Declare a queue. Workers make it, or change it, when they begin."""
        self._declared[name] = options or QueueOptions()

    @overload
    async def start(
        self,
        pipeline: FrontDoor[Any, Any, ResultT],
        inputs: Mapping[str, Any] | None = None,
        *,
        run_id: str | None = None,
        queue: str = DEFAULT,
        priority: int | None = None,
        partition: str | None = None,
        delay: Duration = 0.0,
        tags: Collection[str] = (),
        tenant: str | None = None,
        budget: BudgetLike | None = None,
    ) -> RunHandle[ResultT]: ...
    @overload
    async def start(
        self,
        pipeline: str,
        inputs: Mapping[str, Any] | None = None,
        *,
        run_id: str | None = None,
        queue: str = DEFAULT,
        priority: int | None = None,
        partition: str | None = None,
        delay: Duration = 0.0,
        tags: Collection[str] = (),
        tenant: str | None = None,
        budget: BudgetLike | None = None,
    ) -> RunHandle[Any]: ...
    async def start(
        self,
        pipeline: str | FrontDoor[Any, Any, Any],
        inputs: Mapping[str, Any] | None = None,
        *,
        run_id: str | None = None,
        queue: str = DEFAULT,
        priority: int | None = None,
        partition: str | None = None,
        delay: Duration = 0.0,
        tags: Collection[str] = (),
        tenant: str | None = None,
        budget: BudgetLike | None = None,
    ) -> RunHandle[Any]:
        """Put a run on record and in a queue, as `Client.start` does, by its name or by the object itself.

        A pipeline that is registered here takes the values that its `execute` takes.
        """
        name = pipeline if isinstance(pipeline, str) else pipeline.name
        registered = self._doors.get(name)
        if registered is None:
            keeper, checked = await self._keeper_and_inputs(name, inputs)
        else:
            keeper = registered.keeper(self.store)
            checked = registered.door.checked_inputs(dict(inputs or {}))
        return await self._start(
            keeper,
            checked,
            None if registered is None else registered.door,
            run_id=run_id,
            queue=queue,
            priority=priority,
            partition=partition,
            delay=delay,
            tags=tags,
            tenant=tenant,
            budget=budget,
        )

    async def _has_partitions(self, queue: str) -> bool:
        declared = self._declared.get(queue)
        if declared is None and queue != DEFAULT:
            return await super()._has_partitions(queue)
        return declared is not None and declared.has_partitions

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
        """Return a worker for this process, which `serve` or `async with` begins. A process has one.

        Args:
            queues: The queues from which it takes runs.
            concurrency: The most runs that a worker carries at a time of each of these queues that the
                application has not declared.
            version: A name of the code of this worker; by default one of the definitions that it has. Workers
                of one version know the same definitions.
            every: Seconds between two looks for runs that died with their workers, or are due.
            lease: Seconds after which the worker counts as dead, if it has not said meanwhile that it lives.
                On its own machine it is seen at once.
            graceful_timeout: Seconds for which steps that are running may finish at the end.
            max_deaths: The number of workers in a row that may die with a run before it finishes anything
                more. Then it is set aside, until somebody releases it.
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
        check_seconds("every", every, zero=True)
        check_seconds("graceful_timeout", graceful_timeout, zero=True)
        knows = {name: fingerprint(one.keeper(self.store).definition) for name, one in self._doors.items()}
        terms = WorkerTerms(
            queues=tuple(queues),
            declared=dict.fromkeys(queues, QueueOptions(worker_concurrency=concurrency)) | self._declared,
            # Applications of one database share the names of versions.
            version=f"{self.app}.{version or _version_of(knows)}",
            every=in_seconds(every),
            lease=seconds_above_zero("lease", lease),
            grace=in_seconds(graceful_timeout),
            most_deaths=max_deaths,
        )
        return Worker(self.store, self._engine, self._engine_url, self.app, self._doors, terms, on_event)


def _version_of(knows: Mapping[str, str]) -> str:
    """Return a name of code that knows these definitions."""
    return hashlib.sha256(repr(sorted(knows.items())).encode()).hexdigest()[:16]
