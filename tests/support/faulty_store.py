"""Stores of runs that fail where a test wants it, before something has happened or after."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from fastroai.errors import RevisionConflict, RunStoreUnavailable
from fastroai.store import MemoryRunStore, RunStore, StoredKey, StoredValues

T = TypeVar("T")


@dataclass
class Write:
    number: int
    """From 1, in the order in which they are begun."""
    key: str
    values: tuple[bytes, ...]


Hook = Callable[[Write], Awaitable[None] | None]


@dataclass
class FaultyStore:
    """`before` and `after` each write can raise, or wait; `reading` before each read."""

    inner: RunStore = field(default_factory=MemoryRunStore)
    before: Hook | None = None
    after: Hook | None = None
    reading: Callable[[str], None] | None = None
    writes: list[Write] = field(default_factory=list)

    async def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
        await self._write(
            key, tuple(values), lambda: self.inner.append(key, tuple(values), revision=revision)
        )

    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        await self._write(key, (value,), lambda: self.inner.compare_and_set(key, value, revision=revision))

    async def delete(self, key: str) -> None:
        await self._write(key, (), lambda: self.inner.delete(key))

    async def read(self, key: str, *, after: int = 0) -> StoredValues:
        if self.reading is not None:
            self.reading(key)
        return await self.inner.read(key, after=after)

    async def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        return await self.inner.list(prefix, after=after, limit=limit)

    async def _write(
        self, key: str, values: tuple[bytes, ...], perform: Callable[[], Awaitable[None]]
    ) -> None:
        write = Write(len(self.writes) + 1, key, values)
        self.writes.append(write)
        await _call(self.before, write)
        await perform()
        await _call(self.after, write)


async def _call(hook: Hook | None, write: Write) -> None:
    if hook is not None and (waiting := hook(write)) is not None:
        await waiting


def gone() -> RunStoreUnavailable:
    """What a store raises that cannot be reached."""
    return RunStoreUnavailable("a store", "no connection")


def fails_at(*numbers: int) -> Hook:
    """A hook that fails the writes with these numbers."""

    def hook(write: Write) -> None:
        if write.number in numbers:
            raise gone()

    return hook


async def everything_in(store: Any) -> dict[str, tuple[tuple[bytes, ...], int]]:
    """All that a store holds, with revisions."""
    found: dict[str, tuple[tuple[bytes, ...], int]] = {}
    for each in await store.list("", limit=10_000):
        held = await store.read(each.key)
        found[each.key] = held.values, held.revision
    return found


Mishap = Literal["fails", "unanswered", "twice", "hangs"]
"""What becomes of a call: it does not happen, or it happens and nobody hears of it, or it happens twice, as
where a client repeats it by itself, or no answer ever comes."""


@dataclass
class MishapStore:
    """A store to which something happens at calls of any operation, by their number."""

    inner: RunStore
    mishap: Mishap = "fails"
    at: range = range(0)
    calls: list[str] = field(default_factory=list)
    """The operation and the kind of key of each call, from 1."""

    async def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
        await self._call("append", key, lambda: self.inner.append(key, values, revision=revision))

    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        await self._call(
            "compare_and_set", key, lambda: self.inner.compare_and_set(key, value, revision=revision)
        )

    async def delete(self, key: str) -> None:
        await self._call("delete", key, lambda: self.inner.delete(key))

    async def read(self, key: str, *, after: int = 0) -> StoredValues:
        return await self._call("read", key, lambda: self.inner.read(key, after=after))

    async def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        return await self._call("list", prefix, lambda: self.inner.list(prefix, after=after, limit=limit))

    async def _call(self, name: str, key: str, perform: Callable[[], Awaitable[T]]) -> T:
        self.calls.append(f"{name} {key.partition(':')[0]}")
        if len(self.calls) not in self.at:
            return await perform()
        if self.mishap == "hangs":
            await asyncio.Event().wait()
        if self.mishap in ("unanswered", "twice"):
            with suppress(RevisionConflict):
                await perform()
        if self.mishap in ("fails", "unanswered"):
            raise gone()
        return await perform()
