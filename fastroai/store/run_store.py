"""The protocol of stores of runs: five operations on keys, each of which happens whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from inspect import signature
from typing import Final, Protocol, TypeAlias, runtime_checkable

from typing_extensions import TypeIs

LONGEST_KEY: Final = 512
"""Most characters of a key."""
LAST_POSITION: Final = 2**32 - 1
LARGEST_VALUE: Final = 64 * 2**20
"""Most bytes of one value, unless a store has another `largest_value`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredValues:
    """The values of a key that `RunStore.read` returns.

    `values` are those after the position that was asked for, in order, and can be empty. `revision` is the
    position of the last value of the whole key; 0 if the key does not exist. `now` is the time of the read by
    the store's own clock, in UTC.
    """

    values: tuple[bytes, ...]
    revision: int
    """Position of the key's last value; 0 if the key does not exist."""
    now: datetime
    """The store's own clock, UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKey:
    """A key and its last value, as `RunStore.list` returns them.

    `value` is `b""` if all values of the key have been lost.
    """

    key: str
    value: bytes
    revision: int
    """Position of that value."""


@runtime_checkable
class RunStore(Protocol):
    """A store for the records of runs: each key holds values (bytes) at consecutive positions.

    Write your own with these five methods, async or not; no base class is needed. `RunStoreSuite` in
    `fastroai.testing` tests it. The revision of a key is the position of its last value, so it tells whether
    another process has written.

    Every operation is atomic: others see it whole or not at all, and one that has returned is seen by all.
    Any number of event loops, threads and processes use a store at once. Keys are text of 1 to 512
    characters without NUL; values are bytes; positions are below 2³².

    An operation that failed, was cancelled or lost its connection may have happened all the same, and a
    store may repeat it by itself. So a `RevisionConflict` can come from your own earlier write: read the
    key and compare before you conclude that another process has written.

    A store that has lost values, for example because somebody has removed them, returns those that are left.
    The revision of the key stays what it was, as far as the store knows it. `list` still returns a key that
    has no value left, with `b""` as its last value. So readers find out that values are missing.

    A store may have an attribute `largest_value`: the most bytes of one value, by default 64 MiB; `None` for
    any number. A larger value is not given to the store: a step or run that has one fails with
    `ValueNotStorable`, and a message or an answer is rejected.

    Raises:
        RunStoreUnavailable: from every operation, if the store cannot be reached, does not answer, or cannot
            write.
        ConfigurationError: a key, position or limit that no store takes.
    """

    async def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
        """Add values to a key, if its last position is `revision`: all of them or none.

        The new revision of the key is `revision` plus the number of values. A key that does not exist has
        revision 0, and is created. Without values, only the revision is checked.

        Raises:
            RevisionConflict: the last position of the key is not `revision`. This can come from your own
                earlier write, whose answer was lost.
            RunStoreUnavailable: the store cannot be reached or cannot write. The values may be written all
                the same.
        """
        ...

    async def read(self, key: str, *, after: int = 0) -> StoredValues:
        """Return the values at positions above `after`, in order, with the revision of the key and the time.

        By default, these are all values. A key that does not exist has no values and revision 0. Positions
        need not begin at 1, because `compare_and_set` keeps only the last value. The position of the first
        value that was read is the revision minus the number of values, plus 1.

        Raises:
            RunStoreUnavailable: the store cannot be reached or does not answer.
        """
        ...

    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        """Replace all values of a key by one value, if the key's last position is `revision`.

        The value gets position `revision` + 1. A key that does not exist has revision 0, and is created. Some
        stores give its first value a later position: see `DeletesAtRevision`.

        Raises:
            RevisionConflict: the last position of the key is not `revision`. This can come from your own
                earlier write, whose answer was lost.
            RunStoreUnavailable: the store cannot be reached or cannot write. The value may be written all the
                same.
        """
        ...

    async def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        """Return the first `limit` keys that begin with `prefix` and come after the key `after`, in order.

        Each comes with its last value and its revision. The order is that of code points. For the next page,
        give the last key of this one as `after`. After the last page comes an empty one.

        Raises:
            RunStoreUnavailable: the store cannot be reached or does not answer.
        """
        ...

    async def delete(self, key: str) -> None:
        """Delete a key with all its values. Nothing happens if the key does not exist.

        The key then has revision 0, as a key that never existed.

        Raises:
            RunStoreUnavailable: the store cannot be reached or cannot write. The key may be deleted all the
                same.
        """
        ...


RunStoreLike: TypeAlias = RunStore | str | os.PathLike[str]
"""A store of runs, or the place of one as `open_run_store` takes it: a path such as `"runs.db"`, or a URL."""


class DeletesAtRevision(RunStore, Protocol):
    """A `RunStore` that can delete a key only as long as nobody has written it again.

    A store is one if its `delete` has the parameter `revision`. Without it, accounts of spend limits that
    nobody uses any more are kept.
    """

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        """Delete a key; with `revision`, only if that is its last position.

        After a deletion at a revision, every new key of the store that `compare_and_set` makes begins above
        that revision. So an earlier write that names the revision fails, however late it comes. A key that
        `append` makes still begins at 1. Without `revision`, nothing happens if the key does not exist.

        Raises:
            RevisionConflict: the last position of the key is not `revision`, or the key is gone.
        """
        ...


def innermost(store: RunStore) -> RunStore:
    """Return the store that keeps the keys of a store: itself, or the last one within it."""
    while (within := getattr(store, "store_within", None)) is not None:
        store = within
    return store


def deletes_at_revision(store: RunStore) -> TypeIs[DeletesAtRevision]:
    """Return whether a store can delete a key at a revision. A store around another can, if that can."""
    return "revision" in signature(innermost(store).delete).parameters


@runtime_checkable
class LeavesOrphans(Protocol):
    """A `RunStore` that keeps more than its keys, some of which can be left over when a process dies."""

    async def forget_orphans(self) -> None:
        """Delete data that no key refers to, if it is so old that no key will refer to it any more."""
        ...


def largest_value(store: RunStore) -> int | None:
    """Return how many bytes one value in a store may have; `None` for any number."""
    largest: int | None = getattr(store, "largest_value", LARGEST_VALUE)
    return largest
