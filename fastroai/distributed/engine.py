"""DBOS, as far as it is used: the queues, the rows of stretches, and the engine of a worker.

No other module knows it. Arguments of rows are JSON, and results are not kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

from fastroai.errors import ConfigurationError, MissingExtraError, RunStoreUnavailable
from fastroai.runtime.options import check_count, seconds_above_zero
from fastroai.store.backends.address import Address
from fastroai.store.opening import kind_and_place
from fastroai.store.record.entries import RunHeader

try:
    from croniter import croniter
    from dbos import (
        DBOS,
        DBOSClient,
        DBOSConfig,
        DBOSPortableJSONSerializer,
        EnqueueOptions,
        Queue,
        ScheduleInput,
        WorkflowSerializationFormat,
    )
    from dbos import WorkflowStatus as _Status
    from dbos import error as dbos_errors
    from sqlalchemy.exc import SQLAlchemyError
except ImportError as error:
    raise MissingExtraError("fastroai.distributed", "dbos", "dbos") from error

STRETCH: Final = "fastroai.stretch"
"""Name of the workflow that carries a run for a stretch."""
FIRING: Final = "fastroai.firing"
"""Name of the workflow that starts a run when a schedule fires."""
AT_ONCE: Final = 500
"""Most rows that are read at once."""
_CONNECTIONS: Final = 4
"""Connections of the engine of a worker. A client has half as many."""

RowState: TypeAlias = Literal["waiting", "running", "failed", "over"]
Carry: TypeAlias = Callable[[str, str, int], Awaitable[None]]
"""Function that carries a run, by its id and epoch, for the stretch with a number."""
Fire: TypeAlias = Callable[[str, datetime], Coroutine[Any, Any, None]]
"""Function that starts the run of a schedule, by what the schedule says and the time."""

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
    """Limits of a queue, under the names that they have in DBOS.

    The `concurrency` limits count the runs that workers are executing, not the runs that wait. `None` sets no
    limit. A `limiter` limits how many runs begin, or continue after a wait, in a period of seconds. If you
    set a `partition_` option, the queue has partitions, and each run in it must name one. Workers look at the
    queue every `polling_interval_sec` seconds.

    Raises:
        ConfigurationError: a limit is not a whole number from 1, or the interval is not above 0 seconds.
    """

    global_concurrency: int | None = None
    """Most runs of the queue that all workers together execute at a time."""
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
        """Whether each run in the queue needs a partition: a `partition_` option is set.

        If not, no run in the queue may have one.
        """
        return _has_partitions(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A stretch as the engine has it."""

    id: str
    state: RowState
    executor: str | None
    version: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """A time at which a schedule has fired, whose run is not known to be started."""

    id: str
    says: str
    at: datetime
    executor: str | None
    """The worker that starts the run; `None` if it is in a queue."""
    version: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A cron schedule, in the words of DBOS."""

    name: str
    schedule: str
    cron_timezone: str | None
    automatic_backfill: bool
    says: str
    """The run to start, as JSON."""


def stretch_id(header: RunHeader) -> str:
    """Return the id of the stretch that the header of a run names. No run with the same id has it later."""
    assert header.routing is not None
    return f"{header.run_id}:{header.epoch}:{header.routing.stretch}"


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
        self.url, self.app = url, app
        self._client: DBOSClient | None = None

    async def enqueue(self, header: RunHeader, version: str, delay: float) -> None:
        """Enqueue the stretch that the header of a run names, unless there is one with its id."""
        routing = header.routing
        assert routing is not None
        options: EnqueueOptions = {
            "workflow_name": STRETCH,
            "workflow_id": stretch_id(header),
            "queue_name": _name_of(self.app, routing.queue),
            "app_version": version,
            "serialization_type": WorkflowSerializationFormat.PORTABLE,
        }
        if routing.priority is not None:
            options["priority"] = routing.priority
        if routing.partition is not None:
            options["queue_partition_key"] = routing.partition
        if delay > 0:
            options["delay_seconds"] = delay
        arguments = header.run_id, header.epoch, routing.stretch
        await self._call(lambda client: client.enqueue(options, *arguments))

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
                application_name=self.app,
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

    async def forget(self, until: datetime) -> None:
        """Delete the rows of what was enqueued until a time, and is over."""
        while over := await self._call(
            lambda client: client.list_workflows(
                name=[STRETCH, FIRING],
                status=["SUCCESS", "ERROR", "CANCELLED"],
                application_name=self.app,
                end_time=until.isoformat(),
                limit=AT_ONCE,
                load_input=False,
                load_output=False,
            )
        ):
            await self._delete([one.workflow_id for one in over])

    async def _delete(self, ids: list[str]) -> None:
        await self._call(lambda client: client.delete_workflows(ids))

    async def declare(self, name: str, options: QueueOptions) -> None:
        """Make a queue, or change it."""
        given = asdict(options)
        await self._call(lambda client: client.register_queue(_name_of(self.app, name), **given))

    async def has_partitions(self, name: str) -> bool:
        """Return whether a queue has partitions.

        Raises:
            ConfigurationError: there is no such queue.
        """
        queues: list[Queue] = await self._call(lambda client: client.list_queues())
        for one in queues:
            if one.name == _name_of(self.app, name):
                return await asyncio.to_thread(_has_partitions, one)
        names = ", ".join(sorted(one.name.removeprefix(_name_of(self.app, "")) for one in queues))
        raise ConfigurationError(
            "queue", name, f"one of {names}" if names else "the name of a declared queue"
        )

    async def delete_schedule(self, name: str) -> None:
        """Delete a schedule, if there is one of this name."""
        await self._call(lambda client: client.delete_schedule(_name_of(self.app, name)))

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
            raise RunStoreUnavailable(Address(self.url).shown, reason, advice) from error

    def _connected(self) -> DBOSClient:
        if self._client is None:
            self._client = DBOSClient(
                system_database_url=self.url,
                application_name=self.app,
                system_database_pool_size=_CONNECTIONS // 2,
                lazy=True,
                retry_connection_errors=False,
            )
        return self._client


class Engine:
    """The engine of a worker: takes stretches from queues, and has them carried on an event loop.

    A process has one DBOS. If the program has launched its own, the worker takes part in that.
    """

    def __init__(self, url: str, app: str, *, executor: str, version: str) -> None:
        """Prepare the engine. The program may launch its own DBOS until `join`."""
        self._url, self._app = url, app
        self.executor, self.version = executor, version
        self._is_ours = True

    def join(self) -> None:
        """Take over the ids of the DBOS that the program has launched, if it has. Blocks for a moment.

        Raises:
            ConfigurationError: the process has a worker, or the DBOS has an id that others have, too.
        """
        if _callbacks is not None:
            raise ConfigurationError("worker", self._app, "only one worker in a process at a time")
        try:
            DBOS.list_queues()
        except dbos_errors.DBOSException:
            self._is_ours = True
            return
        self._is_ours = False
        self.executor, self.version = str(DBOS.executor_id), str(DBOS.application_version)
        if self.executor == "local":
            expected = (
                "an id that no other process has: give DBOS one in its config, such as "
                "'executor_id': str(uuid.uuid4()); workers that share one take each other's runs"
            )
            raise ConfigurationError("executor_id", self.executor, expected)

    def launch(self, carry: Carry, fire: Fire, queues: Sequence[str], schedules: Sequence[Schedule]) -> None:
        """Begin to take stretches. It makes the tables, if they are not there. Blocks for a moment.

        Raises:
            ConfigurationError: the DBOS that the program has launched is that of another application, or has
                another database.
        """
        global _callbacks
        names = [_name_of(self._app, name) for name in queues]
        if self._is_ours:
            config: DBOSConfig = {
                "name": self._app,
                "system_database_url": self._url,
                "executor_id": self.executor,
                "application_version": self.version,
                "sys_db_pool_size": _CONNECTIONS,
                "serializer": DBOSPortableJSONSerializer(),
                "log_level": "WARNING",
            }
            DBOS(config=config)
            if DBOS.executor_id != self.executor:  # there was one, and its config counts
                expected = "DBOS.launch() before the worker starts, because the program has made its own DBOS"
                raise ConfigurationError("DBOS", self._app, expected)
        elif not {one.name for one in DBOS.list_queues()}.issuperset(names):
            expected = (
                "the database and the application name of the DBOS that this process has launched; the "
                f"worker has the application {self._app!r}"
            )
            raise ConfigurationError("DBOS", Address(self._url).shown, expected)
        _callbacks = carry, fire
        DBOS.logger.addFilter(_is_news)
        try:
            fires = _registered(anew=not self._is_ours)
            if self._is_ours:
                DBOS.listen_queues(names)
                DBOS.launch()
            DBOS.apply_schedules([_applied(self._app, one, fires) for one in schedules])
        except BaseException:
            self.destroy(0)
            raise

    def firings(self) -> Sequence[Firing]:
        """Return the times at which schedules have fired, and whose runs are not known to be started."""
        rows = DBOS.list_workflows(
            name=FIRING, status=["ENQUEUED", "PENDING"], limit=AT_ONCE, load_output=False
        )
        return [firing for row in rows if (firing := _firing(row)) is not None]

    def destroy(self, seconds: int) -> None:
        """Take no more stretches, and wait at most so many seconds until those that are over are written."""
        global _callbacks
        if self._is_ours:
            DBOS.destroy(workflow_completion_timeout_sec=seconds)
        _callbacks = None


def check_schedule(schedule: str, cron_timezone: str | None) -> None:
    """Refuse a schedule that never fires. Raises `ConfigurationError`."""
    try:
        croniter(schedule, second_at_beginning=True).get_next()
    except (AttributeError, TypeError, ValueError) as error:
        expected = (
            "five fields of cron that name a time to come, such as '0 9 * * 1-5', or six, which begin with "
            "the second"
        )
        raise ConfigurationError("schedule", schedule, expected) from error
    if cron_timezone is not None:
        try:
            ZoneInfo(cron_timezone)
        except (LookupError, ValueError, OSError) as error:
            expected = "the name of a time zone, such as 'Europe/Berlin'"
            raise ConfigurationError("cron_timezone", cron_timezone, expected) from error


def upgrade(url: str) -> None:
    """Make the tables of the engine, or bring them up to date."""
    DBOS.migrate(url)


class StretchFailed(RuntimeError):
    """Why a stretch has failed, as text, which the engine can keep. The worker has logged it."""

    @classmethod
    def of(cls, error: BaseException) -> StretchFailed:
        """Return the failure of which an exception is the cause."""
        return cls(f"{type(error).__name__}: {error}")


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a log line of the engine is more than a traceback of what the worker has logged."""
    return record.exc_info is None or not isinstance(record.exc_info[1], StretchFailed)


