"""`Client`: starts runs that workers carry, and finds, answers and stops them, without their code."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pydantic import JsonValue
from pydantic_core import to_jsonable_python
from typing_extensions import Unpack

from fastroai.distributed.connection import Connection
from fastroai.distributed.engine import upgrade
from fastroai.distributed.handle import RunHandle
from fastroai.distributed.options import DEFAULT, DEFAULTS, MapOptions, StartOptions
from fastroai.distributed.reconciling import begin_soon
from fastroai.distributed.roster import (
    KnownDefinition,
    Roster,
    published,
    published_names,
    read_roster,
)
from fastroai.errors import ConfigurationError, ContractViolation
from fastroai.errors.steps import ViolationDetail
from fastroai.errors.texts import nearest_hint
from fastroai.human.schema_checks import problems_of
from fastroai.keyword_options import takes_options
from fastroai.records import Duration, in_seconds
from fastroai.rows.child_runs import refuse_batches
from fastroai.rows.keeper import OPTIONS, name_of
from fastroai.rows.kept import keep_rows
from fastroai.rows.machine import OnRowError
from fastroai.rows.options import RowOptions, batching_of
from fastroai.rows.source import RowInputs, RowKey, Rows, RowSource
from fastroai.rows.table import RowTable
from fastroai.rows.target import RowTarget
from fastroai.runs.inputs import check_mapping
from fastroai.runs.openings import PutFirst, RunKeeper
from fastroai.runs.request import RunRequest
from fastroai.runtime.labels import labels_of
from fastroai.runtime.options import check_seconds
from fastroai.runtime.owner import steady_seconds
from fastroai.store.reading.history import EVERY_RUN, RunSummary
from fastroai.store.reading.index import store_time
from fastroai.store.reading.run_queries import PAGE, Page, RunQuery
from fastroai.store.record.declarations import OnChanged
from fastroai.store.record.definitions import fingerprint
from fastroai.store.record.entries import Routing
from fastroai.store.record.headers import check_run_id
from fastroai.store.record.payloads import PayloadCodec
from fastroai.usage import BudgetLike
from fastroai.usage.limits import limits_of

if TYPE_CHECKING:
    from pydantic_ai.capabilities import BatchModelRequests

_QUEUES_FOR: Final = 5.0
"""Seconds for which it is remembered what queues there are."""
_WORKERS_FOR: Final = 0.5
"""Seconds for which it is remembered who works."""
_PRIORITIES: Final = 2**31 - 1


class Client(Connection):
    """Starts distributed runs, in a process that needs no code of their pipelines.

        async with Client("postgresql://localhost/app") as client:
            run = await client.start("letters", {"text": "..."}, run_id="letter-1182")
            state = await run.wait()

    The store tells it which inputs a pipeline takes: a worker has written that there. So the client accepts
    only the names that a worker of the application has registered, and inputs that JSON can hold. `history`
    is the `RunHistory` of the store, and `inbox` is the `Inbox` for the questions of its runs.
    """

    def __init__(self, url: str, *, name: str | None = None, codec: PayloadCodec | None = None) -> None:
        """Prepare a client. It connects when it is first used.

        Args:
            url: A file of SQLite, for one machine, or a URL of PostgreSQL.
            name: The name of the application, which its workers have: 3 to 100 lower-case letters, digits,
                dashes and underscores. By default that of the only application there.
            codec: The codec of the runs, if they have one.

        Raises:
            ConfigurationError: the URL is of another kind, or the name has other characters.
            MissingExtraError: the extra `dbos` is not installed.
        """
        super().__init__(url, name=name, codec=codec)
        self._queues: dict[str, tuple[float, bool]] = {}
        """When it was last seen of each queue whether it has partitions."""
        self._workers, self._seen = Roster(()), 0.0

    # --- runs ---

    @takes_options(StartOptions, defaults=DEFAULTS)
    async def start(
        self, pipeline: str, inputs: Mapping[str, Any] | None = None, **options: Unpack[StartOptions]
    ) -> RunHandle[Any]:
        """Put a run on record and in a queue, from which a worker takes it, and return its handle.

        This does not wait for the run: `await run.wait()` does.

        Args:
            pipeline: The name of the pipeline, graph, router, flow or bound workflow.
            inputs: As in `execute`, as JSON.
            run_id: The id of the run; by default a new one. A second call with the same id raises
                `RunExists`, so a repeated call never starts a second run.
            queue: The name of the queue; by default `default`.
            priority: From 1, the first, to 2,147,483,647. By default a run has none, and comes before all
                runs that have one.
            partition: The partition of a queue that has some, such as a tenant.
            delay: Seconds before which the run does not begin; by default 0.
            tags: As in `execute`.
            tenant: As in `execute`.
            budget: As in `execute`, but only a `Budget`, because it is put on record. Set a `SpendLimit` in
                the config of the pipeline.

        Raises:
            ConfigurationError: there is no such pipeline or queue; the queue has partitions and none is
                given, or the other way round; or an option is invalid.
            ContractViolation: the inputs are not what the pipeline accepts.
            RunExists: the store has a run of this id.
            RunStoreUnavailable: the store could not be reached. The run may have been put on record.
        """
        keeper, checked = await self._keeper_and_inputs(pipeline, inputs)
        return await self._start(keeper, checked, **options)

    @takes_options(MapOptions, defaults=DEFAULTS)
    async def map(
        self, function: str, rows: RowSource, **options: Unpack[MapOptions]
    ) -> RunHandle[RowTable[Any]]:
        """Put a run of rows on record with its rows, and in a queue, from which a worker takes it.

            run = await client.map("classify", tickets, run_id="monday", key="id")

        All rows are read, checked and written, some hundreds at a time, before workers can see the run. The
        returned handle belongs to the run of all rows. This does not wait for that run.

        Args:
            function: The name of the function, agent, pipeline, graph, router or flow, which a worker has
                registered.
            rows: As in `map` of the function itself: a list, an iterator or a frame. Values must have a form
                in JSON.
            inputs: As in `map` of the function.
            key: As in `map` of the function.
            concurrency: As in `map` of the function.
            batch: As in `map` of the function.
            retries: As in `map` of the function.
            on_error: As in `map` of the function.
            on_changed: As in `map` of the function.
            run_id: As in `start`, like all that follow.
            queue: As in `start`.
            priority: As in `start`.
            partition: As in `start`.
            delay: As in `start`.
            tags: As in `start`.
            tenant: As in `start`.
            budget: A `Budget`, which limits the spending of all rows together.

        Raises:
            ConfigurationError: no worker has registered the function; there is no such queue; a row does not
                fit the inputs of the function, or JSON cannot hold it; two rows have one key; or an option is
                invalid. Nothing is left on record.
            ValueNotStorable: a row has more than half of the bytes that a value in the store may have.
            RunExists: the store has a run of this id.
            RunStoreUnavailable: the store could not be reached. The run may have been put on record.
        """
        known = await self._published(function, name_of(function))
        return await self._map(self._keeper(known), PublishedRows(known), rows, **options)

    def handle(self, run_id: str) -> RunHandle[Any]:
        """Return the handle of a run, which need not exist. Its methods raise `RunNotFound` if it does not.

        Raises:
            ConfigurationError: the id is not a text of 1 to 200 characters, or has control characters, or a
                space at an end.
        """
        return RunHandle(self, run_id)

    async def list(
        self, query: RunQuery = EVERY_RUN, *, limit: int = PAGE, after: str | None = None
    ) -> Page[RunSummary]:
        """Return a page of the runs in the store that match a query, as `RunHistory.page` does.

        By default: the 50 newest runs of the store. `page.items` has the runs, and `page.next` is the value
        of `after` for the next page, or `None` after the last.

        Raises:
            ConfigurationError: `limit` is not from 1 to 1,000, or `after` is not from a page in this order.
            RunStoreUnavailable: the store could not be read.
        """
        return await self.history.page(query, limit=limit, after=after)

    async def delete_schedule(self, name: str) -> None:
        """Delete a cron schedule, if it exists; runs that it has started go on.

        A worker whose code declares the schedule creates it again when it begins.

        Raises:
            ConfigurationError: the client has no `name`, and there is not exactly one application.
            RunStoreUnavailable: the database could not be reached.
        """
        await self._find_app()
        await self._engine.delete_schedule(name)

    async def upgrade(self) -> None:
        """Make the tables of the store and of the queues, or bring them up to date.

        Workers do the same when they begin.
        """
        await store_time(self.store)
        await asyncio.to_thread(upgrade, self._engine.url)

    # --- parts ---

    async def _keeper_and_inputs(
        self, pipeline: str, inputs: Mapping[str, Any] | None
    ) -> tuple[RunKeeper, Mapping[str, object]]:
        """Return what puts runs of a definition on record that a worker has published, and checked inputs."""
        known = await self._published(pipeline, pipeline)
        return self._keeper(known), _checked(known, inputs)

    async def _published(self, pipeline: str, name: str) -> KnownDefinition:
        """Return the definition of this name that a worker has published, for what the caller names."""
        is_rows = name != pipeline
        argument = "function" if is_rows else "pipeline"
        await self._find_app()
        known = await published(self.store, self.app, str(name))
        if known is None or (known.kind == "rows") != is_rows:
            suffix, every = name_of(""), await published_names(self.store, self.app)
            names = [one.removesuffix(suffix) for one in every if one.endswith(suffix) == is_rows]
            hint = nearest_hint(str(pipeline), names)
            expected = f"a name that a worker of {self.app!r} has registered: {', '.join(names) or 'none'}"
            raise ConfigurationError(argument, pipeline, f"{expected}.{hint}" if hint else expected)
        if known.is_sealed and self.codec is None:
            raise ConfigurationError(
                "codec", None, f"the codec of {pipeline!r}, because its values are encrypted"
            )
        return known

    def _keeper(self, known: KnownDefinition) -> RunKeeper:
        return RunKeeper(
            definition=known.definition,
            input_types={},
            output_types={},
            store=self.store,
            codec=self.codec,
            kind=known.kind,
        )

    async def _map(
        self,
        keeper: RunKeeper,
        target: PublishedRows | RowTarget[Any],
        rows: RowSource,
        *,
        inputs: RowInputs | None = None,
        key: RowKey | None = None,
        concurrency: int | None = None,
        batch: bool | BatchModelRequests = False,
        retries: int | None = None,
        on_error: OnRowError = "record",
        on_changed: OnChanged = "ask",
        **starting: Unpack[StartOptions],
    ) -> RunHandle[RowTable[Any]]:
        if (batching := batching_of(batch)) is not None:
            target.check_batches()
        options = RowOptions(
            inputs=inputs,
            key=key,
            concurrency=concurrency,
            batching=batching,
            retries=retries,
            on_error=on_error,
            on_changed=on_changed,
        )
        return await self._start(
            keeper,
            {OPTIONS: options.on_record()},
            first=partial(keep_rows, self.store, Rows(rows, target, inputs, key, as_json=True), self.codec),
            **starting,
        )

    async def _start(
        self,
        keeper: RunKeeper,
        inputs: Mapping[str, object],
        *,
        first: PutFirst | None = None,
        run_id: str | None = None,
        queue: str = DEFAULT,
        priority: int | None = None,
        partition: str | None = None,
        delay: Duration = 0.0,
        tags: Collection[str] = (),
        tenant: str | None = None,
        budget: BudgetLike | None = None,
    ) -> RunHandle[Any]:
        run_id = uuid.uuid4().hex if run_id is None else run_id
        check_run_id(run_id)
        check_priority(priority)
        check_seconds("delay", delay, zero=True)
        limits = limits_of(budget)
        if limits is not None and limits.spend_limits:
            expected = "a Budget; a SpendLimit is code, so it is in the config of the pipeline"
            raise ConfigurationError("budget", budget, expected)
        check_partition(queue, partition, has_partitions=await self._has_partitions(queue))
        seconds = in_seconds(delay)
        starts_at = await store_time(self.store) + timedelta(seconds=seconds) if seconds else None
        routing = Routing(
            app=self.app,
            queue=queue,
            definition=fingerprint(keeper.definition),
            priority=priority,
            partition=partition,
            starts_at=starts_at,
        )
        request: RunRequest[Any] = RunRequest(
            inputs, run_id=run_id, labels=labels_of(tags, tenant), limits=limits
        )
        keeper = replace(request.labelling(keeper), routing=routing)
        found = await keeper.put_on_record(run_id, inputs, first=first)
        await begin_soon(self.store, self._engine, found, await self._roster())
        return RunHandle(self, run_id)

    async def _roster(self) -> Roster:
        """Return the living workers as they were a moment ago, which is enough to choose one."""
        if steady_seconds() - self._seen > _WORKERS_FOR:
            self._workers, self._seen = await read_roster(self.store, self.app), steady_seconds()
        return self._workers

    async def _has_partitions(self, queue: str) -> bool:
        """Return whether a queue has partitions. Raises `ConfigurationError` if there is no such queue."""
        seen, has_partitions = self._queues.get(queue, (0.0, False))
        if not seen or steady_seconds() - seen > _QUEUES_FOR:
            has_partitions = await self._engine.has_partitions(queue)
            self._queues[queue] = steady_seconds(), has_partitions
        return has_partitions


def check_partition(queue: str, partition: str | None, *, has_partitions: bool) -> None:
    """Refuse what the engine would accept, and never run. Raises `ConfigurationError`."""
    if has_partitions and not partition:
        raise ConfigurationError("partition", partition, f"a partition, which queue {queue!r} needs")
    if partition is not None and not has_partitions:
        raise ConfigurationError("partition", partition, f"no value: queue {queue!r} has no partitions")


@dataclass(frozen=True)
class PublishedRows:
    """A function, agent, pipeline, graph or flow as what rows are given to, as a worker has published it."""

    known: KnownDefinition

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.known.name.removesuffix(name_of(""))

    @property
    def parameters(self) -> Mapping[str, bool] | None:
        """Names of the inputs, each with whether it is required; `None` if any name will do."""
        schema: Any = self.known.input_schema
        if schema is None or "properties" not in schema:
            return None
        return {name: name in schema.get("required", ()) for name in schema["properties"]}

    def bind(self, values: Mapping[str, object]) -> Mapping[str, Any]:
        """Return the inputs. Raises `ContractViolation`."""
        return _checked(self.known, values)

    def as_json(self, inputs: Mapping[str, Any]) -> dict[str, JsonValue]:
        """Return the inputs."""
        return dict(inputs)

    def check_batches(self) -> None:
        """Refuse batches of rows that are runs. A worker checks whether the model has a batch API."""
        if (kind := str(self.known.definition.get("of"))) in ("pipeline", "graph", "router", "flow"):
            refuse_batches(self.name, kind)


def _checked(known: KnownDefinition, inputs: Mapping[str, Any] | None) -> Mapping[str, object]:
    """Check inputs by a JSON Schema. Raises `ContractViolation`, or `ConfigurationError` if not JSON."""
    given = as_json(inputs)
    problems: Sequence[str] = () if known.input_schema is None else problems_of(given, known.input_schema)
    if problems:
        details = tuple(ViolationDetail(type="schema", loc=(), msg=one) for one in problems)
        raise ContractViolation(None, "input", details, given, known.name)
    return given


def as_json(inputs: Mapping[str, Any] | None) -> dict[str, JsonValue]:
    """Return inputs as JSON, in which they cross processes. Raises `ConfigurationError` if they cannot."""
    check_mapping(inputs)
    try:
        given: dict[str, JsonValue] = to_jsonable_python(dict(inputs or {}), inf_nan_mode="constants")
    except ValueError as error:
        raise ConfigurationError("inputs", inputs, f"values that JSON can hold: {error}") from error
    return given


def check_priority(priority: int | None) -> None:
    """Refuse what is no priority. Raises `ConfigurationError`."""
    is_number = isinstance(priority, int) and not isinstance(priority, bool)
    if priority is not None and not (is_number and 1 <= priority <= _PRIORITIES):
        raise ConfigurationError("priority", priority, f"a whole number from 1 to {_PRIORITIES:,}")
