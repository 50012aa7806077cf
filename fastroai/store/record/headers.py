"""The header of a run, which says how far it is and who has it; and the keys that a run has in a store."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from fastroai.errors import (
    ConfigurationError,
    RevisionConflict,
    RunCorrupt,
    RunFromNewerVersion,
    RunFromOlderVersion,
    RunInProgress,
    RunNotFound,
)
from fastroai.records import Usage
from fastroai.runtime.fact_base import Fact
from fastroai.runtime.facts import FORMAT, RunFinished
from fastroai.runtime.owner import is_dead, shares_steady_clock, steady_seconds
from fastroai.store.reading.run_quality import QualityOnRecord
from fastroai.store.reading.run_spending import SpendingOnRecord
from fastroai.store.record.checksums import with_checksum, without_checksum
from fastroai.store.record.entries import RunHeader, RunState, entry_in_store, located
from fastroai.store.record.formats import check_format, check_format_in
from fastroai.store.run_store import RunStore, StoredKey, StoredValues

UNREADABLE: Final = (RunCorrupt, RunFromNewerVersion, RunFromOlderVersion)
"""The errors of a header, or of an entry, that cannot be read."""
BEGINS_WITHIN: Final = timedelta(hours=1)
"""Age after which keys without a header are leftovers. Younger keys may be of a run that just begins."""
_PAGE: Final = 500
_EPOCH: Final = re.compile("[0-9a-f]{32}")
_NOT_TEXT: Final = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
_RUN_ID: Final = re.compile(rf"[^\s{_NOT_TEXT}](?:[^{_NOT_TEXT}]{{0,198}}[^\s{_NOT_TEXT}])?")


def check_run_id(run_id: str) -> None:
    """Refuse an invalid id of a run. Raises `ConfigurationError`."""
    if not isinstance(run_id, str) or _RUN_ID.fullmatch(run_id) is None:
        expected = "text of 1 to 200 characters, without control characters, and no space at either end"
        raise ConfigurationError("run_id", run_id, expected)


def header_key(run_id: str) -> str:
    """Return the key of the header of a run."""
    return f"run:{run_id}"


def new_epoch() -> str:
    """Return a new epoch: a name that no other run has, even with the same id; 32 hexadecimal digits."""
    return uuid.uuid4().hex


def log_key(header: RunHeader) -> str:
    """Return the key of the log of a run.

    The key ends with the run's epoch. When the run is deleted, its process cannot append to the log any
    more, even if another run has the same id by then.
    """
    return f"log:{header.run_id}:{header.epoch}"


SIGNALS: Final = "signal:"
"""Key prefix of the signals to all runs."""


def signal_key(header: RunHeader) -> str:
    """Return the key of the last signal to a run."""
    return f"{SIGNALS}{header.run_id}:{header.epoch}"


def mail_key(header: RunHeader) -> str:
    """Return the key of the messages to a run."""
    return f"mail:{header.run_id}:{header.epoch}"


def line_key(header: RunHeader) -> str:
    """Return the key of the line of callers that wait for a run."""
    return f"line:{header.run_id}:{header.epoch}"


def text_key(header: RunHeader) -> str:
    """Return the key of the text that steps of a run are writing."""
    return f"text:{header.run_id}:{header.epoch}"


def rows_key(header: RunHeader) -> str:
    """Return the key of the rows of a run of rows, if they are on record."""
    return f"rows:{header.run_id}:{header.epoch}"


def run_of(key: str) -> tuple[str, str]:
    """Return the run id and the epoch in a key of a run. Keys of format 1 have no epoch."""
    rest = key.partition(":")[2]
    run_id, _, epoch = rest.rpartition(":")
    return (run_id, epoch) if run_id and _EPOCH.fullmatch(epoch) else (rest, "")


KINDS_OF_KEYS: Final = ("log", "signal", "line", "mail", "text", "rows")
"""What the keys of a run begin with, besides that of its header."""


def keys_of(header: RunHeader) -> tuple[str, ...]:
    """Return all keys of a run besides its header."""
    return tuple(f"{kind}:{header.run_id}:{header.epoch}" for kind in KINDS_OF_KEYS)


async def keys_of_id(store: RunStore, run_id: str) -> list[str]:
    """Return the keys, except headers, of all runs that ever had this id: for one with a damaged header."""
    return [
        found.key
        for prefix in (f"{kind}:{run_id}" for kind in KINDS_OF_KEYS)
        async for found in keys_with(store, prefix)
        if run_of(found.key)[0] == run_id
    ]


async def keys_with(store: RunStore, prefix: str, *, after: str = "") -> AsyncIterator[StoredKey]:
    """Yield all keys that begin with a prefix, or those after a key, in order."""
    while page := await store.list(prefix, after=after, limit=_PAGE):
        for found in page:
            yield found
        after = page[-1].key


@cache
def _headers() -> TypeAdapter[RunHeader]:
    return TypeAdapter(RunHeader)


def spending_of(usage: Usage) -> dict[str, Any]:
    """Return the fields of a header that tell the spending of its run."""
    return {
        "requests": usage.request_count,
        "failed_requests": usage.failed_requests,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": usage.cost_usd,
        "cost_complete": usage.cost_complete,
    }


def totals_of(
    header: RunHeader, ended: RunFinished, spending: SpendingOnRecord, quality: QualityOnRecord
) -> dict[str, Any]:
    """Return the fields of a header that tell what is on record of a whole run, which has ended."""
    return {
        "spent": spending.spent(tenant=header.tenant, tags=header.tags),
        "quality": quality.quality(spending.records) if ended.status == "finished" else None,
    }


def encode_header(header: RunHeader) -> bytes:
    """Return a header as it is stored: the fields that have another value than by default, and its format."""
    fields = _headers().dump_json(header, exclude_defaults=True)
    if header.format == FORMAT:
        fields = b'{"format":%d,%b' % (FORMAT, fields[1:])
    return with_checksum(fields)


def decode_header(run_id: str, stored: bytes) -> RunHeader:
    """Return the header that was stored.

    Raises:
        RunFromNewerVersion: a later version of FastroAI has written it.
        RunFromOlderVersion: an earlier version of FastroAI has written it.
        RunCorrupt: it cannot be read.
    """
    if not stored:
        raise RunCorrupt(run_id, 0, "its header is gone from the store")
    text = stored
    try:
        text = without_checksum(stored)
        header = _headers().validate_json(text)
    except ValidationError as error:
        check_format_in(run_id, text)
        raise RunCorrupt(run_id, 0, "its header does not have the fields of a header") from error
    except ValueError as error:
        check_format_in(run_id, stored)  # format 1 had no checksums
        raise RunCorrupt(run_id, 0, f"its header is damaged: {error}") from error
    if header.format == FORMAT:
        return header
    check_format(run_id, header.format)
    return replace(header, format=FORMAT)  # whoever writes it again writes entries of this format, too


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundHeader:
    """A header as it was found in a store."""

    header: RunHeader
    revision: int
    now: datetime
    """Time of the store's own clock when the header was read."""

    @property
    def is_running(self) -> bool:
        """Whether a process has the run, as far as the lease and the process itself tell."""
        return is_running(self.header, self.now)

    def check_not_running(self) -> None:
        """Raise `RunInProgress` if a process holds the lease of the run."""
        if self.is_running:
            raise self.in_progress()

    def in_progress(self) -> RunInProgress:
        """Return the error for a run that another process has, or has had meanwhile and may have ended."""
        header = self.header
        owner = header.owner or "another process"
        return RunInProgress(header.run_id, owner, header.lease_until or self.now)

    @property
    def is_interrupted(self) -> bool:
        """Whether the process of the run has died."""
        header = self.header
        return header.status == "running" and header.owner is not None and not is_running(header, self.now)

    @property
    def state(self) -> RunState:
        """The status of the run, as seen from outside."""
        header = self.header
        if header.status == "running" and header.routing is not None and not self.is_running:
            if header.routing.is_set_aside:
                return "set_aside"
            if header.owner is None:
                return "queued"
        return "interrupted" if self.is_interrupted else header.status

    @property
    def is_due(self) -> bool:
        """Whether the run is paused, and something has come that it waits for, or its time is over."""
        header = self.header
        return header.status == "paused" and header.due_at is not None and header.due_at <= self.now


