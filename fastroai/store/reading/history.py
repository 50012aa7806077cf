"""The runs in a store: finding them, reading what happened in them, and deleting them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import compress
from typing import TYPE_CHECKING, Final, get_args

from pydantic_core import from_json

from fastroai.errors import (
    ConfigurationError,
    RevisionConflict,
    RunNotFound,
    RunStoreUnavailable,
)
from fastroai.records import Usage
from fastroai.runtime.facts import RunStatus
from fastroai.runtime.options import check_count
from fastroai.store.backends.adapter import adapt_run_store
from fastroai.store.clock import MICROSECOND, ago
from fastroai.store.open_questions import Question, asked_at
from fastroai.store.reading.child_runs import child_runs
from fastroai.store.reading.index import PREFIX as INDEX
from fastroai.store.reading.index import (
    Indexed,
    add_to_index,
    count_runs,
    due_runs,
    every_run,
    index_keys,
    indexed,
    run_in_index,
    store_time,
)
from fastroai.store.reading.reads_runs import read_trace
from fastroai.store.reading.run_index import Doomed, FoundRun, indexes_runs
from fastroai.store.reading.run_quality import Quality
from fastroai.store.reading.run_queries import PAGE, Cursor, Page, Place, RunQuery, check_page, check_state
from fastroai.store.record.checksums import without_checksum
from fastroai.store.record.entries import RowCounts, RunHeader, RunState
from fastroai.store.record.headers import (
    BEGINS_WITHIN,
    UNREADABLE,
    FoundHeader,
    check_run_id,
    decode_header,
    encode_header,
    header_key,
    keys_of,
    keys_of_id,
    keys_with,
    read_header,
    run_of,
)
from fastroai.store.record.payloads import PayloadCodec, check_codec, masked, unseal_text
from fastroai.store.record.snapshot import RunSnapshot
from fastroai.store.run_store import LeavesOrphans, RunStoreLike, deletes_at_revision

if TYPE_CHECKING:
    from fastroai.store.reading.following import FollowedRun
    from fastroai.store.reading.run_index import Dimension
    from fastroai.store.reading.spending import SpendingRow
    from fastroai.store.reading.trace import RunTrace

EVERY_RUN: Final = RunQuery()
_NEVER: Final = datetime.max.replace(tzinfo=UTC)
_DELETED_AT_ONCE: Final = 200
_TRIES: Final = 10
"""Times that a delete starts over because the run has changed meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The status, times and cost of a run, from the header that a store keeps beside the log of the run.

    Costs are in US dollars: only what was known at `updated_at`, when the header was last written. While a
    run is `running`, that is every few seconds; a process that died has not written what it spent since then.
    So `cost_complete` is false for a run that is `running`, `interrupted` or `set_aside`. `RunHistory.trace`
    reads all that is on record. If the run cannot be read, `status` is `unreadable`, `error` says why, and
    `pipeline` and the times are `None`.
    """

    run_id: str
    pipeline: str | None
    status: RunState
    started_at: datetime | None
    updated_at: datetime | None
    requests: int = 0
    """Requests that were sent and not refused."""
    failed_requests: int = 0
    """Requests that ended unbilled: refused by the provider, or never sent."""
    cost_usd: Decimal = Decimal(0)
    """Known cost in US dollars, as of `updated_at`."""
    cost_complete: bool = True
    """Whether `cost_usd` is the whole cost: no request is unpriced or unmeasured, and `counts_complete`."""
    quality: Quality | None = None
    """`degraded` if something failed or was answered in part, and it went on; `None` unless it finished."""
    owner: str | None = None
    """The process that runs it, or that did when it died."""
    lease_until: datetime | None = None
    error: str | None = None
    """Why the run failed, or why its header cannot be read."""
    forked_from: str | None = None
    tags: tuple[str, ...] = ()
    tenant: str | None = None
    due_at: datetime | None = None
    """Time from which `wake` takes up a paused run; `None` if it waits for somebody to resume it."""
    input_tokens: int = 0
    output_tokens: int = 0
    """Tokens that requests used, as of `updated_at`."""
    queue: str | None = None
    """The queue of a run that workers carry; `None` for a run of the process that began it."""
    rows: RowCounts | None = None
    """How far a run of rows is, as of `updated_at`; `None` for another run."""
    open_questions: int = 0
    """Questions of the run that wait for the answer of a person."""
    read_at: datetime | None = None
    """Time at which the header was read, by the clock of the store."""

    @classmethod
    def of(cls, found: FoundHeader) -> RunSummary:
        """Return the summary of a run from its header, with the status at the time when the header was read.

        `error` is as it is stored: a codec may have encoded its message.
        """
        header = found.header
        as_recorded = {name: getattr(header, name) for name in _OF_HEADER}
        status = found.state
        return cls(
            **as_recorded,
            status=status,
            cost_complete=header.cost_complete and status not in _GOES_ON,
            queue=None if header.routing is None else header.routing.queue,
            open_questions=len(header.questions),
            read_at=found.now,
        )

    def spent(self, trace: RunTrace) -> Usage:
        """Return the spending of the run, from its trace, which must be the trace of this run.

        If each row of a `map` is a run of its own, the trace of the `map` has no requests. Then this returns
        the sums in this summary. The summary does not say how many requests are unmeasured: if its cost is
        not complete, `unmeasured_requests` is 1.
        """
        usage = trace.usage
        if self.rows is None or usage.records:
            return usage
        return Usage(
            request_count=self.requests,
            failed_requests=self.failed_requests,
            unmeasured_requests=int(not self.cost_complete),
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cost_usd=self.cost_usd,
        )

    @property
    def counts_complete(self) -> bool:
        """Whether the numbers of requests and tokens are those of the whole run.

        They are not if the run is `running`, `interrupted` or `set_aside`: then they are those of
        `updated_at`, and the run can have used more. Those of an `unreadable` run are not known.
        """
        return self.status not in (*_GOES_ON, "unreadable")

    @property
    def duration(self) -> timedelta | None:
        """The time from the start to the end of the run, or to the moment at which it paused.

        For a running run, this is the time until the summary was read. For a run whose process has died, it
        is the time to the last sign of life, so the run took at least that long. It is `None` if it is not
        known: the run cannot be read, has not begun, or died before its process gave a sign of life. It is
        never negative.
        """
        end = (self.read_at or self.updated_at) if self.status == "running" else self.updated_at
        if self.started_at is None or end is None:
            return None
        took = max(end - self.started_at, timedelta(0))
        is_known = took or self.status not in ("queued", "interrupted", "set_aside")
        return took if is_known else None


_GOES_ON: Final = ("running", "interrupted", "set_aside")
"""Statuses of runs that can have spent more than their headers say."""
_COMPUTED: Final = ("status", "cost_complete", "queue", "open_questions", "read_at")
_OF_HEADER: Final = tuple(one.name for one in fields(RunSummary) if one.name not in _COMPUTED)
"""What a summary says of a run in the words of its header."""


class RunHistory:
    """The runs in a store: to find them, read what happened in them, stop them and delete them.

        history = RunHistory(SQLiteRunStore("runs.db"))
        for run in await history.list(status="failed", limit=10):
            print(run.run_id, run.error)
        await history.purge(timedelta(days=30))

    `store` is a store, or the path or URL of one. `codec` is that of the runs, if they have one; without it,
    values that it has encoded stay encoded. The history keeps nothing in memory: each call reads the store.

    Raises:
        ConfigurationError: `store` is no store of runs, or `codec` is no codec.
        MissingExtraError: the client of the database at the URL is not installed.
    """

    def __init__(self, store: RunStoreLike, *, codec: PayloadCodec | None = None) -> None:
        """Read the runs of a store, or of that at a path or URL.

        `codec` is that of the runs, if any; without it, data stays sealed.

        Raises:
            ConfigurationError: `store` is no store of runs, or `codec` is no codec.
        """
        check_codec(codec)
        self._store, self._codec = adapt_run_store(store), codec

    def __repr__(self) -> str:
        return f"RunHistory({self._store!r})"

    async def list(
        self,
        *,
        status: RunState | None = None,
        pipeline: str | None = None,
        tag: str | None = None,
        tenant: str | None = None,
        limit: int | None = None,
    ) -> tuple[RunSummary, ...]:
        """Return summaries of the runs, newest first by their start; those that cannot be read come last.

        Filters are combined: a run must match all that are given. With a filter or a `limit`, runs are found
        in indexes. These do not tell `running`, `queued`, `interrupted` and `set_aside` apart, so for them
        the headers of all runs that have not ended are read. Only SQLite and PostgreSQL have an index of
        `finished` and of `unreadable` runs.

        Args:
            status: Return only runs with this status: `queued`, `running`, `paused`, `finished`, `failed`,
                `cancelled`, `interrupted`, `set_aside` or `unreadable`.
            pipeline: Return only runs of the pipeline or graph with this name.
            tag: Return only runs with this tag.
            tenant: Return only runs of this tenant.
            limit: Return at most this many runs; by default all.

        Raises:
            ConfigurationError: there is no such status, a name is not text, or `limit` is not a whole number,
                1 or more.
            RunStoreUnavailable: the store could not be read.
        """
        check_count("limit", limit, least=1)
        query = RunQuery(status=status, pipeline=pipeline, tag=tag, tenant=tenant)
        found, unreadable = list[RunSummary](), list[RunSummary]()
        async for _, run in self._found(query, at_once=limit):
            (unreadable if run.status == "unreadable" else found).append(run)
            if len(found) == limit:
                break
        return (*found, *unreadable)[:limit]

    async def page(
        self, query: RunQuery = EVERY_RUN, *, limit: int = PAGE, after: str | None = None
    ) -> Page[RunSummary]:
        """Return a page of the runs that match a query, in its order.

            query = RunQuery(tenant="acme", search="invoice", sort="cost")
            page = await history.page(query)
            while page.next is not None:
                page = await history.page(query, after=page.next)

        SQLite and PostgreSQL find a page in their index, however many runs there are. Other stores read the
        headers of all runs for it, unless the newest runs are wanted first.

        Args:
            query: Which runs, and in which order; by default all, newest first.
            limit: Most runs of the page.
            after: `Page.next` of the page before. Runs that were added or changed since then are shown at
                their new position, if that comes later; deleted runs are not shown. A run that stays in its
                position is never shown twice. A query with other filters but in the same order begins at the
                same position: it leaves out what comes before.

        Raises:
            ConfigurationError: `limit` is not from 1 to 1,000, or `after` is not from a page in this order.
            RunStoreUnavailable: the store could not be read.
        """
        check_page(limit)
        place = None if after is None else Cursor.of(query, after).place
        runs = list[tuple[FoundRun, RunSummary]]()
        async for run in self._found(query, after=place, at_once=limit + 1):
            runs.append(run)
            if len(runs) > limit:
                break
        is_last = len(runs) <= limit
        return Page(
            items=tuple(summary for _, summary in runs[:limit]),
            next=None if is_last else Cursor(runs[limit - 1][0].place).text(query),
        )

    async def count(self, query: RunQuery = EVERY_RUN) -> int:
        """Return how many runs match a query.

        For the statuses `running`, `queued`, `interrupted` and `set_aside`, it reads the headers of runs that
        have not ended, because only these tell the statuses apart. For other queries, SQLite and PostgreSQL
        count in their index, and other stores read the headers of all runs.

        Raises:
            RunStoreUnavailable: the store could not be read.
        """
        if query.recorded_status == "running":
            return len([run async for _, run in self._found(query)])
        return await count_runs(self._store, query)

    async def due(self, pipeline: str) -> tuple[RunSummary, ...]:
        """Return summaries of the paused runs of a pipeline or graph that can continue, which `wake` resumes.

        A run can continue if its sleep is over, if the answer or message that it waits for has come, or if
        the time to wait for that is over. Runs that have been due for longest come first; of those that
        became due at the same time, as with a window of a spend limit, runs that have waited longest. The
        list includes runs that are due according to the index but whose header cannot be read: their status
        is `unreadable`. Distributed runs, which workers continue, are left out. Nothing is resumed.

        Raises:
            RunStoreUnavailable: the store could not be read.
        """
        runs, now = await due_runs(self._store, pipeline)
        found = [run for one in runs for run in [self._summary_of(one, now)]]
        is_due = (
            run.queue is None
            and (run.status == "unreadable" or (run.due_at is not None and run.due_at <= now))
            for run in found
        )
        return tuple(sorted(compress(found, is_due), key=_due_since))

    async def interrupted(self, pipeline: str) -> tuple[RunSummary, ...]:
        """Return summaries of the runs of a pipeline or graph whose processes died, newest first.

        `recover` resumes these runs; this only finds them. The list includes runs that, according to the
        index, have not ended, but whose header cannot be read: their status is `unreadable`. Distributed
        runs, which workers continue, are left out.

        Raises:
            RunStoreUnavailable: the store could not be read.
        """
        unended = every_run(self._store, RunQuery(status="running", pipeline=pipeline))
        runs = [self._summary_of(found, now) async for found, now in unended]
        return tuple(run for run in runs if run.queue is None and run.status in ("interrupted", "unreadable"))

    async def summary(self, run_id: str) -> RunSummary:
        """Return the summary of a run: its status, times, cost, tags and so on. The log is not read.

        Raises:
            ConfigurationError: `run_id` cannot be the id of a run.
            RunNotFound: there is no such run.
            RunCorrupt: its header cannot be read.
            RunFromNewerVersion: a later version of FastroAI has written it.
            RunFromOlderVersion: an earlier version of FastroAI has written it.
            RunStoreUnavailable: the store could not be read.
        """
        return self._summary(await read_header(self._store, run_id))

    async def header(self, run_id: str) -> RunHeader:
        """Return the header of a run: its stored status, owner, times and cost.

        A store keeps it beside the log of the run. Its status is the one on record: a run whose process died
        still has `running`. `summary` tells these apart.

        Raises:
            ConfigurationError: `run_id` cannot be the id of a run.
            RunNotFound: there is no such run.
            RunCorrupt: its header cannot be read.
            RunFromNewerVersion: a later version of FastroAI has written it.
            RunFromOlderVersion: an earlier version of FastroAI has written it.
            RunStoreUnavailable: the store could not be read.
        """
        return (await read_header(self._store, run_id)).header

    async def trace(self, run_id: str) -> RunTrace:
        """Return the trace of a run: what happened in it so far, as far as it is on record.

        It reads the whole log. Without the codec of the run, values that the codec has encoded stay encoded.

        Raises:
            ConfigurationError: `run_id` cannot be the id of a run.
            RunNotFound: there is no such run.
            RunCorrupt: its record cannot be read, or the codec cannot decode it.
            RunFromNewerVersion: a later version of FastroAI has written it.
            RunFromOlderVersion: an earlier version of FastroAI has written it.
            RunStoreUnavailable: the store could not be read.
        """
        return await read_trace(self._store, await self.header(run_id), self._codec)

    async def state(self, run_id: str) -> RunSnapshot:
        """Return a snapshot of a run: its present status, its trace so far, and its open questions.

        Unlike that of the trace, its status can be `interrupted`, `queued` or `set_aside`.

        Raises:
            ConfigurationError: `run_id` cannot be the id of a run.
            RunNotFound: there is no such run.
            RunCorrupt: its record cannot be read, or the codec cannot decode it.
            RunFromNewerVersion: a later version of FastroAI has written it.
            RunFromOlderVersion: an earlier version of FastroAI has written it.
            RunStoreUnavailable: the store could not be read.
        """
        found = await read_header(self._store, run_id)
        trace = await read_trace(self._store, found.header, self._codec)
        # The log was read later, so it decides. Only the header says whether a process has the run.
        has_died = trace.ended is None and found.is_interrupted
        is_held = trace.ended is not None and found.is_running  # it cannot be resumed yet
        asked = asked_at(found.header.questions, dict(enumerate(trace.entries, 1)))
        status: RunState = "interrupted" if has_died else "running" if is_held else trace.status
        if trace.ended is None and found.state in ("queued", "set_aside"):
            status = found.state
        return RunSnapshot(
            status=status,
            trace=trace,
            questions=tuple(Question.of(one, found.header) for one in asked),
        )

    def follow(self, run_id: str, *, after: int = 0) -> FollowedRun:
        """Iterate the facts of a run with their positions, as they are put on record, in any process.

            async for position, fact in history.follow("invoice-42"):
                match fact:
                    case StepFinished(step_id=step_id, output=output): ...

        A fact is an entry of the log of the run. The iteration ends after the `RunFinished` that is the last
        fact: the run has ended, or is `paused`, because it waits for a person, a message or a time, or
        because somebody asked for a pause. After it was resumed, call `follow` again, with `after=`. A run
        that is driven from outside has no such fact while something is due, so the iteration waits for the
        next report. If the process of the run has died, the iteration waits until another process resumes the
        run. Partial text is not a fact: there is `RequestSent`, and `RequestEnded` with the whole response.

        Args:
            run_id: The run.
            after: Position of the last fact that you have seen. The iteration begins after it.

        Raises:
            ConfigurationError: `run_id` cannot be the id of a run, or `after` is not a whole number, 0 or
                more. The iteration raises it if `after` is past the end of the log.
            RunNotFound: there is no such run: it has not begun, or was deleted. The iteration raises this and
                the errors below.
            RunCorrupt: it cannot be read.
            RunFromNewerVersion: a later version of FastroAI has written it.
            RunFromOlderVersion: an earlier version of FastroAI has written it.
            RunStoreUnavailable: the store could not be read. The next `anext` tries again.
        """
        from fastroai.store.backends.run_arguments import check_position
        from fastroai.store.reading.following import FollowedRun

        check_run_id(run_id)
        check_position("after", after, "the position that came with the last fact")
        return FollowedRun(self._store, run_id, after, self._codec)

    async def spending(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        by: Sequence[Dimension] = ("day",),
    ) -> tuple[SpendingRow, ...]:
        """Return the spending of all runs in a period: a row for each combination of the fields in `by`.

            for row in await history.spending(since=monday, by=("day", "pipeline")):
                print(row.day, row.pipeline, row.usage.cost_usd, row.usage.cost_complete)

        Rows are sorted by these fields, in the order of `by`; by default, there is a row for each day. There
        is no row if nothing was spent. A request counts at the time at which it was sent, and other spending
        when it was recorded or reserved; when the run began does not matter. Requests that a resumed run
        repeats from its own record, or that a fork takes over from another run, are not counted again.
        Deleted runs do not count. Runs are found by the days on which a process had them, and only the logs
        of these are read.

        Args:
            since: Beginning of the period, a time with a time zone; by default there is no limit.
            until: End of the period, which does not include this time; by default there is no limit.
            by: The fields of the rows that are set: `day` (of UTC), `pipeline` (the outermost one, or the
                graph), `step`, `model` (as `provider:model`), `tenant`, `tag`. With `by=()`, the only row has
                the total. A request counts in the row of each of its tags, so rows by tag do not add up to
                the total.

        Raises:
            ConfigurationError: a time has no time zone, the period ends before it begins, or `by` has another
                name.
            RunCorrupt: a run in the period cannot be read, so the sum is not known.
            RunFromNewerVersion: a later version of FastroAI has written one.
            RunFromOlderVersion: an earlier version of FastroAI has written one.
            RunStoreUnavailable: the store could not be read.
        """
        from fastroai.store.reading.spending import check_period, spending

        check_period(since, until, by)
        return await spending(self._store, since, until, by)

    async def pause(self, run_id: str) -> None:
        """Let a running run finish its current steps, and halt, whichever process runs it.

        This leaves a signal in the store, and does not wait for the run to halt. Its process notices the
        signal within a second. The run may end before it halts. `resume` continues it.

        Raises:
            ConfigurationError: `run_id` cannot be the id of a run.
            RunNotFound: there is no such run.
            RunStatusConflict: no process is running it.
            RunCorrupt: its header cannot be read.
        """
        from fastroai.store.record.halting import signal_elsewhere

        await signal_elsewhere(self._store, run_id, "pause")

    async def cancel(self, run_id: str) -> None:
        """Stop a run at once, whichever process runs it; or a run that no process runs, if it can be resumed.

        A cancelled run keeps its partial work and can be resumed. The process of a running run notices it
        within a second; this method does not wait for that. The runs of rows that wait are cancelled with
        their run, so nobody is asked for them; if the run is running, its process does so.

        Raises:
            ConfigurationError: `run_id` cannot be the id of a run.
            RunNotFound: there is no such run.
            RunStatusConflict: the run has finished, or was cancelled before.
            RunInProgress: processes have resumed the run, and let it go, again and again meanwhile.
            RunCorrupt: the record of the run cannot be read, or has a codec that this history does not have.
        """
        from fastroai.store.record.halting import cancel_elsewhere

        await cancel_elsewhere(self._store, run_id, self._codec)

    async def delete(self, run_id: str, *, force: bool = False) -> None:
        """Delete a run. If this is interrupted, the run is either unchanged or deleted.

        If it is a run of `map`, the runs that it made for its rows are deleted first, one by one. An
        interruption can leave the others.

        Args:
            run_id: The run.
            force: Delete also a run that a process is running, or whose record cannot be read. The process
                finds out when it next writes, and stops. Nothing that it writes until then becomes part of a
                later run with this id.

        Raises:
            ConfigurationError: `run_id` cannot be the id of a run.
            RunInProgress: a process has the run, or that of one of its rows, and `force` is not set.
            RunNotFound: there is no such run. Keys that are left of a run without a header are removed by
                `purge`.
            RunCorrupt: its record cannot be read, and `force` is not set.
            RunFromNewerVersion: a later version of FastroAI has written it, and `force` is not set.
            RunFromOlderVersion: an earlier version of FastroAI has written it, and `force` is not set.
        """
        epoch = ""
        for _ in range(_TRIES):
            try:
                found = await read_header(self._store, run_id)
            except UNREADABLE:
                if not force:
                    raise
                await self._delete_unreadable(run_id)
                return
            if epoch and found.header.epoch != epoch:
                return  # the run is gone, and another one has its id
            if not force:
                found.check_not_running()
            epoch = found.header.epoch
            await self._delete_children(found.header, force=force)
            (is_gone,) = await self._delete_found([found])
            if is_gone or not (await self._store.read(header_key(run_id))).revision:
                return  # otherwise somebody has written: look again
        reason = f"the header of run {run_id!r} changes faster than it can be read"
        raise RunStoreUnavailable(repr(self._store), reason)

    async def purge(
        self,
        older_than: timedelta,
        *,
        status: RunState | Collection[RunState] | None = None,
        dry_run: bool = False,
    ) -> tuple[str, ...]:
        """Delete the runs that have not changed for some time, and return their ids.

        Runs that are in progress are kept, and so are unreadable runs, whose age is unknown. Paused, queued
        and interrupted runs are deleted like all others, and so are runs of which a coding agent performs the
        steps. To keep these, choose an `older_than` that is longer than any pause, or name the `status` of
        those to delete. The runs of the rows of a `map` are deleted like all others, each by its own age and
        status. Keys that are left of runs without a header are removed, too.

        Args:
            older_than: The time since the last change, as a `timedelta`. A number is refused, because its
                unit would be unclear.
            status: Only runs with this status, or one of these; by default all that are not in progress.
            dry_run: Only return the ids.

        Raises:
            ConfigurationError: there is no such status, or the age is negative or not a `timedelta`.
        """
        is_several = isinstance(status, Iterable) and not isinstance(status, str)
        wanted = None if status is None else tuple(status) if is_several else (status,)
        for one in wanted or ():
            check_state(one)
        if not isinstance(older_than, timedelta) or older_than < timedelta(0):
            raise ConfigurationError("older_than", older_than, "an age, 0 or more: timedelta(days=30)")
        now = await store_time(self._store)
        before = ago(now, older_than) + MICROSECOND
        old = RunQuery(started_until=before, updated_until=before)
        deleted, doomed, seen = list[str](), list[FoundHeader](), set[str]()
        async for found, read_at in every_run(self._store, old):
            run_id = found.place.run_id
            seen.add(run_id)
            with suppress(*UNREADABLE):
                header = decode_header(run_id, found.value)
                held = FoundHeader(header=header, revision=found.revision, now=read_at)
                is_held = held.state == "running" and header.owner is not None
                if not is_held and (wanted is None or held.state in wanted):
                    doomed.append(held)
            if len(doomed) >= _DELETED_AT_ONCE:
                deleted += await self._purge(doomed, dry_run=dry_run)
                doomed = []
        deleted += await self._purge(doomed, dry_run=dry_run)
        if not dry_run:
            await self._forget_all_remains(seen, old, now)
            if isinstance(self._store, LeavesOrphans):
                await self._store.forget_orphans()
        return tuple(deleted)

    async def rebuild_indexes(self) -> None:
        """Rebuild the indexes from the headers of runs, after somebody has removed keys from the store.

        Stores with an index of their own (SQLite, PostgreSQL) only mark it as out of date, and rebuild it at
        the next query. For other stores, this reads every run. Runs can continue in the meantime.

        Raises:
            RunStoreUnavailable: the store could not be read or written.
        """
        own = indexes_runs(self._store)
        if own is not None:
            await own.index_anew()
            return
        async for found in keys_with(self._store, header_key("")):
            with suppress(*UNREADABLE):
                header = decode_header(found.key.removeprefix(header_key("")), found.value)
                await add_to_index(self._store, header)
        before = await store_time(self._store) - BEGINS_WITHIN
        async for found in keys_with(self._store, INDEX):
            entry = run_in_index(found.key)
            with suppress(*UNREADABLE):
                held = await self._held(entry)
                if held is None and entry.started_at < before:
                    await self._forget_remains(entry)
                if held and held.header.owner is None and found.key not in index_keys(held.header):
                    await self._store.delete(found.key)

    # --- reading ---

    async def _found(
        self, query: RunQuery, *, after: Place | None = None, at_once: int | None = None
    ) -> AsyncIterator[tuple[FoundRun, RunSummary]]:
        """Yield the runs that match, in order, after a place. `at_once` is as for `every_run`."""
        async for found, now in every_run(self._store, query, after=after, at_once=at_once):
            run = self._summary_of(found, now)
            if query.status in (None, run.status):
                yield found, run

    def _summary_of(self, found: FoundRun, now: datetime) -> RunSummary:
        """Return a run that was found at a glance, even if its header cannot be read."""
        run_id = found.place.run_id
        try:
            header = decode_header(run_id, found.value)
        except UNREADABLE as error:
            return _unreadable(run_id, error)
        return self._summary(FoundHeader(header=header, revision=found.revision, now=now))

    async def _held(self, entry: Indexed) -> FoundHeader | None:
        """Return the header of the run of an index entry; `None` if the run is gone."""
        try:
            held = await read_header(self._store, entry.run_id)
        except RunNotFound:
            return None
        return held if held.header.epoch == entry.epoch else None

    def _summary(self, found: FoundHeader) -> RunSummary:
        summary = RunSummary.of(found)
        if summary.error is None:
            return summary
        error_type, colon, message = summary.error.partition(": ")
        return replace(summary, error=f"{error_type}{colon}{masked(unseal_text(message, self._codec))}")

    # --- forgetting ---

    async def _delete_children(self, header: RunHeader, *, force: bool) -> None:
        children: Sequence[str] = ()
        try:
            children = await child_runs(self._store, header)
        except UNREADABLE:
            if not force:
                raise
        for child in children:
            with suppress(RunNotFound):
                await self.delete(child, force=force)

    async def _delete_found(self, found: Sequence[FoundHeader]) -> Sequence[bool]:
        """Delete runs, unless their headers were written since they were found. Say which were deleted."""
        own = indexes_runs(self._store)
        if own is None or own is not self._store:
            return [await self._delete_by_keys(one) for one in found]
        return await own.delete_runs(
            [
                Doomed(key=header_key(one.header.run_id), revision=one.revision, others=keys_of(one.header))
                for one in found
            ]
        )

    async def _delete_by_keys(self, found: FoundHeader) -> bool:
        try:
            await self._delete_header(found)
        except RevisionConflict:
            return False
        # The index by start is the last one, because a purge reads it.
        for key in (*keys_of(found.header), *reversed(index_keys(found.header))):
            await self._store.delete(key)
        return True

    async def _delete_header(self, found: FoundHeader) -> None:
        """Delete a header, unless somebody has written it since. Raises `RevisionConflict`."""
        key, store = header_key(found.header.run_id), self._store
        # It is written again first, so that nobody who has read it can take the run up.
        await store.compare_and_set(key, encode_header(found.header), revision=found.revision)
        if not deletes_at_revision(store):
            await store.delete(key)
            return
        try:
            await store.delete(key, revision=found.revision + 1)
        except RevisionConflict as conflict:
            if conflict.actual:
                raise  # otherwise it is gone: the answer to this deletion may have been lost

    async def _delete_unreadable(self, run_id: str) -> None:
        indexes = [found.key async for found in keys_with(self._store, INDEX)]
        of_id = [key for key in indexes if run_in_index(key).run_id == run_id]
        key, store = header_key(run_id), self._store
        if deletes_at_revision(store):  # a process that has the run cannot write it over the next run
            found = await store.read(key)
            await store.delete(key, revision=found.revision)
        else:
            await store.delete(key)
        for key in (*await keys_of_id(store, run_id), *of_id):
            await store.delete(key)

    async def _purge(self, doomed: Sequence[FoundHeader], *, dry_run: bool) -> Sequence[str]:
        """Delete runs that nobody has taken up or deleted meanwhile, and return their ids."""
        ids = [found.header.run_id for found in doomed]
        if dry_run or not doomed:
            return ids
        return tuple(compress(ids, await self._delete_found(doomed)))

    async def _forget_all_remains(self, seen: Collection[str], old: RunQuery, now: datetime) -> None:
        """Remove what is left of runs without a header, where index entries name them."""
        async for rows in keys_with(self._store, "rows:"):  # a process may have died while it wrote them
            with suppress(*UNREADABLE, ValueError):
                of_run = Indexed(rows.key, *run_of(rows.key), started_at=now)
                written = from_json(without_checksum(rows.value))["at"]
                if written < (now - BEGINS_WITHIN).timestamp() and await self._held(of_run) is None:
                    await self._store.delete(rows.key)
        if indexes_runs(self._store) is None:
            async for entry in indexed(self._store, RunQuery(started_until=old.started_until)):
                if entry.run_id not in seen and entry.started_at < now - BEGINS_WITHIN:
                    with suppress(*UNREADABLE):
                        if await self._held(entry) is None:
                            await self._forget_remains(entry)

    async def _forget_remains(self, entry: Indexed) -> None:
        """Remove the keys of a run without a header, whose start or deletion was interrupted."""
        stored = (await self._store.read(entry.key)).values
        try:
            begun = decode_header(entry.run_id, stored[-1] if stored else b"")
        except UNREADABLE:  # nobody knows more of the run than this entry
            await self._store.delete(entry.key)
            return
        keys = {key for one in get_args(RunStatus) for key in index_keys(replace(begun, status=one))}
        for key in (*keys_of(begun), *sorted(keys)):
            await self._store.delete(key)


def _unreadable(run_id: str, error: Exception) -> RunSummary:
    return RunSummary(
        run_id=run_id,
        pipeline=None,
        status="unreadable",
        started_at=None,
        updated_at=None,
        cost_complete=False,
        error=str(error),
    )


def _due_since(run: RunSummary) -> tuple[datetime, datetime]:
    """Return the time since which a run is due, and that since which it waits. Unreadable runs come last."""
    return run.due_at or _NEVER, run.updated_at or _NEVER