_callbacks: tuple[Carry, Fire] | None = None
"""What carries runs, and starts those of schedules, in this process."""


_fires: Any = None
"""The workflow of schedules, once it is registered."""


def _registered(*, anew: bool) -> Any:
    """Register the workflows, once, or `anew` as the program may have destroyed what was registered."""
    global _fires
    if _fires is None or anew:
        DBOS.workflow(name=STRETCH, max_recovery_attempts=None)(_stretch)
        _fires = DBOS.workflow(name=FIRING, max_recovery_attempts=None)(_fire)
    return _fires


async def _stretch(run_id: str, epoch: str, number: int) -> None:
    if _callbacks is not None:  # otherwise the worker is ending: the run gets another stretch
        await _callbacks[0](run_id, epoch, number)


async def _fire(at: datetime | str, says: str) -> None:
    if _callbacks is not None:
        await _callbacks[1](says, _time(at))


def _time(at: datetime | str) -> datetime:
    """Return a time as it is, or from JSON, which is what the serializer of the engine writes."""
    return (datetime.fromisoformat(at) if isinstance(at, str) else at).astimezone(UTC)


def _applied(app: str, one: Schedule, fires: Any) -> ScheduleInput:
    return {
        "schedule_name": _name_of(app, one.name),
        "workflow_fn": fires,
        "schedule": one.schedule,
        "context": one.says,
        "cron_timezone": one.cron_timezone,
        "automatic_backfill": one.automatic_backfill,
    }


def _firing(row: _Status) -> Firing | None:
    if row.input is None:
        return None
    at, says = row.input["args"]
    executor = row.executor_id if row.status == "PENDING" else None
    return Firing(id=row.workflow_id, says=says, at=_time(at), executor=executor, version=row.app_version)


_STATES: Final[Mapping[str, RowState]] = {
    "ENQUEUED": "waiting",
    "DELAYED": "waiting",
    "PENDING": "running",
    "ERROR": "failed",
    "MAX_RECOVERY_ATTEMPTS_EXCEEDED": "failed",
}
"""What a status of DBOS means for a stretch. With any other status, the stretch is over."""


def _row(found: _Status) -> Row:
    state: RowState = _STATES.get(found.status, "over")
    return Row(id=found.workflow_id, state=state, executor=found.executor_id, version=found.app_version)


def _name_of(app: str, queue: str) -> str:
    """Return the name of a queue in DBOS, where applications of one database share the names."""
    return f"{app}.{queue}"


def _has_partitions(queue: Queue | QueueOptions) -> bool:
    return (
        queue.partition_concurrency is not None
        or queue.partition_worker_concurrency is not None
        or queue.partition_limiter is not None
    )
