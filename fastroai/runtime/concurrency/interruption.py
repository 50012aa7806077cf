"""Interruption of a request in flight from outside; the code around the request sees no cancellation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any

from fastroai.errors import ScopeClosedError
from fastroai.runtime.concurrency.wakeup import running_loop

if TYPE_CHECKING:
    from fastroai.runtime.scope import Scope

Stop = Callable[[], Coroutine[Any, Any, None]]

logger = logging.getLogger("fastroai.runtime")


class Interruption:
    """Ends one request from outside: when it is `set`, the request raises `ScopeClosedError`.

    As with `asyncio.timeout`, the task is cancelled, and the cancellation ends where the request does: code
    around the request sees an ordinary exception.
    """

    def __init__(self, scope: Scope) -> None:
        """Prepare the interruption of a request that is made in `scope`."""
        self._scope = scope
        self.is_set = self._cancelled = False
        """Whether the run has ended."""
        self._cancellations = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sender: asyncio.Task[Any] | None = None
        self._stop: Stop | None = None
        self._stopping: asyncio.Task[None] | None = None

    def set(self) -> None:
        """End the request. Works from any thread."""
        self.is_set = True
        if (loop := self._loop) is None:
            return
        if loop is running_loop():
            self._end()
        else:
            with suppress(RuntimeError):  # the loop is closed, and the request with it
                loop.call_soon_threadsafe(self._end)

    def of_task(self) -> AbstractContextManager[None]:
        """Return a context manager for code in which the running task awaits only the provider."""
        return _OfTask(self)

    def send_here(self) -> None:
        """Note that the running task sends the request: until `sent`, `set` cancels this task.

        Raises:
            ScopeClosedError: the run has ended.
        """
        if self.is_set:
            raise self._closed()
        task = asyncio.current_task()
        assert task is not None
        self._sender, self._loop, self._cancellations = task, task.get_loop(), task.cancelling()

    def sent(self, error: BaseException | None) -> None:
        """Stop having the task cancelled. `error` is the exception that left the request, if one did.

        Raises:
            ScopeClosedError: the error is the cancellation by this object, and nobody else has cancelled.
        """
        task, self._sender = self._sender, None
        if task is None or not self._cancelled:
            return
        self._cancelled = False
        is_ours = task.uncancel() <= self._cancellations  # more are left if others have cancelled, too
        if is_ours and isinstance(error, asyncio.CancelledError):
            raise self._closed() from error

    def read_here(self) -> None:
        """End the stream on the running loop from now on. Any code may read it, and is not cancelled.

        Raises:
            ScopeClosedError: the run has ended.
        """
        if self.is_set:
            raise self._closed()
        self._loop = asyncio.get_running_loop()

    def was_read(self, error: BaseException | None) -> None:
        """Note that the stream is read no more. `error` is the exception that left it, if one did.

        Raises:
            ScopeClosedError: the run has ended, whichever error followed from that.
        """
        if self.is_set and (error is None or isinstance(error, Exception)):
            raise self._closed() from error

    def stop_by(self, stop: Stop) -> None:
        """Set the function that closes the source of the stream."""
        self._stop = stop

    def _closed(self) -> ScopeClosedError:
        return ScopeClosedError(self._scope.path, in_flight=True)

    def _end(self) -> None:
        if self._sender is not None:
            if self._sender is not asyncio.current_task():
                self._cancelled = self._sender.cancel()
        elif self._stop is not None:
            self._stopping = asyncio.get_running_loop().create_task(_stopped(self._stop))


class _OfTask:
    """The context manager that `Interruption.of_task` returns."""

    __slots__ = ("_interruption",)

    def __init__(self, interruption: Interruption) -> None:
        self._interruption = interruption

    def __enter__(self) -> None:
        self._interruption.send_here()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._interruption.sent(error)


async def _stopped(stop: Stop) -> None:
    try:
        await stop()
    except NotImplementedError:
        pass  # this model cannot close streams: the stream is read to its end, and then fails
    except Exception:
        logger.warning("a stream could not be closed at the end of its run", exc_info=True)
