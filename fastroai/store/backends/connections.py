"""Blocking database clients behind async operations: a bounded number of connections in worker threads.

The clients are sync, because an async client belongs to one event loop, and a process can have several: that
of the application, and the one that sync calls run on.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Final, Generic, Protocol, TypeVar

from anyio import CancelScope

from fastroai.errors import StoreUnavailable
from fastroai.forks import ForkGate, in_forked_process
from fastroai.store.backends.address import Address
from fastroai.store.backends.workers import Workers

ConnectionT = TypeVar("ConnectionT")
ResultT = TypeVar("ResultT")

UNREACHED: Final = "see that the server runs and can be reached from here"
REFUSED: Final = "the server answers, and says what it needs"
_PATIENCE: Final = 2
"""An operation may take this many times the timeout of its driver, with queueing and connecting."""


class Driver(Protocol[ConnectionT]):
    """Makes and ends connections to one database."""

    @property
    def name(self) -> str:
        """Name of the store in its errors, without passwords."""
        ...

    @property
    def address(self) -> Address | None:
        """Address of the server, whose secrets no error tells; `None` without one."""
        ...

    @property
    def timeout(self) -> float:
        """Seconds after which the driver itself gives up connecting, or an operation."""
        ...

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """Exceptions that the driver raises when the database fails."""
        ...

    @property
    def closes_before_fork(self) -> bool:
        """Whether no connection may be open while the process forks, not even in another thread."""
        ...

    def connect(self) -> ConnectionT:
        """Open a connection."""
        ...

    def close(self, connection: ConnectionT) -> None:
        """End a connection, broken or not."""
        ...

    def hang_up(self, connection: ConnectionT) -> None:
        """Make an operation fail that waits for an answer in vain. Another thread calls this."""
        ...

    def is_lost(self, error: Exception) -> bool:
        """Return whether an error says that the connection is lost, so that a new one may help."""
        ...

    def unavailable(self, reason: str, error: Exception | None) -> StoreUnavailable:
        """Return the error for users of the store. `error` is `None` if there was no answer."""
        ...


class Connections(Generic[ConnectionT]):
    """At most `limit` connections for any number of event loops and threads; none is shared across a fork.

    An operation must be one that can be repeated: it is repeated on a new connection if its connection was
    lost while it was idle.
    """

    def __init__(self, driver: Driver[ConnectionT], limit: int) -> None:
        self.driver, self._workers = driver, Workers(limit)
        self._start()
        if driver.closes_before_fork:
            _gate.before_fork(self.close_idle)
        in_forked_process(self._forget)

    def _start(self) -> None:
        self._idle: list[ConnectionT] = []
        self._closer = weakref.finalize(self, _close_all, self.driver, self._idle)

    async def run(self, operation: Callable[[ConnectionT], ResultT]) -> ResultT:
        """Perform an operation in a worker thread.

        If this is cancelled, an operation that has begun is awaited first, so that later ones come after it.

        Raises:
            StoreUnavailable: the operation failed, or took too long.
        """
        job = _Job(self.driver, self._idle, operation)
        future = self._workers.submit(job)
        answer = asyncio.wrap_future(future)
        answer.add_done_callback(retrieve)
        try:
            await asyncio.wait([answer], timeout=self.patience)
        except asyncio.CancelledError:
            if not future.cancel():
                await wait_uncancelled(answer, self.patience)
                job.give_up()
            raise
        if not answer.done():
            future.cancel()
            job.give_up()
            raise self.no_answer()
        error = answer.exception()
        if error is None or not isinstance(error, self.driver.errors):
            return answer.result()
        address = self.driver.address
        is_told = address is not None and address.is_told_by(error)
        raise self.failure(error) from (None if is_told else error)

    def submit(self, operation: Callable[[ConnectionT], ResultT]) -> Future[ResultT]:
        """Begin to perform an operation in a worker thread, however long that takes.

        The future gives exceptions of the driver as they are.
        """
        return self._workers.submit(_Job(self.driver, self._idle, operation))

    @property
    def patience(self) -> float:
        """Seconds for which a caller waits for an operation."""
        return self.driver.timeout * _PATIENCE

    def no_answer(self) -> StoreUnavailable:
        """Return the error for an operation that took too long."""
        return self.driver.unavailable(f"no answer within {self.patience:g} s", None)

    def failure(self, error: Exception) -> StoreUnavailable:
        """Return the error for users of the store for an exception of the driver, without secrets."""
        address = self.driver.address
        reason = _reason(error)
        return self.driver.unavailable(reason if address is None else address.hide(reason), error)

    async def aclose(self) -> None:
        """Close the idle connections. Later operations open new ones."""
        await asyncio.wrap_future(self._workers.submit(self.close_idle))

    def close_idle(self) -> None:
        """Close the connections that nobody uses. Later operations open new ones."""
        _close_all(self.driver, self._idle)

    def _forget(self) -> None:
        """Start anew, in a process that was forked: the connections are its parent's."""
        self._closer.detach()
        _inherited.append(self._idle)
        self._start()


