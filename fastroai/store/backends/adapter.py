"""Adapter for stores of runs that users write, with async or with plain methods."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Final, cast

from fastroai.errors import ConfigurationError
from fastroai.store.backends.workers import Workers
from fastroai.store.opening import shared_run_store
from fastroai.store.run_store import RunStore, StoredKey, StoredValues, largest_value

_OPERATIONS: Final = ("append", "read", "compare_and_set", "list", "delete")


def adapt_run_store(store: object) -> RunStore:
    """Return a store as a `RunStore` with async methods, or the store at a path or URL.

    A store whose five operations are all async is returned as it is. For another one, this returns an adapter
    that calls its plain methods in a thread, and its async ones directly. Calls in that thread never overlap.
    A call that is cancelled after it has begun runs to its end, before the next one begins.

    A path or URL is as for `open_run_store`. All callers in this process that pass the same one get the same
    store, which is closed when nobody uses it any more.

    Raises:
        ConfigurationError: the store lacks one of the operations `append`, `read`, `compare_and_set`, `list`
            and `delete`, it is a class, or the text is neither a path nor the URL of a store.
        MissingExtraError: the client of the database at the URL is not installed.
    """
    if isinstance(store, str | os.PathLike):
        return shared_run_store(store)  # pyright: ignore[reportUnknownArgumentType]
    methods = [getattr(store, name, None) for name in _OPERATIONS]
    missing = [name for name, method in zip(_OPERATIONS, methods, strict=True) if not callable(method)]
    if missing or isinstance(store, type):
        lacks = f"; it lacks {', '.join(missing)}" if missing else ", not a class"
        expected = f"a path or URL, as 'runs.db', or a RunStore with {', '.join(_OPERATIONS)}{lacks}"
        raise ConfigurationError("store", store, expected)
    if all(iscoroutinefunction(method) for method in methods):
        return cast("RunStore", store)
    return _InOneThread(store)


class _InOneThread:
    """Calls the methods of a store in one worker thread, except for those that are async."""

    def __init__(self, store: Any) -> None:
        self._store = self.store_within = store
        self.largest_value = largest_value(store)
        self._workers = Workers(1)

    def __repr__(self) -> str:
        return repr(self._store)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InOneThread) and bool(self._store == other._store)

    def __hash__(self) -> int:
        return hash(self._store)

    async def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
        await self._call(self._store.append, key, values, revision=revision)

    async def read(self, key: str, *, after: int = 0) -> StoredValues:
        return cast("StoredValues", await self._call(self._store.read, key, after=after))

    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        await self._call(self._store.compare_and_set, key, value, revision=revision)

    async def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        found = await self._call(self._store.list, prefix, after=after, limit=limit)
        return cast("Sequence[StoredKey]", found)

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        await self._call(self._store.delete, key, **({} if revision is None else {"revision": revision}))

    async def _call(self, method: Callable[..., object], *args: object, **options: object) -> object:
        call = partial(method, *args, **options)
        answer = call() if iscoroutinefunction(method) else await self._in_thread(call)
        return await cast("Awaitable[object]", answer) if isawaitable(answer) else answer

    async def _in_thread(self, call: Callable[[], object]) -> object:
        return await asyncio.wrap_future(self._workers.submit(call))
