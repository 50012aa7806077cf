"""Hints that a key of a store has changed, and the thread that receives them from a server."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Protocol, TypeAlias, runtime_checkable

from fastroai.forks import in_forked_process
from fastroai.runtime.concurrency.wakeup import wait_for
from fastroai.store.backends.workers import Workers

GLANCE: Final = 0.5
"""Seconds after which a listening thread checks whether it is still needed."""
LINGER: Final = 5.0
"""Seconds for which that thread keeps listening when nobody waits, because followers soon come back."""
REST: Final = 1.0
"""Seconds before another attempt to listen to a server, after one has failed."""
UNHEARD: Final = 0.5
"""Seconds that a waiter waits at most while no thread listens."""

logger = logging.getLogger("fastroai.store")

_Waiter: TypeAlias = tuple[asyncio.AbstractEventLoop, asyncio.Event]


@runtime_checkable
class HintsChanges(Protocol):
    """A `RunStore` that can tell when a key changes. This is optional: a store without it is polled."""

    async def changed(self, key: str, *, revision: int, timeout: float) -> None:
        """Return when the key has another revision than this, or after `timeout` seconds.

        It is only a hint: it may return although nothing has changed, and a hint can be lost with a
        connection. So callers read the key afterwards, and call again.

        Raises:
            RunStoreUnavailable: as from the operations of a `RunStore`.
        """
        ...


class Waiters:
    """The tasks that wait for changes of keys, in any thread and event loop."""

    def __init__(self) -> None:
        self._start()
        in_forked_process(self._start)

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._waiting: defaultdict[bytes, set[_Waiter]] = defaultdict(set)

    def __bool__(self) -> bool:
        """Return whether anybody waits."""
        with self._lock:
            return bool(self._waiting)

    @contextmanager
    def waiting(self, name: bytes) -> Iterator[asyncio.Event]:
        """Return an event that is set when the key next changes."""
        waiter = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            self._waiting[name].add(waiter)
        try:
            yield waiter[1]
        finally:
            with self._lock:
                self._waiting[name].discard(waiter)
                if not self._waiting[name]:
                    del self._waiting[name]

    def wake(self, name: bytes) -> None:
        """Wake those who wait for the key, because it has changed."""
        with self._lock:
            waiters = tuple(self._waiting.get(name, ()))
        _set(waiters)

    def wake_all(self) -> None:
        """Wake everybody, because any key may have changed."""
        with self._lock:
            waiters = tuple(one for waiting in self._waiting.values() for one in waiting)
        _set(waiters)


def _set(waiters: Iterable[_Waiter]) -> None:
    for loop, event in waiters:
        with suppress(RuntimeError):  # its loop is closed, so nobody waits there
            loop.call_soon_threadsafe(event.set)


class Line(Protocol):
    """A connection on which a server announces changes. One thread uses it."""

    def hear(self, seconds: float) -> Iterable[bytes]:
        """Return the names of keys that have changed. Waits at most `seconds` for the first."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Listener:
    """Listens for changes on one connection, for all waiters. Has no connection while nobody waits.

    It has a thread of its own, because database clients block, and a store serves several event loops.
    """

    def __init__(self, name: str, connect: Callable[[], Line], errors: tuple[type[Exception], ...]) -> None:
        """`errors` are the exceptions that a line raises when the server fails."""
        self._name, self._connect, self._errors = name, connect, errors
        self._waiters, self._workers = Waiters(), Workers(1)
        self._start()
        in_forked_process(self._start)

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._runs = self._closing = False
        self._rests_until = 0.0

    async def changed(
        self, name: bytes, look: Callable[[], Awaitable[int]], *, revision: int, timeout: float
    ) -> None:
        """Wait as `HintsChanges.changed` says. `look` reads the revision of the key."""
        with self._waiters.waiting(name) as woken:
            self._see_that_it_runs()
            # The key may have changed after it was read and before anybody listened.
            if await look() == revision:
                await wait_for(woken, timeout if self._runs else min(timeout, UNHEARD))

    def _see_that_it_runs(self) -> None:
        with self._lock:
            if not self._runs and time.monotonic() >= self._rests_until:
                self._runs, self._closing = True, False
                self._workers.submit(self._listen)

    async def aclose(self) -> None:
        """End the connection. A later wait opens another."""
        with self._lock:
            self._closing = True
        await asyncio.wrap_future(self._workers.submit(lambda: None))

    def _listen(self) -> None:
        line: Line | None = None
        try:
            line = self._connect()
            self._waiters.wake_all()  # changes before the connection was opened were not announced
            needed = time.monotonic()
            while self._goes_on(needed):
                for name in line.hear(GLANCE):
                    self._waiters.wake(name)
                if self._waiters:
                    needed = time.monotonic()
        except self._errors as error:
            self._rests_until = time.monotonic() + REST
            message = "%s: listening for changes failed, so the store is polled until that works again: %s"
            logger.warning(message, self._name, type(error).__name__)
        finally:
            with self._lock:
                self._runs = False
            self._waiters.wake_all()  # waiters read their keys, and wait again
            if line is not None:
                line.close()

    def _goes_on(self, needed: float) -> bool:
        with self._lock:
            return not self._closing and time.monotonic() < needed + LINGER
