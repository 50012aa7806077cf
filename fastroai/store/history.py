"""The runs in a store: which there are, what happened in them, and forgetting them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from fastroai.errors import (
    ConfigurationError,
    RevisionConflict,
    RunCorrupt,
    RunFromNewerVersion,
    RunFromOlderVersion,
    RunInProgress,
    RunNotFound,
    RunStoreUnavailable,
)
from fastroai.store.entries import RunHeader, RunStatus, entry_in_store
from fastroai.store.headers import (
    decode_header,
    encode_header,
    header_key,
    is_running,
    keys_of,
    keys_of_id,
    keys_with,
    read_header,
    read_log,
    run_of,
)
from fastroai.store.payloads import PayloadCodec, unseal_text
from fastroai.store.run_store import RunStore

if TYPE_CHECKING:
    from fastroai.store.trace import RunTrace

RunState: TypeAlias = RunStatus | Literal["interrupted", "unreadable"]
"""Where a run is, as far as it can be told from outside.

`interrupted`: the process that ran it has died; it can be resumed. `unreadable`: its record is damaged,
or of another version of FastroAI.
"""

_STATES: Final = tuple(state for part in get_args(RunState) for state in get_args(part))
_UNREADABLE: Final = (RunCorrupt, RunFromNewerVersion, RunFromOlderVersion)
_TRIES: Final = 10
"""How often a delete starts over because the run has changed meanwhile."""
_BEGINS_WITHIN: Final = timedelta(hours=1)
"""A log that no header names may be that of a run which is just beginning, unless it is older than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run at a glance."""

    run_id: str
    pipeline: str | None
    status: RunState
    started_at: datetime | None
    updated_at: datetime | None
    requests: int = 0
    cost_usd: Decimal = Decimal(0)
    """Known cost in US dollars, as of `updated_at`."""
    owner: str | None = None
    """The process that runs it, or that did when it died."""
    lease_until: datetime | None = None
    error: str | None = None
    """Why it failed, or why it cannot be read."""
    forked_from: str | None = None

    @classmethod
    def of(cls, header: RunHeader, now: datetime) -> RunSummary:
        """What a header says at a time of the store's own clock."""
        interrupted = header.status == "running" and not is_running(header, now)
        return cls(
            run_id=header.run_id,
            pipeline=header.pipeline,
            status="interrupted" if interrupted else header.status,
            started_at=header.started_at,
            updated_at=header.updated_at,
            requests=header.requests,
            cost_usd=header.cost_usd,
            owner=header.owner,
            lease_until=header.lease_until,
            error=header.error,
            forked_from=header.forked_from,
        )


