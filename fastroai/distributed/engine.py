"""DBOS, as far as it is used: the queues, the rows of stretches, and the engine of a worker.

No other module knows it. Arguments of rows are JSON, and results are not kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

from fastroai.errors import ConfigurationError, MissingExtraError, RunStoreUnavailable
from fastroai.runtime.options import check_count, seconds_above_zero
from fastroai.store.backends.address import Address
from fastroai.store.opening import kind_and_place

try:
    from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions, Queue, WorkflowSerializationFormat
    from dbos import WorkflowStatus as _Status
    from dbos import error as dbos_errors
    from sqlalchemy.exc import SQLAlchemyError
except ImportError as error:
    raise MissingExtraError("fastroai.distributed", "dbos", "dbos") from error

STRETCH: Final = "fastroai.stretch"
"""Name of the workflow that carries a run for a stretch."""
AT_ONCE: Final = 500
"""Most rows that are read at once."""
_CONNECTIONS: Final = 4
"""Connections of the engine of a worker. A client has half as many."""

RowState: TypeAlias = Literal["waiting", "running", "failed", "over"]
Carry: TypeAlias = Callable[[str, str, int], Awaitable[None]]
"""Function that carries a run, by its id and epoch, for the stretch with a number."""

logger: Final = logging.getLogger("fastroai.distributed")


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """At most so many stretches begin in any period of so many seconds."""

    limit: int
    period: float

    def __post_init__(self) -> None:
        check_count("limit", self.limit, least=1, required=True)
        seconds_above_zero("period", self.period)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """How a queue lets stretches of runs begin, in the words of DBOS.

    With any `partition_` option the queue has partitions, and each run in it needs one.
    """

    global_concurrency: int | None = None
    """Most stretches of the queue that are carried at a time."""
    worker_concurrency: int | None = None
    """The same for each worker."""
    partition_concurrency: int | None = None
    """The same for each partition, such as a tenant."""
    partition_worker_concurrency: int | None = None
    """The same for each partition and worker."""
    limiter: RateLimit | None = None
    partition_limiter: RateLimit | None = None
    """The same for each partition."""
    polling_interval_sec: float = 1.0
    """Seconds between two looks of a worker at the queue."""

    def __post_init__(self) -> None:
        for name in ("global", "worker", "partition", "partition_worker"):
            check_count(f"{name}_concurrency", getattr(self, f"{name}_concurrency"), least=1)
        seconds_above_zero("polling_interval_sec", self.polling_interval_sec)

    @property
    def has_partitions(self) -> bool:
        """Whether each run in the queue needs a partition."""
        of_partitions = (
            self.partition_concurrency,
            self.partition_worker_concurrency,
            self.partition_limiter,
        )
        return any(one is not None for one in of_partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A stretch as the engine has it."""

    id: str
    state: RowState
    executor: str | None
    version: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """A stretch to enqueue."""

    id: str
    arguments: tuple[str, str, int]
    queue: str
    version: str
    priority: int | None
    partition: str | None
    delay: float = 0.0


def places_of(url: str) -> tuple[str, str]:
    """Return where the runs are, for `open_run_store`, and where the queues are, as a URL for SQLAlchemy.

    Raises:
        ConfigurationError: it is neither a file of SQLite nor a URL of PostgreSQL.
    """
    kind, place = kind_and_place(url)
    match kind:
        case "sqlite":
            return place, f"sqlite:///{place}.queues"
        case "postgres":
            return place, f"postgresql+psycopg://{place.partition('://')[2]}"
        case _:
            expected = "a file of SQLite, for one machine, or a URL of PostgreSQL, for many"
            raise ConfigurationError("url", Address(url).shown, expected)