class _Job(Generic[ConnectionT, ResultT]):
    """One operation, on an idle connection if there is one, else on a new one."""

    def __init__(
        self,
        driver: Driver[ConnectionT],
        idle: list[ConnectionT],
        operation: Callable[[ConnectionT], ResultT],
    ) -> None:
        self._driver, self._idle, self._operation = driver, idle, operation
        self._lock = threading.Lock()
        self._in_use: ConnectionT | None = None
        self._given_up = False

    def __call__(self) -> ResultT:
        with _gate_of(self._driver):
            if (idle := _last(self._idle)) is not None:
                try:
                    return self._perform(idle)
                except self._driver.errors as error:
                    if self._given_up or not self._driver.is_lost(error):
                        raise
            return self._perform(self._driver.connect())

    def _perform(self, connection: ConnectionT) -> ResultT:
        try:
            self._hold(connection)
            result = self._operation(connection)
            self._hold(None)
        except BaseException:
            with self._lock:
                self._in_use = None
            self._driver.close(connection)
            raise
        self._idle.append(connection)
        return result

    def _hold(self, connection: ConnectionT | None) -> None:
        with self._lock:
            if self._given_up:
                raise _GivenUp
            self._in_use = connection

    def give_up(self) -> None:
        """Free the connection of the operation, because nobody waits for it any more."""
        with self._lock:
            self._given_up = True
            if self._in_use is not None:
                self._driver.hang_up(self._in_use)


class _GivenUp(Exception):
    """Ends an operation that nobody waits for. No caller sees it."""


def _last(idle: list[ConnectionT]) -> ConnectionT | None:
    try:
        return idle.pop()
    except IndexError:
        return None


def _close_all(driver: Driver[ConnectionT], idle: list[ConnectionT]) -> None:
    with _gate_of(driver):
        while (connection := _last(idle)) is not None:
            driver.close(connection)


def _gate_of(driver: Driver[Any]) -> AbstractContextManager[None]:
    return _gate if driver.closes_before_fork else nullcontext()


async def wait_uncancelled(answer: asyncio.Future[ResultT], seconds: float) -> None:
    """Wait for an answer, even if the task is cancelled meanwhile.

    The wait lasts at most `seconds`. The caller raises the cancellation again.
    """
    end = time.monotonic() + seconds
    with CancelScope(shield=True):
        while not answer.done() and (left := end - time.monotonic()) > 0:
            with suppress(asyncio.CancelledError):
                await asyncio.wait([answer], timeout=left)


def retrieve(answer: asyncio.Future[ResultT]) -> None:
    """Retrieve the exception of an answer, because asyncio reports one that nobody retrieves."""
    if not answer.cancelled():
        answer.exception()


def _reason(error: Exception) -> str:
    """Return the first line of an error. Later lines are advice, and may quote secrets."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


_gate: Final = ForkGate()
_inherited: Final[list[object]] = []
"""Connections of the parent process, kept open here: closing them would end them for the parent."""