async def read_header(store: RunStore, run_id: str) -> FoundHeader:
    """Read the header of a run.

    Raises:
        ConfigurationError: this cannot be the id of a run.
        RunNotFound: there is no such run.
        RunCorrupt: its header cannot be read.
        RunFromNewerVersion: a later version of FastroAI has written it.
        RunFromOlderVersion: an earlier version of FastroAI has written it.
    """
    check_run_id(run_id)
    found = await store.read(header_key(run_id))
    if not found.revision:
        raise RunNotFound(run_id, repr(store))
    return FoundHeader(header=header_in(run_id, found), revision=found.revision, now=found.now)


def header_in(run_id: str, found: StoredValues) -> RunHeader:
    """Return the header that was read from a store which has the run. Raises as `decode_header`."""
    return decode_header(run_id, found.values[-1] if found.values else b"")


async def replace_header(store: RunStore, header: RunHeader, revision: int) -> None:
    """Write a header at a revision. If the answer was lost, find out whether it was written.

    Raises:
        RevisionConflict: another process has written the header since it was read.
    """
    key, value = header_key(header.run_id), encode_header(header)
    try:
        await store.compare_and_set(key, value, revision=revision)
    except RevisionConflict:
        if (await store.read(key)).values != (value,):
            raise


def first_due(one: datetime | None, other: datetime | None) -> datetime | None:
    """Return the earlier of two times."""
    return min(filter(None, (one, other)), default=None)


