"""Index entries of runs, by which runs are found without reading all of them, in stores without an index.

A store that finds runs by itself (`IndexesRuns`) has no entries. In others, there are indexes by start,
status, pipeline, tag, tenant and day, one of runs that wait for an answer, and one by the time from which
paused runs can go on.

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
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Final

from fastroai.errors import RevisionConflict
from fastroai.store.clock import EPOCH, MICROSECOND
from fastroai.store.reading.run_index import FoundRun, FoundRuns, indexes_runs
from fastroai.store.reading.run_queries import Place, RunQuery, microseconds
from fastroai.store.record.entries import RunHeader
from fastroai.store.record.headers import UNREADABLE, decode_header, encode_header, header_key, keys_with
from fastroai.store.run_store import RunStore, StoredKey

PREFIX: Final = "index:"
_DAY: Final = f"{PREFIX}day:"
"""Key prefix of the index by day. Days are not hashed, because they are looked up in order."""
_DUE: Final = "due"
"""Name of the index by due time. Its entries are in order of time, separately for each pipeline."""
_LAST: Final = 10**18 - 1
"""More microseconds than any `datetime` has."""
_PAGE: Final = 100
_MANY: Final = 500
"""Runs that are looked for at once where all are wanted."""

logger = logging.getLogger("fastroai.store")


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
    started_at = EPOCH + (_LAST - int(when)) * MICROSECOND
    return Indexed(key, run_id, epoch, started_at)


async def add_to_index(store: RunStore, header: RunHeader, *, before: RunHeader | None = None) -> None:
    """Write the entries that the run did not have `before`. Their value is the current header."""
    if indexes_runs(store) is not None:
        return
    known = () if before is None else index_keys(before)
    value = encode_header(header)
    await in_any_order(_add(store, key, value) for key in index_keys(header) if key not in known)


async def remove_from_index(store: RunStore, header: RunHeader, *, now: RunHeader | None = None) -> None:
    """Remove the entries that the run does not have any more `now`."""
    if indexes_runs(store) is not None:
        return
    kept = () if now is None else index_keys(now)
    await in_any_order(store.delete(key) for key in index_keys(header) if key not in kept)


async def leave_index(store: RunStore, before: RunHeader, now: RunHeader) -> None:
    """Remove index entries that a run no longer has after its header was changed. A failure is logged."""
    try:
        await remove_from_index(store, before, now=now)
    except Exception as error:  # a store can be the user's; and the index is not the truth
        logger.warning("run %r: its old entries in the index could not be removed: %s", now.run_id, error)


# --- finding runs ---


async def find_runs(store: RunStore, query: RunQuery, *, after: Place | None, limit: int) -> FoundRuns:
    """Return at most `limit` runs whose headers match, after a place in the order of the query.

    A header that has become unreadable is among them if nothing else speaks against it.
    """
    own = indexes_runs(store)
    if own is not None:
        return await own.find_runs(query, after=after, limit=limit)
    if query.sort != "started" or query.ascending or query.status == "unreadable":
        return FoundRuns(
            runs=(await _sorted_headers(store, query, after))[:limit], now=await store_time(store)
        )
    now, runs = None, list[FoundRun]()
    async for entry in indexed(store, query, after=after):
        found, now = await held_run(store, entry, query)
        if found is not None:
            runs.append(found)
        if len(runs) == limit:
            break
    return FoundRuns(runs=runs, now=now or await store_time(store))


async def every_run(
    store: RunStore, query: RunQuery, *, after: Place | None = None, at_once: int | None = None
) -> AsyncIterator[tuple[FoundRun, datetime]]:
    """Yield all runs whose headers match, in the order of the query, with the time by the store's clock.

    `at_once` is the number of runs that are wanted, as far as the caller knows.
    """
    if query == RunQuery() and at_once is None and indexes_runs(store) is None:
        # Reading whole pages of headers is faster than reading them one by one.
        now = await store_time(store)
        for one in await _sorted_headers(store, query, after):
            yield one, now
        return
    limit = min(at_once or _MANY, _MANY)
    while True:
        found = await find_runs(store, query, after=after, limit=limit)
        for one in found.runs:
            yield one, found.now
        if len(found.runs) < limit:
            return
        after = found.runs[-1].place


async def count_runs(store: RunStore, query: RunQuery) -> int:
    """Return the number of runs whose headers match."""
    own = indexes_runs(store)
    return len(await _sorted_headers(store, query, None)) if own is None else await own.count_runs(query)


async def due_runs(store: RunStore, pipeline: str) -> tuple[Sequence[FoundRun], datetime]:
    """Return the runs of a pipeline or graph that are due by now, and the time by the store's clock."""
    now = await store_time(store)
    if indexes_runs(store) is not None:
        due = RunQuery(status="paused", pipeline=pipeline, due_until=now + MICROSECOND)
        return [one async for one, _ in every_run(store, due)], now
    runs = list[FoundRun]()
    async for found in keys_with(store, _due_prefix(pipeline)):
        if found.key > f"{_due_until(pipeline, now)};":
            break
        held, _ = await held_run(store, run_in_index(found.key), RunQuery())
        if held is not None:
            runs.append(held)
    return runs, now


