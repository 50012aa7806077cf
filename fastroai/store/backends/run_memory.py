"""A store of runs that lives as long as its process."""

from __future__ import annotations

import functools
import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from fastroai.errors import RevisionConflict
from fastroai.forks import ForkGate
from fastroai.runtime.concurrency.wakeup import wait_for
from fastroai.store.backends.run_arguments import (
    KeyRange,
    check_largest_value,
    check_position,
    check_values,
    key_bytes,
)
from fastroai.store.clock import check_clock, utc_now
from fastroai.store.hints import Waiters
from fastroai.store.reading.reads_runs import ReadsRuns
from fastroai.store.run_store import LARGEST_VALUE, StoredKey, StoredValues

_gate: Final = ForkGate()
"""Keeps forks out of operations, so that a forked process has a whole copy of the store."""


@dataclass(slots=True)
class _Held:
    before: int = 0
    """Position before the first value."""
    values: list[bytes] = field(default_factory=list)

    @property
    def revision(self) -> int:
        return self.before + len(self.values)


class MemoryRunStore(ReadsRuns):
    """A `RunStore` in memory, for any threads and event loops of one process. Mostly for tests.

    Runs are lost when the process ends. `clock` gives the time, with its time zone; by default it is that of
    the machine. `largest_value` is the most bytes of a value that a run may store, at least 100,000; `None`
    for any number. A step with a larger value fails with `ValueNotStorable`.

    Raises:
        ConfigurationError: `clock` cannot be called, or `largest_value` is invalid.
    """

    def __init__(
        self, *, clock: Callable[[], datetime] = utc_now, largest_value: int | None = LARGEST_VALUE
    ) -> None:
        """`clock` gives the time, with its time zone. `largest_value` bounds the bytes of one value."""
        check_largest_value(largest_value)
        check_clock(clock)
        self.largest_value = largest_value
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[bytes, _Held] = {}
        self._keys: list[bytes] = []
        """All keys, sorted."""
        self._new_after = 0
        """The position after which keys begin: the highest revision at which one was deleted."""
        self._waiters = Waiters()

    def __repr__(self) -> str:
        return "MemoryRunStore()"

    async def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
        """Add values to a key after position `revision`, which must be its last one: all of them or none.

        A key that does not exist has revision 0. Without values, only the revision is checked.

        Raises:
            RevisionConflict: the last position of the key is not `revision`.
            ConfigurationError: the key or the revision is invalid, or a value is not bytes.
        """
        name = key_bytes(key)
        check_values(values, revision)
        with _gate, self._lock:
            self._expect(key, name, revision)
            if values:
                self._open(name).values.extend(values)
        self._waiters.wake(name)

    async def read(self, key: str, *, after: int = 0, limit: int | None = None) -> StoredValues:
        """Return the values of a key at positions above `after`, in order, and the revision of the key.

        The revision is the position of its last value; 0 if the key does not exist. `limit` is the most
        values to return, from the first on; by default all. `now` of the result is the time by the clock of
        the store, in UTC.

        Raises:
            ConfigurationError: the key or `after` is invalid.
        """
        name = key_bytes(key)
        check_position("after", after)
        with _gate, self._lock:
            held = self._held.get(name) or _Held()
            start = max(after - held.before, 0)
            values = tuple(held.values[start : None if limit is None else start + limit])
            return StoredValues(values=values, revision=held.revision, now=self._clock().astimezone(UTC))

    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        """Replace all values of a key by one, after position `revision`, which must be its last one.

        A key that does not exist has revision 0. The new value is at position `revision` + 1; of a new key,
        it can be at a later one, above each revision at which a key was deleted.

        Raises:
            RevisionConflict: the last position of the key is not `revision`.
            ConfigurationError: the key or the revision is invalid, or the value is not bytes.
        """
        name = key_bytes(key)
        check_values([value], revision)
        with _gate, self._lock:
            self._expect(key, name, revision)
            held = self._open(name)
            held.before, held.values = revision or self._new_after, [value]
        self._waiters.wake(name)

    async def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        """Return the first `limit` keys that begin with `prefix` and come after the key `after`, in order.

        Each comes with its last value and its revision. The order is that of code points. For the next page,
        give the last key of this one as `after`. After the last page comes an empty one.

        Raises:
            ConfigurationError: `limit` is below 1, or `prefix` or `after` is not text that a key can have.
        """
        keys = KeyRange.of(prefix, after, limit)
        with _gate, self._lock:
            start, end = bisect_left(self._keys, keys.first), bisect_left(self._keys, keys.end)
            found = [(name, self._held[name]) for name in self._keys[start : min(end, start + limit)]]
            return [
                StoredKey(key=name.decode(), value=held.values[-1], revision=held.revision)
                for name, held in found
            ]

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        """Delete a key with all its values; with `revision`, only if that is its last position.

        Without `revision`, nothing happens if the key does not exist. After a deletion with a revision, every
        new key of the store that `compare_and_set` makes, whatever its name, begins above that revision. So a
        late write to the old key fails.

        Raises:
            RevisionConflict: the last position of the key is not `revision`, or the key is gone.
            ConfigurationError: the key is invalid.
        """
        name = key_bytes(key)
        with _gate, self._lock:
            if revision is not None:
                self._expect(key, name, revision)
                self._new_after = max(self._new_after, revision)
            if self._held.pop(name, None):
                del self._keys[bisect_left(self._keys, name)]
        self._waiters.wake(name)

    async def aclose(self) -> None:
        """Do nothing, because there is nothing to close. The runs stay, and the store can still be used."""

    async def changed(self, key: str, *, revision: int, timeout: float) -> None:
        """Wait until a key has another revision than this, for at most `timeout` seconds.

        It returns at once if the key has another one already. It is only a hint: it can return although
        nothing has changed, or miss a change until the timeout. So read the key afterwards, and call again.
        """
        with self._waiters.waiting(key_bytes(key)) as woken:
            if (await self.read(key, after=revision)).revision == revision:
                await wait_for(woken, timeout)

    def _expect(self, key: str, name: bytes, revision: int) -> None:
        held = self._held.get(name)
        actual = held.revision if held else 0
        if actual != revision:
            raise RevisionConflict(key, revision, actual)

    def _open(self, name: bytes) -> _Held:
        if name not in self._held:
            self._held[name] = _Held()
            insort(self._keys, name)
        return self._held[name]


@functools.cache
def process_run_store() -> MemoryRunStore:
    """Return the store of this process, for runs that wait in it and that no other store keeps."""
    return MemoryRunStore()
