"""`cache=`: the answers of models are kept, and each is asked for only once, even if several calls wait.

An entry holds the answer of the model, not the output made from it. The answer is read again each time, so
each caller gets a copy, and a kept answer must pass the checks that the function has now.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from fastroai.errors import ConfigurationError, RevisionConflict, StoreUnavailable
from fastroai.functions.flow_runs.flow_run import flow_run_of
from fastroai.runtime import Scope
from fastroai.runtime.options import check_count
from fastroai.store.backends.run_memory import MemoryRunStore
from fastroai.store.run_store import RunStore, StoredKey

T = TypeVar("T")

CacheKind: TypeAlias = Literal["none", "session", "global"]
"""`"session"`: as long as the outermost flow runs. `"global"`: in the store that `configure` names."""

Answers: TypeAlias = tuple[str, ...]
"""The texts of answers of a model, one for each sample of a call."""

DEFAULT_SIZE: Final = 10_000
"""Number of answers that a cache keeps."""
_PREFIX: Final = "answer:"
_OVERSHOOT: Final = 10
"""The store is searched for surplus and old answers after each (size / 10)th answer, on average."""
_PAGE: Final = 100

logger = logging.getLogger("fastroai.functions")


def key_of(*shape: object) -> str:
    """Return the key for everything that shapes an answer: 64 hexadecimal digits.

    A part that is no JSON counts by its `repr`.
    """
    return hashlib.sha256(to_json(shape, fallback=repr, inf_nan_mode="constants")).hexdigest()


@dataclass(eq=False, slots=True)
class _Flight:
    """A call that asks a model while others wait for its answer."""

    scope: Scope
    landed: asyncio.Event = field(default_factory=asyncio.Event)
    waits_for: list[_Flight] = field(default_factory=list)
    """The flights that calls inside of this one wait for."""

    def needs(self, others: list[_Flight]) -> bool:
        """Return whether this flight is one of the others, or cannot land before one of them does."""
        waiting, seen = [self], set[int]()
        while waiting:
            flight = waiting.pop()
            if flight in others:
                return True
            if id(flight) not in seen:
                seen.add(id(flight))
                waiting += flight.waits_for
        return False


@dataclass(frozen=True, slots=True)
class _Entry:
    written_at: datetime
    """Time by the clock of the store."""
    answers: Answers


_ENTRIES: Final = TypeAdapter(_Entry)


class AnswerCache:
    """Answers in a store: of one flow in memory, or of all processes that use SQLite, Redis or PostgreSQL.

    While one caller asks a model, other callers that want the same answer wait for it. If the store fails,
    that is logged, the model is asked, and the call goes on.
    """

    def __init__(
        self, store: RunStore, *, size: int = DEFAULT_SIZE, age: timedelta | float | None = None
    ) -> None:
        """Keep at most about `size` answers, none of them longer than `age`, a duration or seconds.

        The oldest are deleted first. Surplus answers are deleted when others are written, so there can be a
        tenth more for a while.

        Raises:
            ConfigurationError: the size is not at least 1, or the age not above 0.
        """
        check_count("cache_size", size, least=1, required=True)
        kept_for = timedelta(seconds=age) if isinstance(age, int | float) else age
        if kept_for is not None and kept_for <= timedelta(0):
            raise ConfigurationError("cache_age", age, "a duration above 0: a timedelta, or seconds")
        self._store, self._size, self._age = store, size, kept_for
        self._flights: dict[tuple[int, str], _Flight] = {}
        """Flights by event loop and key."""

    async def answer(
        self,
        key: str,
        scope: Scope,
        *,
        read: Callable[[Answers], T | None],
        ask: Callable[[], Awaitable[tuple[Answers, T]]],
    ) -> tuple[T, bool]:
        """Return an output, and whether it comes from kept answers.

        `read` makes the output of kept answers; it returns `None` for answers that are not good enough, which
        are dropped. Without kept answers, `ask` gets new ones, with the output. `scope` is the scope of the
        call: no call waits for an answer that cannot come before its own.
        """
        place = (id(asyncio.get_running_loop()), key)
        while True:
            kept = await self.get(key)
            if kept is not None:
                found = read(kept)
                if found is not None:
                    return found, True
                await self.drop(key)
            flight = self._flights.get(place)
            if flight is None or not await self._landed(flight, scope):
                break
        with self._leading(place, scope):
            answers, made = await ask()
            await self.put(key, answers)
        return made, False

    @contextmanager
    def _leading(self, place: tuple[int, str], scope: Scope) -> Iterator[None]:
        flight = _Flight(scope)
        leads = self._flights.setdefault(place, flight) is flight
        try:
            yield
        finally:
            if leads:
                del self._flights[place]
            flight.landed.set()

    async def _landed(self, flight: _Flight, scope: Scope) -> bool:
        """Wait for a flight. Return `False` at once if it cannot land before a call around this one has."""
        lineage = scope.lineage()
        around = [one for one in self._flights.values() if one.scope in lineage]
        if flight.needs(around):
            return False
        for one in around:
            one.waits_for.append(flight)
        try:
            await flight.landed.wait()
        finally:
            for one in around:
                one.waits_for.remove(flight)
        return True

    async def get(self, key: str) -> Answers | None:
        """Return the answers under a key, if they are kept."""
        try:
            stored = await self._store.read(_PREFIX + key)
        except StoreUnavailable:
            logger.warning("the cache cannot be read; the model is asked", exc_info=True)
            return None
        entry = _entry(stored.values[-1]) if stored.values else None
        return None if entry is None or self._is_too_old(entry, stored.now) else entry.answers

    async def put(self, key: str, answers: Answers) -> None:
        """Keep answers."""
        name = _PREFIX + key
        try:
            before = await self._store.read(name)
            entry = _ENTRIES.dump_json(_Entry(before.now, answers))
            await self._store.compare_and_set(name, entry, revision=before.revision)
            if int(key[:8], 16) % max(self._size // _OVERSHOOT, 1) == 0:
                await self._forget_surplus(before.now)
        except RevisionConflict:
            pass  # another process has just written an answer under this key
        except StoreUnavailable:
            logger.warning("the cache cannot be written; the answer is not kept", exc_info=True)

    async def drop(self, key: str) -> None:
        """Forget the answers under a key."""
        try:
            await self._store.delete(_PREFIX + key)
        except StoreUnavailable:
            logger.warning("the cache cannot be written; the answer stays there", exc_info=True)

    def _is_too_old(self, entry: _Entry, now: datetime) -> bool:
        return self._age is not None and now - entry.written_at > self._age

    async def _forget_surplus(self, now: datetime) -> None:
        kept: list[tuple[datetime, str]] = []
        async for found in self._entries():
            entry = _entry(found.value)
            if entry is None or self._is_too_old(entry, now):
                await self._store.delete(found.key)
            else:
                kept.append((entry.written_at, found.key))
        kept.sort()
        for _, name in kept[: max(len(kept) - self._size, 0)]:
            await self._store.delete(name)

    async def _entries(self) -> AsyncIterator[StoredKey]:
        after = ""
        while page := await self._store.list(_PREFIX, after=after, limit=_PAGE):
            for found in page:
                yield found
            after = page[-1].key


@functools.lru_cache(maxsize=64)
def global_cache(store: RunStore, size: int, age: timedelta | float | None) -> AnswerCache:
    """Return the cache in a store. All calls of this process share it, so that they wait for each other."""
    return AnswerCache(store, size=size, age=age)


@functools.cache
def process_memory() -> RunStore:
    """Return the memory in which programs that have configured no store keep answers."""
    return MemoryRunStore()


def session_cache(scope: Scope) -> AnswerCache | None:
    """Return the cache of the outermost flow that a call is in; `None` outside of flows."""
    flow = flow_run_of(scope)
    if flow is None:
        return None
    session = flow.outermost.session
    if "answers" not in session:
        session["answers"] = AnswerCache(MemoryRunStore())
    cache: AnswerCache = session["answers"]
    return cache


def _entry(stored: bytes) -> _Entry | None:
    """Return an entry as it was written; `None` if it cannot be read."""
    try:
        entry: _Entry = _ENTRIES.validator.validate_json(stored)
    except ValidationError:
        return None
    return entry