class EngineClient:
    """Enqueues stretches, and reads and cancels them. It needs no engine in this process."""

    def __init__(self, url: str, app: str) -> None:
        """Prepare it. It connects when it is first used."""
        self._url, self._app = url, app
        self._client: DBOSClient | None = None

    async def enqueue(self, stretch: Enqueued) -> None:
        """Enqueue a stretch, unless there is one with its id."""
        options: EnqueueOptions = {
            "workflow_name": STRETCH,
            "workflow_id": stretch.id,
            "queue_name": _name_of(self._app, stretch.queue),
            "app_version": stretch.version,
            "serialization_type": WorkflowSerializationFormat.PORTABLE,
        }
        if stretch.priority is not None:
            options["priority"] = stretch.priority
        if stretch.partition is not None:
            options["queue_partition_key"] = stretch.partition
        if stretch.delay > 0:
            options["delay_seconds"] = stretch.delay
        await self._call(lambda client: client.enqueue(options, *stretch.arguments))

    async def rows(self, ids: Sequence[str]) -> Mapping[str, Row]:
        """Return the rows of stretches, by id. One that does not exist has none."""
        if not ids:
            return {}
        found = await self._call(
            lambda client: client.list_workflows(
                workflow_ids=list(ids), name=STRETCH, load_input=False, load_output=False
            )
        )
        return {one.workflow_id: _row(one) for one in found}

    async def running(self, offset: int) -> Sequence[Row]:
        """Return a page of the stretches that workers carry, or have carried when they died."""
        found = await self._call(
            lambda client: client.list_workflows(
                status="PENDING",
                name=STRETCH,
                application_name=self._app,
                offset=offset,
                limit=AT_ONCE,
                load_input=False,
                load_output=False,
            )
        )
        return [_row(one) for one in found]

    async def cancel(self, ids: Sequence[str]) -> None:
        """Take stretches out of their queues, unless they are over."""
        await self._call(lambda client: client.cancel_workflows(list(ids)))

    async def declare(self, name: str, options: QueueOptions) -> None:
        """Make a queue, or change it."""
        given = asdict(options)
        await self._call(lambda client: client.register_queue(_name_of(self._app, name), **given))

    async def has_partitions(self, name: str) -> bool:
        """Return whether a queue has partitions.

        Raises:
            ConfigurationError: there is no such queue.
        """
        queues: list[Queue] = await self._call(lambda client: client.list_queues())
        for one in queues:
            if one.name == _name_of(self._app, name):
                return await asyncio.to_thread(_has_partitions, one)
        names = ", ".join(sorted(one.name.removeprefix(_name_of(self._app, "")) for one in queues))
        raise ConfigurationError(
            "queue", name, f"one of {names}" if names else "the name of a declared queue"
        )

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            client, self._client = self._client, None
            await asyncio.to_thread(client.destroy)

    async def _call(self, call: Callable[[DBOSClient], Any]) -> Any:
        try:
            return await asyncio.to_thread(lambda: call(self._connected()))
        except (SQLAlchemyError, OSError) as error:
            reason = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
            advice = "see that it is there; `fastroai db upgrade` makes the tables of the queues"
            raise RunStoreUnavailable(Address(self._url).shown, reason, advice) from error

    def _connected(self) -> DBOSClient:
        if self._client is None:
            self._client = DBOSClient(
                system_database_url=self._url,
                application_name=self._app,
                system_database_pool_size=_CONNECTIONS // 2,
                lazy=True,
                retry_connection_errors=False,
            )
        return self._client


class Engine:
    """The engine of a worker: takes stretches from queues, and has them carried on an event loop."""

    def __init__(self, url: str, app: str, *, executor: str, version: str) -> None:
        """Prepare the engine. A process has one.

        Raises:
            ConfigurationError: the name of the application is not one for DBOS.
        """
        self._url, self._app, self._executor, self._version = url, app, executor, version

    def launch(self, carry: Carry, queues: Sequence[str]) -> None:
        """Begin to take stretches. It makes the tables, if they are not there. Blocks for a moment.

        Raises:
            ConfigurationError: the process has a worker, or an engine of its own.
        """
        global _carry
        if _carry is not None:
            raise ConfigurationError("worker", self._app, "one worker at a time in a process")
        with suppress(dbos_errors.DBOSException):
            DBOS.list_queues()
            expected = "a process that does not launch DBOS itself: it has one engine"
            raise ConfigurationError("worker", self._app, expected)
        _carry = carry
        config: DBOSConfig = {
            "name": self._app,
            "system_database_url": self._url,
            "executor_id": self._executor,
            "application_version": self._version,
            "sys_db_pool_size": _CONNECTIONS,
            "log_level": "WARNING",
        }
        DBOS(config=config)
        _registered()
        DBOS.listen_queues([_name_of(self._app, name) for name in queues])
        try:
            DBOS.launch()
        except BaseException:
            self.destroy(0)
            raise

    def destroy(self, seconds: int) -> None:
        """Take no more stretches, and wait at most so many seconds until those that are over are written."""
        global _carry
        DBOS.destroy(workflow_completion_timeout_sec=seconds)
        _carry = None


def upgrade(url: str) -> None:
    """Make the tables of the engine, or bring them up to date."""
    DBOS.migrate(url)


_carry: Carry | None = None
"""What carries runs in this process."""
_is_registered = False


def _registered() -> None:
    """Register the workflow, once in a process."""
    global _is_registered
    if not _is_registered:
        DBOS.workflow(name=STRETCH, max_recovery_attempts=None)(_stretch)
        _is_registered = True


async def _stretch(run_id: str, epoch: str, number: int) -> None:
    carry = _carry
    if carry is not None:  # otherwise the worker is ending: the run gets another stretch
        await carry(run_id, epoch, number)


def _row(status: _Status) -> Row:
    state: RowState = "over"
    match status.status:
        case "ENQUEUED" | "DELAYED":
            state = "waiting"
        case "PENDING":
            state = "running"
        case "ERROR" | "MAX_RECOVERY_ATTEMPTS_EXCEEDED":
            state = "failed"
        case _:
            pass
    return Row(id=status.workflow_id, state=state, executor=status.executor_id, version=status.app_version)


def _name_of(app: str, queue: str) -> str:
    """Return the name of a queue in DBOS, where applications of one database share the names."""
    return f"{app}.{queue}"


def _has_partitions(queue: Queue) -> bool:
    return (
        queue.partition_concurrency is not None
        or queue.partition_worker_concurrency is not None
        or queue.partition_limiter is not None
    )
