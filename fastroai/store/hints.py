"""Hints that a key has changed: who waits for them, and a thread that hears of them from a server."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Protocol, TypeAlias, runtime_checkable

from fastroai.store.workers import Workers

GLANCE: Final = 0.5
"""Seconds after which a listening thread looks whether it is still needed."""
LINGER: Final = 5.0
"""Seconds for which it listens on when nobody waits: who follows a run is soon back."""
REST: Final = 1.0
"""Seconds between two attempts to listen to a server, after one has failed."""
UNHEARD: Final = 0.5
"""Seconds for which somebody waits at most while nobody listens."""

logger = logging.getLogger("fastroai.store")

_Waiter: TypeAlias = tuple[asyncio.AbstractEventLoop, asyncio.Event]


@runtime_checkable
class HintsChanges(Protocol):
    """A store that can tell when a key changes. It is an option of a `RunStore`: who has none is polled."""

    async def changed(self, key: str, *, revision: int, timeout: float) -> None:
        """Return when the key is at another revision than this, or soon after; or after `timeout` seconds.

        It is a hint: it may come though nothing has changed, and can be lost with a connection. So read the
        key, and come back.

        Raises:
            RunStoreUnavailable: as from the operations of a `RunStore`.
        """
        ...


class Waiters:
    """Who waits for changes of keys, in any thread and event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: defaultdict[bytes, set[_Waiter]] = defaultdict(set)

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        with self._lock:
            return bool(self._waiting)

    @contextmanager
    def waiting(self, name: bytes) -> Iterator[asyncio.Event]:
        """An event that is set when the key changes from now on."""
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
        """The key has changed."""
        with self._lock:
            waiters = tuple(self._waiting.get(name, ()))
        _set(waiters)

    def wake_all(self) -> None:
        """Any key may have changed."""
        with self._lock:
            waiters = tuple(one for waiting in self._waiting.values() for one in waiting)
        _set(waiters)


def _set(waiters: Iterable[_Waiter]) -> None:
    for loop, event in waiters:
        with suppress(RuntimeError):  # its loop is closed, so nobody waits there
            loop.call_soon_threadsafe(event.set)


async def wait_for(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, at most so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class Line(Protocol):
    """A connection on which a server tells of changes. It is used by one thread."""

    def hear(self, seconds: float) -> Iterable[bytes]:
        """The names of keys that have changed; waits for the first so long at most."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Listener:
    """Hears of changes on one connection, however many wait for them; while nobody does, on none.

    It has a thread of its own, because the clients of databases block, and a store serves several loops.
    """

    def __init__(self, name: str, connect: Callable[[], Line], errors: tuple[type[Exception], ...]) -> None:
        """`errors` are what a line raises when the server fails."""
        self._name, self._connect, self._errors = name, connect, errors
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._waiters, self._workers = Waiters(), Workers(1)
        self._lock = threading.Lock()
        self._runs = self._closing = False
        self._rests_until = 0.0

    async def changed(
        self, name: bytes, look: Callable[[], Awaitable[int]], *, revision: int, timeout: float
    ) -> None:
        """As `HintsChanges` says, for the store that it is of. `look` reads the revision of the key."""
        if os.getpid() != self._process:
            self._start()  # a forked process does not have its parent's thread
        with self._waiters.waiting(name) as woken:
            self._see_that_it_runs()
            # It may have changed since it was read, and before anybody listened.
            if await look() == revision:
                await wait_for(woken, timeout if self._runs else min(timeout, UNHEARD))

    def _see_that_it_runs(self) -> None:
        with self._lock:
            if not self._runs and time.monotonic() >= self._rests_until:
                self._runs, self._closing = True, False
                self._workers.submit(self._listen)

    async def aclose(self) -> None:
        """End the connection. A later wait opens another."""
        if os.getpid() == self._process:
            with self._lock:
                self._closing = True
            await asyncio.wrap_future(self._workers.submit(lambda: None))

    def _listen(self) -> None:
        line: Line | None = None
        try:
            line = self._connect()
            self._waiters.wake_all()  # what has changed before was not heard
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
            self._waiters.wake_all()  # they look for themselves, and come back
            if line is not None:
                line.close()

    def _goes_on(self, needed: float) -> bool:
        with self._lock:
            return not self._closing and time.monotonic() < needed + LINGER
