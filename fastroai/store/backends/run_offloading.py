"""A store of runs that keeps large values in a payload store, and refers to them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import compress
from typing import Any, Final, cast

from fastroai.errors import ConfigurationError, RunCorrupt
from fastroai.runtime.options import check_count
from fastroai.store.backends.adapter import adapt_run_store
from fastroai.store.backends.kept_at import KeptAt
from fastroai.store.backends.payload_stores import PayloadStore
from fastroai.store.hints import UNHEARD, HintsChanges
from fastroai.store.paging import reads_pages
from fastroai.store.reading.reads_runs import ReadsRuns
from fastroai.store.reading.run_index import (
    Begun,
    Dimension,
    Doomed,
    FoundRuns,
    IndexesRuns,
    SpendingFound,
    indexes_runs,
)
from fastroai.store.reading.run_queries import Place, RunQuery
from fastroai.store.record.checksums import REFERENCE
from fastroai.store.record.headers import keys_with, run_of
from fastroai.store.run_store import (
    DeletesAtRevision,
    LeavesOrphans,
    RunStore,
    RunStoreLike,
    StoredKey,
    StoredValues,
)

LARGE: Final = 256 * 2**10
"""Bytes above which a value is kept elsewhere."""
_BEGINS_WITHIN: Final = timedelta(hours=1)
"""Age up to which a payload without a reference is kept, because the value that refers to it may come yet."""


class OffloadingRunStore(ReadsRuns, KeptAt):
    """A `RunStore` that keeps its large values in a `PayloadStore`, and the others in another `RunStore`.

        store = OffloadingRunStore(SQLiteRunStore("runs.db"), FilePayloadStore("payloads"))

    An entry of the log is large if it has more than `above` bytes, by default 256 KiB: because of an output,
    an input, a response or a message in it. It is kept in
    its stored form, so a codec encrypts it too. Each run has its own payloads, which are deleted with it. A
    fork copies the payloads that it needs. Every program that reads the runs needs both stores.
    """

    largest_value = None
    """The store takes a value of any number of bytes."""

    def __init__(self, store: RunStoreLike, payloads: PayloadStore, *, above: int = LARGE) -> None:
        """Put a payload store beside a store of runs.

        Args:
            store: The store of runs.
            payloads: The store of values that have more than `above` bytes.
            above: A number of bytes.

        Raises:
            ConfigurationError: an argument is invalid.
        """
        if not isinstance(payloads, PayloadStore):
            raise ConfigurationError("payloads", payloads, "a PayloadStore, such as FilePayloadStore(folder)")
        check_count("above", above, required=True)
        self.store: Final = adapt_run_store(store)
        """The store of runs, with the values that are not large."""
        self._payloads, self._above = payloads, above

    def __repr__(self) -> str:
        return f"OffloadingRunStore({self.store!r}, {self._payloads!r})"

    @property
    def store_within(self) -> RunStore:
        """The same as `store`."""
        return self.store

    @property
    def _place(self) -> object:
        return self.store, self._payloads

    # --- the operations of a store of runs ---

    async def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
        """See `RunStore`. A payload is kept before the value that refers to it."""
        kept = await asyncio.gather(*(self._kept(key, value, self._above) for value in values))
        await self.store.append(key, kept, revision=revision)

    async def read(self, key: str, *, after: int = 0, limit: int | None = None) -> StoredValues:
        """See `RunStore` and `ReadsPages`.

        Raises:
            RunCorrupt: a payload is lost or damaged.
        """
        if limit is not None and reads_pages(self.store):
            found, first = await self.store.read(key, after=after, limit=limit), after + 1
        else:
            found = await self.store.read(key, after=after)
            first = found.revision - len(found.values) + 1
            found = replace(found, values=found.values[:limit])
        values = await asyncio.gather(
            *(self._value(key, position, value) for position, value in enumerate(found.values, first))
        )
        return replace(found, values=tuple(values))

    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        """See `RunStore`. The store keeps the value itself: replaced values, such as headers, are small."""
        await self.store.compare_and_set(key, await self._kept(key, value, None), revision=revision)

    async def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        """See `RunStore`. A value whose payload is lost is listed as its reference; only `read` raises."""
        found = await self.store.list(prefix, after=after, limit=limit)
        return await asyncio.gather(*map(self._listed, found))

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        """See `DeletesAtRevision`. An interrupted delete can leave payloads: see `forget_orphans`."""
        if revision is None:
            await self.store.delete(key)
        else:
            await cast("DeletesAtRevision", self.store).delete(key, revision=revision)
        await self._payloads.delete(_group_of(key))

    # --- finding runs, if the store within does ---

    async def find_runs(self, query: RunQuery, *, after: Place | None, limit: int) -> FoundRuns:
        """See `IndexesRuns`."""
        return await self._index.find_runs(query, after=after, limit=limit)

    async def count_runs(self, query: RunQuery) -> int:
        """See `IndexesRuns`."""
        return await self._index.count_runs(query)

    async def sum_spending(
        self, since: datetime | None, until: datetime | None, by: Collection[Dimension]
    ) -> SpendingFound:
        """See `IndexesRuns`."""
        return await self._index.sum_spending(since, until, by)

    async def begin_run(self, begun: Begun) -> None:
        """See `IndexesRuns`. Payloads are kept before the values that refer to them."""
        key, log = begun.key, begun.log_key
        entries = await asyncio.gather(*(self._kept(log, entry, self._above) for entry in begun.entries))
        value = await self._kept(key, begun.value, None)
        await self._index.begin_run(replace(begun, value=value, entries=entries))

    async def delete_runs(self, doomed: Sequence[Doomed]) -> Sequence[bool]:
        """Delete runs with their payloads, and say which of them it was, as `IndexesRuns` explains.

        An interrupted delete can leave payloads: see `forget_orphans`.
        """
        are_gone = await self._index.delete_runs(doomed)
        for one in compress(doomed, are_gone):
            for key in (one.key, *one.others):
                await self._payloads.delete(_group_of(key))
        return are_gone

    async def index_anew(self) -> None:
        """See `IndexesRuns`."""
        await self._index.index_anew()

    @property
    def _index(self) -> IndexesRuns:
        own = indexes_runs(self.store)
        if own is None:
            raise ConfigurationError("store", self.store, "a store with indexes of its own (IndexesRuns)")
        return own

    # --- operations that only some stores have ---

    async def changed(self, key: str, *, revision: int, timeout: float) -> None:
        """See `HintsChanges`."""
        if isinstance(self.store, HintsChanges):
            await self.store.changed(key, revision=revision, timeout=timeout)
        else:
            await asyncio.sleep(min(timeout, UNHEARD))

    async def aclose(self) -> None:
        """Close the store of runs. It opens again if it is used."""
        close: Any = getattr(self.store, "aclose", None)
        if close is not None:
            await close()

    async def forget_orphans(self) -> None:
        """Delete payloads of keys that do not exist, if their last change is over an hour ago.

        They are left by an interrupted delete, or by a process that died before it stored a run. `purge`
        does this too.
        """
        before = datetime.now(UTC) - _BEGINS_WITHIN
        old = {group for group, changed in (await self._payloads.groups()).items() if changed < before}
        if old:
            async for found in keys_with(self.store, ""):
                old.discard(_group_of(found.key))
        for group in old:
            await self._payloads.delete(group)
        if isinstance(self.store, LeavesOrphans):
            await self.store.forget_orphans()

    # --- values ---

    async def _kept(self, key: str, value: bytes, above: int | None) -> bytes:
        """Return the bytes that the store keeps: the value itself, or a reference to its payload."""
        if not isinstance(value, bytes):
            return value  # the store refuses it
        is_large = above is not None and len(value) > above
        if not is_large and not value.startswith(REFERENCE):  # nor one that looks like a reference
            return value
        name = hashlib.sha256(value).hexdigest()
        await self._payloads.put(_group_of(key), name, value)
        return b"%b%b %d" % (REFERENCE, name.encode(), len(value))

    async def _value(self, key: str, position: int, stored: bytes) -> bytes:
        if not stored.startswith(REFERENCE):
            return stored
        name, _, size = stored.removeprefix(REFERENCE).decode(errors="replace").partition(" ")
        payload = await self._payloads.get(_group_of(key), name)
        if payload is None:
            raise _lost(key, position, f"its {size} bytes are missing from {self._payloads!r}: {name}")
        if hashlib.sha256(payload).hexdigest() != name:
            raise _lost(key, position, f"its {size} bytes in {self._payloads!r} have changed: {name}")
        return payload

    async def _listed(self, found: StoredKey) -> StoredKey:
        try:
            return replace(found, value=await self._value(found.key, found.revision, found.value))
        except RunCorrupt:
            return found


def _group_of(key: str) -> str:
    """Return the group of the payloads of a key. A key can be too long for the name of a file."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _lost(key: str, position: int, reason: str) -> RunCorrupt:
    run_id, _ = run_of(key)
    if key.startswith("log:"):
        return RunCorrupt(run_id, position, reason)
    return RunCorrupt(run_id, 0, f"value {position} of {key!r}: {reason}")