async def _sorted_headers(store: RunStore, query: RunQuery, after: Place | None) -> list[FoundRun]:
    """Return all runs whose headers match, after a place. This reads all headers, in pages."""
    runs, prefix = list[FoundRun](), header_key("")
    same_order = RunQuery(sort=query.sort, ascending=query.ascending)
    takes_unreadable = query in (same_order, replace(same_order, status="unreadable"))
    async for found in keys_with(store, prefix):
        run_id = found.key.removeprefix(prefix)
        header: RunHeader | None = None
        matches = takes_unreadable
        with suppress(*UNREADABLE):
            header = decode_header(run_id, found.value)
            matches = query.status != "unreadable" and query.matches(header)
        if matches:
            place = query.place(header, run_id)
            runs.append(FoundRun(place=place, value=found.value, revision=found.revision))
    runs.sort(key=lambda one: query.rank(one.place))
    return [one for one in runs if after is None or query.rank(one.place) > query.rank(after)]


async def held_run(store: RunStore, entry: Indexed, query: RunQuery) -> tuple[FoundRun | None, datetime]:
    """Return the run of an index entry, and the time by the store's clock.

    `None` means that the run is gone, has no such entry any more, or does not match.
    """
    found = await store.read(header_key(entry.run_id))
    if not found.revision:
        return None, found.now
    value = found.values[-1] if found.values else b""
    try:
        header = decode_header(entry.run_id, value)
    except UNREADABLE:
        matches = query.tenants is None  # no entry says of which of several tenants it is
    else:
        matches = entry.key in index_keys(header) and query.matches(header)
    if not matches:
        return None, found.now
    place = Place(microseconds(entry.started_at), entry.run_id)
    return FoundRun(place=place, value=value, revision=found.revision), found.now


async def store_time(store: RunStore) -> datetime:
    """Return the time by the store's own clock."""
    return (await store.read(header_key(""))).now


async def indexed(store: RunStore, query: RunQuery, *, after: Place | None = None) -> AsyncIterator[Indexed]:
    """Yield runs that may match, newest first, after a place in this order."""
    cursors = [_Cursor(store, prefix) for prefix in _prefixes(query)]
    place = "" if query.started_until is None else _newest_first(query.started_until - MICROSECOND)
    if after is not None:
        place = max(place, f"{_LAST - after.order:018}:{after.run_id}:g")  # an epoch has no letter after f
    while True:
        # All indexes have the same order, so each advances to the position that the others have reached.
        for cursor in cursors:
            found = await cursor.next_from(place)
            if found is None:
                return
            place = max(place, found)
        if all(cursor.place == place for cursor in cursors):
            entry = run_in_index(cursors[0].prefix + place)
            if query.started_since is not None and entry.started_at < query.started_since:
                return
            yield entry
            place += "\x01"  # comes right after it


async def held_later(store: RunStore, first: date, last: date) -> AsyncIterator[Indexed]:
    """Yield the runs that a process had on these days, by day, except for the day of their start."""
    async for found in keys_with(store, _DAY, after=_DAY + first.isoformat()):
        if found.key > f"{_DAY}{last.isoformat()};":  # ";" comes right after ":"
            return
        yield run_in_index(found.key)


def _prefixes(query: RunQuery) -> list[str]:
    """Return the key prefixes of the indexes to read, one for each field that is indexed."""
    status = query.recorded_status
    parts = (
        ("status", None if status == "finished" else status),
        ("pipeline", query.pipeline),
        ("tag", query.tag),
        ("tenant", query.tenant),
        ("asks", "" if query.asks else None),
    )
    known = [_prefix(what, value) for what, value in parts if value is not None]
    return known or [_prefix("started", "")]


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
    return f"{_due_prefix(pipeline)}{microseconds(at):018}:"


def _newest_first(at: datetime) -> str:
    """Return a time as text that sorts later times first."""
    return f"{_LAST - microseconds(at):018}"


async def _add(store: RunStore, key: str, value: bytes) -> None:
    with suppress(RevisionConflict):  # the entry exists already
        await store.compare_and_set(key, value, revision=0)


async def in_any_order(writes: Iterable[Awaitable[None]]) -> None:
    """Perform all writes, in any order; then raise the first failure."""
    for outcome in await asyncio.gather(*writes, return_exceptions=True):
        if outcome is not None:
            raise outcome