class RunHistory:
    """The runs in a store.

        history = RunHistory(SQLiteRunStore("runs.db"))
        for run in await history.list(status="failed", limit=10):
            print(run.run_id, run.error)
        await history.purge(timedelta(days=30))

    It keeps nothing in memory: each call reads the store.
    """

    def __init__(self, store: RunStore, *, codec: PayloadCodec | None = None) -> None:
        """`codec` is that of the runs, if they have one; without it, they are shown as they are stored."""
        self._store, self._codec = store, codec

    def __repr__(self) -> str:
        return f"RunHistory({self._store!r})"

    async def list(
        self, *, status: RunState | None = None, pipeline: str | None = None, limit: int | None = None
    ) -> tuple[RunSummary, ...]:
        """The runs, newest first; those that cannot be read come last.

        Args:
            status: Only those that are there.
            pipeline: Only those of the pipeline with this name.
            limit: Only so many.

        Raises:
            ConfigurationError: there is no such status, or `limit` is below 1.
            RunStoreUnavailable: the store could not be read.
        """
        _check_status(status)
        if limit is not None and limit < 1:
            raise ConfigurationError("limit", limit, "at least 1")
        runs = [
            run
            async for run in self._runs()
            if status in (None, run.status) and pipeline in (None, run.pipeline)
        ]
        runs.sort(key=lambda run: run.run_id)
        runs.sort(key=lambda run: (run.started_at is not None, run.started_at), reverse=True)
        return tuple(runs[:limit])

    async def summary(self, run_id: str) -> RunSummary:
        """A run at a glance. Raises as `header`."""
        found = await read_header(self._store, run_id)
        return self._summary(found.header, found.now)

    async def header(self, run_id: str) -> RunHeader:
        """What is on record of a run besides its log.

        Raises:
            RunNotFound: there is no such run.
            RunCorrupt: it cannot be read.
            RunFromNewerVersion: a later version of FastroAI has written it.
            RunFromOlderVersion: an earlier version of FastroAI has written it.
        """
        return (await read_header(self._store, run_id)).header

    async def trace(self, run_id: str) -> RunTrace:
        """What happened in a run, as far as it is on record. Raises as `header`."""
        from fastroai.store.trace import RunTrace
        from fastroai.store.unsealing import unseal_entry

        entries = await read_log(self._store, await self.header(run_id))
        try:
            return RunTrace(unseal_entry(entry, self._codec) for entry in entries)
        except ConfigurationError:
            raise RunCorrupt(run_id, 1, "a log begins with run_opened") from None

    async def delete(self, run_id: str, *, force: bool = False) -> None:
        """Forget a run. If this is cut off, the run is either as it was, or gone.

        Args:
            run_id: The run.
            force: Also a run that a process has: it finds out when it next writes, and stops. What it writes
                until then is never part of a later run with this id. And a run whose record cannot be read.

        Raises:
            RunInProgress: a process has it.
            RunNotFound: there is no such run.
        """
        for _ in range(_TRIES):
            try:
                keys = await self._take_from_others(run_id, force)
            except RevisionConflict:
                continue  # somebody has written: look again
            # The header first: without it there is no run.
            for key in (header_key(run_id), *keys):
                await self._store.delete(key)
            return
        reason = f"the header of run {run_id!r} changes faster than it can be read"
        raise RunStoreUnavailable(repr(self._store), reason)

    async def purge(
        self,
        older_than: timedelta,
        *,
        status: RunState | Collection[RunState] | None = None,
        dry_run: bool = False,
    ) -> tuple[str, ...]:
        """Forget the runs in which nothing has happened for so long, and give their ids.

        Never those that a process has. Those that cannot be read have no age: they are left, too.

        Args:
            older_than: The age.
            status: Only those that are there; by default all, interrupted and waiting ones included.
            dry_run: Only tell which.

        Raises:
            ConfigurationError: there is no such status, or the age is negative.
        """
        wanted = {status} if isinstance(status, str) else None if status is None else set(status)
        for one in wanted or ():
            _check_status(one)
        if older_than < timedelta(0):
            raise ConfigurationError("older_than", older_than, "an age, 0 or more")
        deleted = []
        end = await self._now() - older_than
        async for run in self._runs():
            is_old = run.updated_at is not None and run.updated_at <= end
            is_wanted = run.status != "running" and (wanted is None or run.status in wanted)
            if is_old and is_wanted and (dry_run or await self._purge(run.run_id)):
                deleted.append(run.run_id)
        if not dry_run:
            await self._forget_remains()
        return tuple(deleted)

    # --- reading ---

    async def _runs(self) -> AsyncIterator[RunSummary]:
        prefix, now = header_key(""), await self._now()
        async for found in keys_with(self._store, prefix):
            run_id = found.key.removeprefix(prefix)
            try:
                yield self._summary(decode_header(run_id, found.value), now)
            except _UNREADABLE as error:
                yield RunSummary(
                    run_id=run_id,
                    pipeline=None,
                    status="unreadable",
                    started_at=None,
                    updated_at=None,
                    error=str(error),
                )

    async def _now(self) -> datetime:
        return (await self._store.read(header_key(""))).now

    def _summary(self, header: RunHeader, now: datetime) -> RunSummary:
        summary = RunSummary.of(header, now)
        if summary.error is None:
            return summary
        error_type, colon, message = summary.error.partition(": ")
        return replace(summary, error=f"{error_type}{colon}{unseal_text(message, self._codec)}")

    # --- forgetting ---

    async def _take_from_others(self, run_id: str, force: bool) -> Sequence[str]:
        """Write the header anew, so that whoever is about to take the run up is refused. Its other keys."""
        try:
            found = await read_header(self._store, run_id)
        except _UNREADABLE:
            if force:
                return await keys_of_id(self._store, run_id)
            raise
        if not force:
            found.check_not_running()
        stored = encode_header(found.header)
        await self._store.compare_and_set(header_key(run_id), stored, revision=found.revision)
        return keys_of(found.header)

    async def _purge(self, run_id: str) -> bool:
        try:
            await self.delete(run_id)
        except (RunInProgress, RunNotFound):
            return False  # it was taken up, or deleted, meanwhile
        return True

    async def _forget_remains(self) -> None:
        """Logs that no header names, of runs whose beginning or deletion was cut off."""
        before = await self._now() - _BEGINS_WITHIN
        async for found in keys_with(self._store, "log:"):
            run_id, epoch = run_of(found.key)
            try:
                last = entry_in_store(run_id, found.revision, found.value)
                if last.at < before and (await self.header(run_id)).epoch != epoch:
                    await self._store.delete(found.key)
            except RunNotFound:
                await self._store.delete(found.key)
            except _UNREADABLE:
                continue  # what cannot be read has no age


class ReadsRuns:
    """A base class for stores of runs, so that `await store.trace(run_id)` works."""

    async def trace(self: RunStore, run_id: str) -> RunTrace:
        """What happened in a run, as far as it is on record. Raises as `RunHistory.trace`."""
        return await RunHistory(self).trace(run_id)


def _check_status(status: object) -> None:
    if status is not None and status not in _STATES:
        raise ConfigurationError("status", status, f"one of {', '.join(_STATES)}")
