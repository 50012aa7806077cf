"""Index entries of runs, by which runs are found without reading all of them.

There are indexes by start, status, pipeline, tag, tenant and day, one of runs that wait for an answer, and
one by the time from which paused runs can go on.

An entry is a key beside the header of a run, and the header stays the truth. Entries are written before the
header and removed after it, so a process that dies leaves an entry too many, never one too few. A reader
reads the header, and skips an entry that does not fit it.

There is no index of finished runs: most runs are finished, so such an index would exclude few.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from fastroai.errors import RevisionConflict, RunNotFound
from fastroai.runtime.facts import RunStatus
from fastroai.store.record.entries import RunHeader
from fastroai.store.record.headers import FoundHeader, encode_header, keys_with, read_header
from fastroai.store.run_store import RunStore, StoredKey

PREFIX: Final = "index:"
_DAY: Final = f"{PREFIX}day:"
"""Key prefix of the index by day. Days are not hashed, because they are looked up in order."""
_DUE: Final = "due"
"""Name of the index by due time. Its entries are in order of time, separately for each pipeline."""
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_LAST: Final = 10**18 - 1
"""More microseconds than any `datetime` has."""
_PAGE: Final = 100

logger = logging.getLogger("fastroai.store")


@dataclass(frozen=True, slots=True)
class Find:
    """The runs to look for. A run must match every field that is set."""

    status: RunStatus | None = None
    pipeline: str | None = None
    tag: str | None = None
    tenant: str | None = None
    asks: bool = False
    """Whether only runs are wanted that wait for an answer."""

    def prefixes(self) -> list[str]:
        """Return the key prefixes of the indexes to read, one for each field that is indexed."""
        parts = (
            ("status", None if self.status == "finished" else self.status),
            ("pipeline", self.pipeline),
            ("tag", self.tag),
            ("tenant", self.tenant),
            ("asks", "" if self.asks else None),
        )
        known = [_prefix(what, value) for what, value in parts if value is not None]
        return known or [_prefix("started", "")]

    def matches(self, header: RunHeader) -> bool:
        """Return whether the run with this header is one of them."""
        keys = index_keys(header)
        return all(any(key.startswith(prefix) for key in keys) for prefix in self.prefixes())


@dataclass(frozen=True, slots=True)
class Indexed:
    """A run as an index entry names it."""

    key: str
    run_id: str
    epoch: str
    started_at: datetime


def index_keys(header: RunHeader) -> tuple[str, ...]:
    """Return the keys of all index entries of a run with this header."""
    place = f"{_newest_first(header.started_at)}:{header.run_id}:{header.epoch}"
    facets = [("started", ""), ("pipeline", header.pipeline), *(("tag", tag) for tag in header.tags)]
    if header.status != "finished":
        facets.append(("status", header.status))
    if header.tenant is not None:
        facets.append(("tenant", header.tenant))
    if header.questions:
        facets.append(("asks", ""))
    in_order = [f"{_DAY}{day.isoformat()}:" for day in header.later_days]
    if header.due_at is not None:
        in_order.append(_due_until(header.pipeline, header.due_at))
    return tuple(prefix + place for prefix in (*(_prefix(*facet) for facet in facets), *in_order))


def run_in_index(key: str) -> Indexed:
    """Return the run that an index entry names."""
    _, _, _, when, place = key.split(":", 4)
    run_id, _, epoch = place.rpartition(":")
    started_at = _BEGINNING + timedelta(microseconds=_LAST - int(when))
    return Indexed(key, run_id, epoch, started_at)


async def held_run(store: RunStore, entry: Indexed) -> FoundHeader | None:
    """Return the header of the run of an index entry; `None` if the run is gone. Raises as `read_header`."""
    try:
        held = await read_header(store, entry.run_id)
    except RunNotFound:
        return None
    return held if held.header.epoch == entry.epoch else None


async def add_to_index(store: RunStore, header: RunHeader, *, before: RunHeader | None = None) -> None:
    """Write the entries that the run did not have `before`. Their value is the current header."""
    known = () if before is None else index_keys(before)
    value = encode_header(header)
    await in_any_order(_add(store, key, value) for key in index_keys(header) if key not in known)


async def remove_from_index(store: RunStore, header: RunHeader, *, now: RunHeader | None = None) -> None:
    """Remove the entries that the run does not have any more `now`."""
    kept = () if now is None else index_keys(now)
    await in_any_order(store.delete(key) for key in index_keys(header) if key not in kept)


async def leave_index(store: RunStore, before: RunHeader, now: RunHeader) -> None:
    """Remove index entries that a run no longer has after its header was changed. A failure is logged."""
    try:
        await remove_from_index(store, before, now=now)
    except Exception as error:  # a store can be the user's; and the index is not the truth
        logger.warning("run %r: its old entries in the index could not be removed: %s", now.run_id, error)


async def indexed(store: RunStore, find: Find, *, until: datetime | None = None) -> AsyncIterator[Indexed]:
    """Yield runs that may match, newest first; if a time is given, only runs that started until then."""
    cursors = [_Cursor(store, prefix) for prefix in find.prefixes()]
    place = "" if until is None else _newest_first(until)
    while True:
        # All indexes have the same order, so each advances to the position that the others have reached.
        for cursor in cursors:
            found = await cursor.next_from(place)
            if found is None:
                return
            place = max(place, found)
        if all(cursor.place == place for cursor in cursors):
            yield run_in_index(cursors[0].prefix + place)
            place += "\x01"  # comes right after it


async def held_later(store: RunStore, first: date, last: date) -> AsyncIterator[Indexed]:
    """Yield the runs that a process had on these days, by day, except for the day of their start."""
    async for found in keys_with(store, _DAY, after=_DAY + first.isoformat()):
        if found.key > f"{_DAY}{last.isoformat()};":  # ";" comes right after ":"
            return
        yield run_in_index(found.key)


async def due_runs(store: RunStore, pipeline: str, now: datetime) -> AsyncIterator[Indexed]:
    """Yield the runs of a pipeline or graph that are due by now, those that are due for longest first."""
    async for found in keys_with(store, _due_prefix(pipeline)):
        if found.key > f"{_due_until(pipeline, now)};":
            return
        yield run_in_index(found.key)


class _Cursor:
    """A cursor over one index, in order."""

    def __init__(self, store: RunStore, prefix: str) -> None:
        self._store, self.prefix = store, prefix
        self._page: Sequence[StoredKey] = ()
        self._at = 0
        self.place: str | None = ""
        """The current position; `None` after the last."""

    async def next_from(self, place: str) -> str | None:
        """Advance to the first position at or after this one."""
        key = self.prefix + place
        while True:
            while self._at < len(self._page):
                if (found := self._page[self._at].key) >= key:
                    self.place = found.removeprefix(self.prefix)
                    return self.place
                self._at += 1
            after = max(key[:-1], self._page[-1].key if self._page else "")
            self._page, self._at = await self._store.list(self.prefix, after=after, limit=_PAGE), 0
            if not self._page:
                self.place = None
                return None


def _prefix(what: str, value: str) -> str:
    """Return the key prefix of one index. Values are hashed, because they can be long and hold any text."""
    return f"{PREFIX}{what}:{hashlib.sha256(value.encode()).hexdigest()[:32] if value else ''}:"


def _due_prefix(pipeline: str) -> str:
    return f"{_prefix(_DUE, pipeline).removesuffix(':')}-"


def _due_until(pipeline: str, at: datetime) -> str:
    return f"{_due_prefix(pipeline)}{_microseconds(at):018}:"


def _newest_first(at: datetime) -> str:
    """Return a time as text that sorts later times first."""
    return f"{_LAST - _microseconds(at):018}"


def _microseconds(at: datetime) -> int:
    return max((at - _BEGINNING) // _MICROSECOND, 0)


async def _add(store: RunStore, key: str, value: bytes) -> None:
    with suppress(RevisionConflict):  # the entry exists already
        await store.compare_and_set(key, value, revision=0)


async def in_any_order(writes: Iterable[Awaitable[None]]) -> None:
    """Perform all writes, in any order; then raise the first failure."""
    for outcome in await asyncio.gather(*writes, return_exceptions=True):
        if outcome is not None:
            raise outcome
