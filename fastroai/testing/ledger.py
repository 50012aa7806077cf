"""The ledger: every request that the server served, with its exact usage."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from fastroai.testing.replies import Usage
from fastroai.testing.requests import JsonObject, ProtocolName

State: TypeAlias = Literal["arrived", "finished"]


@dataclass(frozen=True, eq=False, kw_only=True)
class LedgerEntry:
    """One request and what became of it: a snapshot, replaced when the answer has ended."""

    ordinal: int = 0
    """1 for the first since the ledger was empty."""
    protocol: ProtocolName
    model: str = ""
    """That the answer names; of a request that could not be read, empty."""
    streamed: bool = False
    status: int | None = None
    """HTTP status; `None` where no status line is sent."""
    billed: bool = False
    usage: Usage = field(default_factory=Usage)
    """What is billed, whole even if the client left early; zero if nothing is."""
    fault: str | None = None
    error: str | None = None
    """The message of an error answer."""
    request_id: str
    """As in the header of the answer."""
    response_id: str | None = None
    """As in the body of the answer; `None` for an error."""
    headers: Mapping[str, str]
    body: JsonObject = field(default_factory=dict)
    """Empty if the request's body could not be read; `raw_body` has it."""
    raw_body: bytes
    started: datetime
    ended: datetime | None = None
    """`None` while the answer is under way."""
    completed: bool = False
    """The last byte was handed to the connection."""
    client_disconnected: bool = False
    """The connection ended before the answer had: the client left, or the server was stopped."""


@dataclass(frozen=True)
class LedgerTotals:
    """The sums of a ledger."""

    requests: int
    billed: int
    usage: Usage


@dataclass(frozen=True, eq=False)
class _Waiter:
    count: int
    state: State
    future: "Future[None]"


class Ledger:
    """What a server served, in the order in which it arrived. Safe to read from any thread.

    An entry has its status, usage and ids before the first byte of the answer leaves, so a client that has
    its answer finds its entry. That the answer has `ended` may come a moment later: wait for it with
    `wait_for(n, state="finished")`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, LedgerEntry] = {}
        self._waiters: list[_Waiter] = []

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """All requests."""
        with self._lock:
            return tuple(self._entries.values())

    @property
    def billed(self) -> tuple[LedgerEntry, ...]:
        """The requests that a provider would bill."""
        return tuple(entry for entry in self.entries if entry.billed)

    def totals(self) -> LedgerTotals:
        """Requests, billed requests, and the sum of their usage."""
        entries = self.entries
        return LedgerTotals(
            requests=len(entries),
            billed=sum(entry.billed for entry in entries),
            usage=sum((entry.usage for entry in entries), Usage()),
        )

    def clear(self) -> None:
        """Forget everything. Answers under way are not recorded any more."""
        with self._lock:
            self._entries.clear()

    async def wait_for(
        self, count: int, *, state: State = "arrived", timeout: float = 30.0
    ) -> tuple[LedgerEntry, ...]:
        """Wait until so many requests have arrived, or finished, and return all entries.

        Raises:
            TimeoutError: if that takes longer than `timeout` seconds.
        """
        with self._waiting(count, state) as waiter:
            try:
                await asyncio.wait_for(asyncio.wrap_future(waiter.future), timeout)
            except TimeoutError:
                raise self._late(waiter, timeout) from None
        return self.entries

    def wait_for_sync(
        self, count: int, *, state: State = "arrived", timeout: float = 30.0
    ) -> tuple[LedgerEntry, ...]:
        """As `wait_for`, for a test without an event loop. It blocks its thread."""
        with self._waiting(count, state) as waiter:
            try:
                waiter.future.result(timeout)
            except FutureTimeoutError:
                raise self._late(waiter, timeout) from None
        return self.entries

    def record(self, entry: LedgerEntry) -> LedgerEntry:
        """Add a request that has arrived; its ordinal is given here."""
        with self._lock:
            entry = replace(entry, ordinal=len(self._entries) + 1)
            self._entries[entry.request_id] = entry
            self._wake()
        return entry

    def finish(self, entry: LedgerEntry, *, completed: bool, client_disconnected: bool) -> LedgerEntry:
        """Note that the answer to a request has ended, and how."""
        entry = replace(
            entry, ended=datetime.now(UTC), completed=completed, client_disconnected=client_disconnected
        )
        with self._lock:
            if entry.request_id in self._entries:
                self._entries[entry.request_id] = entry
                self._wake()
        return entry

    @contextmanager
    def _waiting(self, count: int, state: State) -> Iterator[_Waiter]:
        waiter = _Waiter(count, state, Future())
        with self._lock:
            self._waiters.append(waiter)
            self._wake()
        try:
            yield waiter
        finally:
            with self._lock:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def _wake(self) -> None:
        for waiter in [waiter for waiter in self._waiters if self._count(waiter.state) >= waiter.count]:
            self._waiters.remove(waiter)
            # A waiter whose task was cancelled in its own thread takes no result any more.
            if waiter.future.set_running_or_notify_cancel():
                waiter.future.set_result(None)

    def _count(self, state: State) -> int:
        if state == "arrived":
            return len(self._entries)
        return sum(entry.ended is not None for entry in self._entries.values())

    def _late(self, waiter: _Waiter, timeout: float) -> TimeoutError:
        return TimeoutError(
            f"the model server's ledger: waited {timeout:g} s for {waiter.count} requests to have "
            f"{waiter.state}; {self._count('arrived')} arrived, {self._count('finished')} finished"
        )
