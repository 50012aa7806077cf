"""Values of a key, page by page: a log of any length is read without holding all of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from inspect import signature
from typing import Final, Protocol

from typing_extensions import TypeIs

from fastroai.store.run_store import RunStore, StoredValues

PAGE: Final = 1_000
"""Most values of a page."""


class ReadsPages(RunStore, Protocol):
    """A `RunStore` that can read some of the values after a position. All stores of this package are."""

    async def read(self, key: str, *, after: int = 0, limit: int | None = None) -> StoredValues:
        """Return at most `limit` values at positions above `after`, and the revision of the key."""
        ...


def reads_pages(store: RunStore) -> TypeIs[ReadsPages]:
    """Return whether a store reads pages. A store around another does, if both do."""
    while True:
        if "limit" not in signature(store.read).parameters:
            return False
        inner = getattr(store, "store_within", None)
        if inner is None:
            return True
        store = inner


async def read_page(
    store: RunStore, key: str, *, after: int, limit: int = PAGE
) -> tuple[tuple[bytes, ...], int]:
    """Return at most `limit` values of a log after a position, and the revision of the log.

    Of a store that reads no pages, all values after the position are read, and the others are thrown away.
    """
    if reads_pages(store):
        found = await store.read(key, after=after, limit=limit)
    else:
        found = await store.read(key, after=after)
    return found.values[:limit], found.revision


async def pages(
    store: RunStore, key: str, *, limit: int = PAGE
) -> AsyncIterator[tuple[int, tuple[bytes, ...], int]]:
    """Yield the values of a log in pages, each with the position before it, and the revision of the log.

    A page that is not full, and not the last, says that the store has lost values.
    """
    after, revision = 0, 1
    while after < revision:
        values, revision = await read_page(store, key, after=after, limit=limit)
        if not values:
            return
        yield after, values, revision
        after += len(values)
