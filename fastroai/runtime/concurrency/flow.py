"""Streams and their readers: while nobody reads a stream, its requests cannot end and free their money."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from fastroai.runtime.budgets.ledger import Hold

T = TypeVar("T")

STALLED_AFTER: Final = 1.0
"""Seconds for which a consumer may leave an item unread before others stop waiting for its stream."""


class Flow:
    """One stream of items through a pump, or to a handler of events."""

    __slots__ = ("_watchers", "holds", "reader")

    def __init__(self) -> None:
        self._watchers: set[Callable[[bool], None]] = set()
        self.holds: set[Hold] = set()
        """The holds of the requests whose answers go through the stream."""
        self.reader: asyncio.Task[Any] | None = None
        """The task that reads the stream; `None` before the first read and after the end."""

    def read(self) -> None:
        """Note that the running task asks for the next item."""
        task = asyncio.current_task()
        if self.reader is not task:
            self.reader = task
            going_on = (flow for flow in _read_here.get() if flow.reader is not None and flow is not self)
            _read_here.set((*going_on, self))

    def end(self) -> None:
        """Note that the stream has ended."""
        self.reader = None

    def watch(self, watcher: Callable[[bool], None]) -> None:
        """Have `watcher(stalled)` called when nobody reads any more, and when somebody reads again."""
        self._watchers.add(watcher)

    def forget(self, watcher: Callable[[bool], None]) -> None:
        """Stop calling a watcher."""
        self._watchers.discard(watcher)

    def stall(self) -> None:
        """Tell watchers that nobody has read for a while."""
        self._tell(True)

    def resume(self) -> None:
        """Tell watchers that somebody reads again."""
        self._tell(False)

    async def watched(self, items: AsyncIterable[T]) -> AsyncGenerator[T]:
        """Yield the same items. While the consumer leaves one unread for long, the stream is stalled."""
        loop = asyncio.get_running_loop()
        async for item in items:
            alarm = loop.call_later(STALLED_AFTER, self.stall)
            try:
                yield item
            finally:
                alarm.cancel()
                self.resume()

    def _tell(self, stalled: bool) -> None:
        for watcher in list(self._watchers):
            watcher(stalled)


def read_by_this_task() -> tuple[Flow, ...]:
    """Return the streams that the running task reads: they go on only when it reads the next item."""
    flows = _read_here.get()
    if not flows:
        return ()
    task = asyncio.current_task()
    return tuple(flow for flow in flows if flow.reader is task)


def read_around() -> tuple[Flow, ...]:
    """Return the streams that were being read where the running code was started, perhaps by another task."""
    return tuple(flow for flow in _read_here.get() if flow.reader is not None)


_read_here: Final[ContextVar[tuple[Flow, ...]]] = ContextVar("fastroai_flows_read", default=())

current_flow: Final[ContextVar[Flow | None]] = ContextVar("fastroai_flow", default=None)
"""The innermost stream for which the running task produces items."""
