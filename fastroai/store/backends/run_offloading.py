"""A store of runs that keeps large values in a payload store, and refers to them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
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
from fastroai.store.record.headers import BEGINS_WITHIN, keys_with, run_of
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


class OffloadingRunStore(ReadsRuns, KeptAt):
    """A `RunStore` that keeps its large values in a `PayloadStore`, and the others in another `RunStore`.

        store = OffloadingRunStore(SQLiteRunStore("runs.db"), FilePayloadStore("payloads"))

    An entry of the log is large if it has more than `above` bytes, by default 256 KiB: because of an output,
    an input, a response or a message in it. It is kept in its stored form, so a codec encrypts it too. Each
    run has its own payloads, which are deleted with it. A fork copies the payloads that it needs. Every
    program that reads the runs needs both stores. `store` can also be a path or URL, as for `open_run_store`.

    Raises:
        ConfigurationError: an argument is invalid.
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
        """The store of runs, with the values that are not large: the same as `store`."""
        return self.store

    @property
    def _place(self) -> object:
        return self.store, self._payloads

    # --- the operations of a store of runs ---

    async def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
        """Add values to a key after position `revision`, which must be its last one: all of them or none.

        A key that does not exist has revision 0. Without values, only the revision is checked. Values with
        more bytes than `above` are written to the payload store first, and the key gets references to them.

        Raises:
            RevisionConflict: the last position of the key is not `revision`.
            ConfigurationError: the key or the revision is invalid, or a value is not bytes.
            RunStoreUnavailable: one of the two stores cannot be reached, read or written.
        """
        kept = await asyncio.gather(*(self._kept(key, value, self._above) for value in values))
        await self.store.append(key, kept, revision=revision)

    async def read(self, key: str, *, after: int = 0, limit: int | None = None) -> StoredValues:
        """Return the values of a key at positions above `after`, in order, and the revision of the key.

        The revision is the position of its last value; 0 if the key does not exist. `limit` is the most
        values to return, from the first on; by default all. `now` of the result is the time by the clock of
        the store of runs, in UTC. Large values are read from the payload store.

        Raises:
            RunCorrupt: a payload is lost or damaged.
            ConfigurationError: the key or `after` is invalid.
            RunStoreUnavailable: one of the two stores cannot be reached, read or written.
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
        """Replace all values of a key by one, after position `revision`, which must be its last one.

        A key that does not exist has revision 0. The new value is at position `revision` + 1; of a new key,
        it can be at a later one, above each revision at which a key was deleted. The value stays in the store
        of runs, whatever its size: replaced values, such as headers, are small.

        Raises:
            RevisionConflict: the last position of the key is not `revision`.
            ConfigurationError: the key or the revision is invalid, or the value is not bytes.
            RunStoreUnavailable: one of the two stores cannot be reached, read or written.
        """
        await self.store.compare_and_set(key, await self._kept(key, value, None), revision=revision)

    async def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        """Return the first `limit` keys that begin with `prefix` and come after the key `after`, in order.

        Each comes with its last value and its revision. The order is that of code points. For the next page,
        give the last key of this one as `after`. After the last page comes an empty one. A value whose
        payload is lost is listed as its reference; only `read` raises.

        Raises:
            ConfigurationError: `limit` is below 1, or `prefix` or `after` is not text that a key can have.
            RunStoreUnavailable: one of the two stores cannot be reached, read or written.
        """
        found = await self.store.list(prefix, after=after, limit=limit)
        return await asyncio.gather(*map(self._listed, found))

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        """Delete a key with all its values; with `revision`, only if that is its last position.

        Without `revision`, nothing happens if the key does not exist. After a deletion with a revision, every
        new key of the store that `compare_and_set` makes, whatever its name, begins above that revision. So a
        late write to the old key fails. At the end, the payloads of the key are deleted. If that is
        interrupted, some can be left: see `forget_orphans`.

        Raises:
            RevisionConflict: the last position of the key is not `revision`, or the key is gone.
            ConfigurationError: the key is invalid.
            RunStoreUnavailable: one of the two stores cannot be reached, read or written.
        """
        if revision is None:
            await self.store.delete(key)
        else:
            await cast("DeletesAtRevision", self.store).delete(key, revision=revision)
        await self._payloads.delete(_group_of(key))

    # --- finding runs, if the store within does ---

    async def find_runs(self, query: RunQuery, *, after: Place | None, limit: int) -> FoundRuns:
        """Return at most `limit` runs whose headers match a query, in its order, from the index of the store.

        With `after`, they are the runs behind that place in the order; `None` is the beginning. Each run
        comes with its stored header (a summary of the run), the revision of that, and its place. `now` of the
        result is the time by the clock of the store of runs. Headers do not tell `queued`, `interrupted` and
        `set_aside` from `running`: for these, runs with any of the four statuses are returned.

        Raises:
            ConfigurationError: the store of runs finds no runs by itself.
            RunStoreUnavailable: the store of runs cannot be reached, read or written.
        """
        return await self._index.find_runs(query, after=after, limit=limit)

    async def count_runs(self, query: RunQuery) -> int:
        """Return the number of runs whose headers match a query, from the index of the store.

        Headers do not tell `queued`, `interrupted` and `set_aside` from `running`: for these, runs with any
        of the four statuses are counted.

        Raises:
            ConfigurationError: the store of runs finds no runs by itself.
            RunStoreUnavailable: the store of runs cannot be reached, read or written.
        """
        return await self._index.count_runs(query)

    async def sum_spending(
        self, since: datetime | None, until: datetime | None, by: Collection[Dimension]
    ) -> SpendingFound:
        """Return sums of the spending in a period, from the index of the store.

        The period is from `since` on and before `until`; `None` is no limit. The sums include only runs whose
        whole spending is in the period. `unread` of the result has the ids of other runs that may have spent
        something in the period: the caller reads their records. There is a sum for each combination of the
        fields in `by`, in which all tags of the spending are one value; several sums can have the same
        fields.

        Raises:
            ConfigurationError: the store of runs finds no runs by itself.
            RunStoreUnavailable: the store of runs cannot be reached, read or written.
        """
        return await self._index.sum_spending(since, until, by)

    async def begin_run(self, begun: Begun) -> None:
        """Write the header and the log of a new run, together or not at all.

        The header is a summary of the run, by which the index finds it from then on. Entries of the log that
        are large go to the payload store first.

        Raises:
            RevisionConflict: the last position of the key of the header is not `begun.revision`.
            ConfigurationError: the store of runs finds no runs by itself.
            RunStoreUnavailable: one of the two stores cannot be reached, read or written.
        """
        key, log = begun.key, begun.log_key
        entries = await asyncio.gather(*(self._kept(log, entry, self._above) for entry in begun.entries))
        value = await self._kept(key, begun.value, None)
        await self._index.begin_run(replace(begun, value=value, entries=entries))

    async def delete_runs(self, doomed: Sequence[Doomed]) -> Sequence[bool]:
        """Delete runs whose headers still have the given revisions, each with its other keys.

        The result has, for each run in the order given, whether it was deleted: `False` if its header is gone
        or has another revision. As with `delete` with a revision, no new header has such a revision again.
        Then the payloads of the deleted runs are deleted. If that is interrupted, some can be left: see
        `forget_orphans`.

        Raises:
            ConfigurationError: the store of runs finds no runs by itself.
            RunStoreUnavailable: one of the two stores cannot be reached, read or written.
        """
        are_gone = await self._index.delete_runs(doomed)
        for one in compress(doomed, are_gone):
            for key in (one.key, *one.others):
                await self._payloads.delete(_group_of(key))
        return are_gone

    async def index_anew(self) -> None:
        """Mark the whole index of runs as out of date. The next query rebuilds it from the headers.

        It is for a store in which somebody has changed rows by hand.

        Raises:
            ConfigurationError: the store of runs finds no runs by itself.
            RunStoreUnavailable: the store of runs cannot be reached, read or written.
        """
        await self._index.index_anew()

    @property
    def _index(self) -> IndexesRuns:
        own = indexes_runs(self.store)
        if own is None:
            raise ConfigurationError("store", self.store, "a store with indexes of its own (IndexesRuns)")
        return own

    # --- operations that only some stores have ---

    async def changed(self, key: str, *, revision: int, timeout: float) -> None:
        """Wait until a key has another revision than this, for at most `timeout` seconds.

        It returns at once if the key has another one already. It is only a hint: it can return although
        nothing has changed, or miss a change until the timeout. So read the key afterwards, and call again.
        If the store of runs has no method `changed`, this returns after `timeout` seconds, or after half a
        second if that is less.

        Raises:
            RunStoreUnavailable: the store of runs cannot be reached, or does not answer in time.
        """
        if isinstance(self.store, HintsChanges):
            await self.store.changed(key, revision=revision, timeout=timeout)
        else:
            await asyncio.sleep(min(timeout, UNHEARD))

    async def aclose(self) -> None:
        """Close the store of runs, if it can be closed. It opens again if it is used."""
        close: Any = getattr(self.store, "aclose", None)
        if close is not None:
            await close()

    async def forget_orphans(self) -> None:
        """Delete payloads of keys that do not exist, if their last change is over an hour ago.

        They are left by an interrupted delete, or by a process that died before it stored a run. The store of
        runs forgets its own leftovers, too. `RunHistory.purge` calls this. It reads all keys if there are old
        payloads.

        Raises:
            RunStoreUnavailable: one of the stores cannot be reached, read or written.
        """
        before = datetime.now(UTC) - BEGINS_WITHIN
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