def utc_day(at: datetime) -> date:
    """Return the day of a time in UTC."""
    return at.astimezone(UTC).date()


def is_running(header: RunHeader, now: datetime) -> bool:
    """Return whether a process has the run, as far as the lease and the process itself tell."""
    if header.owner is None or header.lease_until is None:
        return False
    if header.steady_until is not None and shares_steady_clock(header.owner):
        has_lease = header.steady_until > steady_seconds()
    else:
        has_lease = header.lease_until > now
    return has_lease and not is_dead(header.owner)


def check_whole(run_id: str, what: str, found: StoredValues, *, after: int, least: int) -> None:
    """Check that a log, or the messages to a run, were read as a whole from a position on.

    Args:
        run_id: The run.
        what: The values that were read, in the plural.
        found: The values after position `after`.
        after: The position after which they were read.
        least: The revision that they had when the header of the run was written.

    Raises:
        RunCorrupt: the store has lost some.
    """
    wanted = max(found.revision, least) - after
    if (lost := wanted - len(found.values)) > 0:
        since = f" after the first {after}" if after else ""
        raise RunCorrupt(run_id, 0, f"the store has lost {lost} of its {wanted} {what}{since}")


async def read_log_from(store: RunStore, header: RunHeader, first: int) -> dict[int, Fact]:
    """Read the entries of a run from a position on, by position. Raises as `read_log`."""
    after = first - 1
    found = await store.read(log_key(header), after=after)
    if not found.revision:
        raise await _gone(store, header)
    entries = {
        position: entry_in_store(header.run_id, position, value)
        for position, value in enumerate(found.values, first)
    }
    check_whole(header.run_id, "log entries", found, after=after, least=header.log_revision)
    return entries


async def read_log(store: RunStore, header: RunHeader) -> list[Fact]:
    """Read all entries of a run.

    Raises:
        RunNotFound: the run was deleted since its header was read.
        RunCorrupt: an entry cannot be read or is lost, or the log is gone.
        RunFromNewerVersion: a later version of FastroAI has written it.
        RunFromOlderVersion: an earlier version of FastroAI has written it.
    """
    return located([*(await read_log_from(store, header, 1)).values()])


async def _gone(store: RunStore, header: RunHeader) -> RunNotFound | RunCorrupt:
    """Return the error for a run without a log.

    A header is written after a log that is not empty, and deleted before it.
    """
    now = (await read_header(store, header.run_id)).header
    if now.epoch != header.epoch:
        return RunNotFound(header.run_id, repr(store))
    return RunCorrupt(header.run_id, 1, "its log is gone from the store")
