"""The ledger: every request that the server has served, with its exact usage."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from fastroai.testing.replies import Duration, Usage, in_seconds
from fastroai.testing.requests import JsonObject, ProtocolName

State: TypeAlias = Literal["arrived", "finished"]


@dataclass(frozen=True, eq=False, kw_only=True)
class LedgerEntry:
    """One request to the model server and its answer, with the usage that a provider would bill.

    An entry never changes: when the answer has ended, the ledger replaces the entry by a new one, whose
    `ended`, `completed` and `client_disconnected` are set. Times are in UTC.
    """

    ordinal: int = 0
    """Number of the request since the ledger was last empty, from 1."""
    protocol: ProtocolName
    model: str = ""
    """The model that the answer names; empty if the request could not be read."""
    streamed: bool = False
    status: int | None = None
    """HTTP status; `None` if no status line is sent."""
    billed: bool = False
    usage: Usage = field(default_factory=Usage)
    """The billed usage: complete even if the client left early; zero if nothing is billed."""
    fault: str | None = None
    error: str | None = None
    """The message of an error answer."""
    request_id: str
    """The id in the header of the answer."""
    response_id: str | None = None
    """The id in the body of the answer; `None` for an error."""
    headers: Mapping[str, str]
    body: JsonObject = field(default_factory=dict)
    """The body of the request; empty if it could not be read. `raw_body` has its bytes."""
    raw_body: bytes
    batch: str | None = None
    """The id of the batch that the request was in."""
    started: datetime
    ended: datetime | None = None
    """Time when the answer ended; `None` while it goes on."""
    completed: bool = False
    """Whether the last byte was handed to the connection."""
    client_disconnected: bool = False
    """Whether the connection ended before the answer: the client left, or the server was stopped."""


@dataclass(frozen=True)
class LedgerTotals:
    """The sums of a `Ledger`: the number of all requests, the number of billed ones, and their tokens.

    Requests that are not billed add nothing to `usage`.
    """

    requests: int
    billed: int
    usage: Usage


@dataclass(frozen=True, eq=False)
class _Waiter:
    count: int
    state: State
    future: "Future[None]"


class Ledger:
    """The requests that a `ModelServer` has served, in the order of their arrival: `server.ledger`.

    It can be read from any thread, and has the requests that got an error as well. An entry has its status,
    usage and ids before the first byte of the answer is sent, so a client that has its answer finds its
    entry. The field `ended` may be set a moment later: wait for it with `wait_for(n, state="finished")`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, LedgerEntry] = {}
        self._waiters: list[_Waiter] = []

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """The entries of all requests since the last `clear`, in the order of their arrival.

        The tuple is a copy: it does not change when more requests arrive or answers end.
        """
        with self._lock:
            return tuple(self._entries.values())

    @property
    def billed(self) -> tuple[LedgerEntry, ...]:
        """The entries of the requests that a provider would bill, in the order of their arrival.

        Errors are not billed, such as `Fault.status(429)`, and neither is `Fault.disconnect(billed=False)`.
        """
        return tuple(entry for entry in self.entries if entry.billed)

    def totals(self) -> LedgerTotals:
        """Return the number of all requests, the number of billed ones, and the sum of the billed usage."""
        entries = self.entries
        return LedgerTotals(
            requests=len(entries),
            billed=sum(entry.billed for entry in entries),
            usage=sum((entry.usage for entry in entries), Usage()),
        )

    def clear(self) -> None:
        """Remove all entries, so that the numbers of requests (`ordinal`) begin at 1 again.

        Requests whose answers are still being sent do not come back when the answers end.
        """
        with self._lock:
            self._entries.clear()

    async def wait_for(
        self, count: int, *, state: State = "arrived", timeout: Duration = 30.0
    ) -> tuple[LedgerEntry, ...]:
        """Wait until the ledger has at least `count` requests, and return all entries of the ledger.

        With `state="arrived"`, every request counts; with `state="finished"`, only those whose answers have
        ended. Requests from before the call count, too, so it may return at once. `clear` begins at zero.

        Raises:
            TimeoutError: the wait takes longer than `timeout`: seconds or a `timedelta`, by default 30 s.
        """
        with self._waiting(count, state) as waiter:
            try:
                await asyncio.wait_for(asyncio.wrap_future(waiter.future), in_seconds(timeout))
            except TimeoutError:
                raise self._late(waiter, timeout) from None
        return self.entries

    def wait_for_sync(
        self, count: int, *, state: State = "arrived", timeout: Duration = 30.0
    ) -> tuple[LedgerEntry, ...]:
        """Wait like `wait_for`, but block the thread, for tests without an event loop.

        Return all entries of the ledger, once at least `count` requests have arrived or finished (`state`).

        Raises:
            TimeoutError: the wait takes longer than `timeout`: seconds or a `timedelta`, by default 30 s.
        """
        with self._waiting(count, state) as waiter:
            try:
                waiter.future.result(in_seconds(timeout))
            except FutureTimeoutError:
                raise self._late(waiter, timeout) from None
        return self.entries

    def record(self, entry: LedgerEntry) -> LedgerEntry:
        """Add a request that has arrived, and return its entry with its number, `ordinal`.

        The server calls this method; it wakes those that wait for requests.
        """
        with self._lock:
            entry = replace(entry, ordinal=len(self._entries) + 1)
            self._entries[entry.request_id] = entry
            self._wake()
        return entry

    def finish(self, entry: LedgerEntry, *, completed: bool, client_disconnected: bool) -> LedgerEntry:
        """Record that the answer to a request has ended, and how. Return the entry with its end, `ended`.

        The server calls this method. If `clear` has removed the entry meanwhile, the ledger stays as it is.
        """
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
            # The task of a waiter may be cancelled in its own thread; it then takes no result.
            if waiter.future.set_running_or_notify_cancel():
                waiter.future.set_result(None)

    def _count(self, state: State) -> int:
        if state == "arrived":
            return len(self._entries)
        return sum(entry.ended is not None for entry in self._entries.values())

    def _late(self, waiter: _Waiter, timeout: Duration) -> TimeoutError:
        return TimeoutError(
            f"the model server's ledger: waited {in_seconds(timeout):g} s for {waiter.count} requests "
            f"to have {waiter.state}; {self._count('arrived')} arrived, {self._count('finished')} finished"
        )
