"""Stores of runs under clients that use them at the same time: as if one operation came after the other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any, Final, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.linearizable import (
    Effect,
    Seen,
    append,
    compare_and_set,
    conflict,
    delete,
    listed,
    order_of,
    read,
)
from support.patience import PATIENCE
from support.proxy import Break
from support.run_stores import KINDS, AsyncStore, run_stores
from support.served_stores import served

from fastroai.errors import RevisionConflict, RunStoreUnavailable

CLIENTS: Final = 3
KEYS: Final = ("a", "b")
Name = Literal["append", "compare_and_set", "delete", "read", "list"]


@dataclass(frozen=True)
class Intent:
    """What a client is about to do."""

    name: Name
    key: str
    off: int
    """How far from the revision that the client knows."""
    count: int
    """Of the values that it appends, or of those that it skips when it reads."""


INTENTS = st.builds(
    Intent,
    name=st.sampled_from(
        ("append", "append", "compare_and_set", "compare_and_set", "delete", "read", "list")
    ),
    key=st.sampled_from(KEYS),
    off=st.sampled_from((0, 0, 0, 0, 1, -1)),
    count=st.integers(0, 3),
)
PLANS = st.lists(st.lists(INTENTS, min_size=1, max_size=6), min_size=2, max_size=CLIENTS)


@dataclass
class Client:
    """Does one thing after the other with a store of its own, and notes what it sees."""

    name: int
    store: Any
    is_exact: bool
    """Whether each operation happens once, as it does while no connection is lost."""
    known: dict[str, int] = field(default_factory=dict)
    """Revisions."""
    seen: list[Seen] = field(default_factory=list)
    done: int = 0
    wrong: int = 0
    """Conflicts that contradict themselves."""

    async def perform(self, intents: Sequence[Intent]) -> None:
        for intent in intents:
            self.done += 1
            await getattr(self, intent.name)(intent)

    def value(self, number: int = 0) -> bytes:
        """One that nobody else writes."""
        return f"{self.name}.{self.done}.{number}".encode()

    async def append(self, intent: Intent) -> None:
        key, revision = intent.key, max(0, self.known.get(intent.key, 0) + intent.off)
        values = [self.value(number) for number in range(intent.count)]
        done = self.store.append(key, values, revision=revision)
        await self._write(f"append {values} to {key} at", key, revision, done, append(key, values, revision))

    async def compare_and_set(self, intent: Intent) -> None:
        key, revision = intent.key, max(0, self.known.get(intent.key, 0) + intent.off)
        done = self.store.compare_and_set(key, self.value(), revision=revision)
        effect = compare_and_set(key, self.value(), revision)
        await self._write(f"set {self.value()!r} of {key} at", key, revision, done, effect)

    async def _write(self, what: str, key: str, revision: int, done: Awaitable[None], effect: Effect) -> None:
        began = perf_counter()
        try:
            await done
        except RevisionConflict as error:
            now = perf_counter()
            self.known[key] = error.actual
            self.wrong += (error.key, error.expected) != (key, revision) or error.actual == revision
            self._note(f"{what} {revision}: it is at {error.actual}", conflict(key, error.actual), began, now)
            if not self.is_exact:  # the conflict may be with this same write
                self._note(f"{what} {revision}, perhaps", effect, began)
        except RunStoreUnavailable:
            self._note(f"{what} {revision}, perhaps", effect, began)
        else:
            self._note(f"{what} {revision}", effect, began, perf_counter())

    async def delete(self, intent: Intent) -> None:
        began = perf_counter()
        try:
            await self.store.delete(intent.key)
        except RunStoreUnavailable:
            pass
        else:
            self._note(f"delete {intent.key}", delete(intent.key), began, perf_counter())
            if self.is_exact:
                return
        self._note(f"delete {intent.key}, perhaps", delete(intent.key), began)

    async def read(self, intent: Intent) -> None:
        key, after, began = intent.key, intent.count, perf_counter()
        try:
            found = await self.store.read(key, after=after)
        except RunStoreUnavailable:
            return
        self.known[key] = found.revision
        what = f"read {key} after {after}: {found.values} at {found.revision}"
        self._note(what, read(key, after, found.values, found.revision), began, perf_counter())

    async def list(self, intent: Intent) -> None:
        began = perf_counter()
        try:
            found = await self.store.list("")
        except RunStoreUnavailable:
            return
        keys = [(one.key, one.value, one.revision) for one in found]
        self._note(f"list: {keys}", listed(keys), began, perf_counter())

    def _note(self, what: str, effect: Effect, began: float, ended: float = inf) -> None:
        self.seen.append(Seen(f"client {self.name}: {what}", effect, began, ended))


def all_at_once(clients: Sequence[Client], plans: Sequence[Sequence[Intent]]) -> list[Seen]:
    """What they see that begin at one moment, each in a thread and an event loop of its own."""
    together = threading.Barrier(len(plans))

    def work(client: Client, plan: Sequence[Intent]) -> None:
        together.wait(PATIENCE)
        asyncio.run(client.perform(plan))

    with ThreadPoolExecutor(len(plans)) as threads:
        for done in [threads.submit(work, *one) for one in zip(clients, plans, strict=False)]:
            done.result(PATIENCE)
    assert not any(client.wrong for client in clients)
    return [seen for client in clients for seen in client.seen]


def assert_linearizable(history: Sequence[Seen]) -> None:
    told = "\n".join(map(str, sorted(history, key=lambda seen: seen.began)))
    assert order_of(history) is not None, f"no order explains this:\n{told}"


async def emptied(store: Any) -> None:
    for one in await store.list(""):
        await store.delete(one.key)


async def closed(stores: Sequence[Any]) -> None:
    for store in stores:
        if hasattr(store, "aclose"):
            await store.aclose()


@pytest.mark.parametrize("kind", KINDS)
def test_what_clients_see_of_a_store_at_the_same_time_could_have_happened_one_after_the_other(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with run_stores(kind, request, tmp_path) as open_store:
        stores = [open_store() for _ in range(CLIENTS)]

        @given(PLANS)
        @settings(max_examples=examples(10))
        def check(plans: list[list[Intent]]) -> None:
            asyncio.run(emptied(stores[0]))
            clients = [Client(number, store, is_exact=True) for number, store in enumerate(stores)]
            assert_linearizable(all_at_once(clients, plans))

        check()
        asyncio.run(closed(stores))


@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_so_could_what_they_see_of_a_server_whose_connections_are_cut(
    kind: str, request: pytest.FixtureRequest
) -> None:
    breaks: st.SearchStrategy[tuple[Break, int, int]] = st.tuples(
        st.sampled_from(("refused", "unanswered")), st.integers(1, 25), st.integers(1, 3)
    )
    with served(kind, request) as place:
        stores = [place.open_store() for _ in range(CLIENTS)]
        asyncio.run(emptied(place.direct))

        @given(PLANS, breaks)
        @settings(max_examples=examples(10))
        def check(plans: list[list[Intent]], cut: tuple[Break, int, int]) -> None:
            kind_of_break, first, count = cut
            asyncio.run(emptied(place.direct))
            place.proxy.exchanges = 0
            place.proxy.breaks = kind_of_break, range(first, first + count)
            clients = [Client(number, store, is_exact=False) for number, store in enumerate(stores)]
            history = all_at_once(clients, plans)
            place.proxy.breaks = kind_of_break, range(0)
            last = Client(CLIENTS, place.direct, is_exact=True)
            asyncio.run(last.perform([Intent("list", "", 0, 0)]))
            assert_linearizable([*history, *last.seen])

        check()
        asyncio.run(closed(stores))


@pytest.mark.parametrize("kind", KINDS)
def test_no_conflict_names_the_revision_that_was_expected(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """As it would if the revision in the way were read when another client has deleted the key."""
    with run_stores(kind, request, tmp_path) as open_store:
        stores = [open_store() for _ in range(CLIENTS)]
        clients = [Client(number, store, is_exact=True) for number, store in enumerate(stores)]
        in_turns = [Intent("append", "a", 0, 1), Intent("delete", "a", 0, 0), Intent("append", "a", -9, 1)]
        all_at_once(clients, [in_turns * 60] * CLIENTS)
        asyncio.run(closed(stores))


class TwoSteps(AsyncStore):
    """A store that looks, and then writes, so that two clients can both come first."""

    def __init__(self) -> None:
        super().__init__({})
        self.together = threading.Barrier(2)

    def _check(self, key: str, revision: int) -> tuple[bytes, ...]:
        values = super()._check(key, revision)
        self.together.wait(PATIENCE)
        return values


def test_a_store_that_does_one_thing_in_two_steps_is_found() -> None:
    store = TwoSteps()
    clients = [Client(number, store, is_exact=True) for number in range(2)]
    history = all_at_once(clients, [[Intent("append", "a", 0, 1)]] * 2)
    with pytest.raises(AssertionError, match="no order explains this"):
        assert_linearizable(history)


def test_a_history_that_no_order_explains_is_found() -> None:
    two_winners = [
        Seen("one", append("a", [b"1"], 0), 0, 2),
        Seen("other", append("a", [b"2"], 0), 1, 3),
    ]
    assert order_of(two_winners) is None
    stale = [Seen("write", append("a", [b"1"], 0), 0, 1), Seen("read", read("a", 0, [], 0), 2, 3)]
    assert order_of(stale) is None
    torn = [
        Seen("write", append("a", [b"1", b"2"], 0), 0, 3),
        Seen("read", read("a", 0, [b"1"], 1), 1, 2),
    ]
    assert order_of(torn) is None


def test_a_history_that_an_order_explains_is_not_taken_for_another() -> None:
    lost = Seen("lost", append("a", [b"1"], 0), 0)
    late = [lost, Seen("read", read("a", 0, [], 0), 1, 2), Seen("read", read("a", 0, [b"1"], 1), 3, 4)]
    order = order_of(late)
    assert order is not None
    assert [seen.what for seen in order] == ["read", "lost", "read"]
    beside = [Seen("write", append("a", [b"1"], 0), 0, 3), Seen("read", read("a", 0, [], 0), 1, 2)]
    assert order_of(beside) is not None
    assert order_of([]) == []
