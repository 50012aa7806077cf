"""Ending a request that is in flight from outside, without cancelling the task that has made it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any

from fastroai.errors import ScopeClosedError
from fastroai.runtime.wakeup import running_loop

if TYPE_CHECKING:
    from fastroai.runtime.scope import Scope

Stop = Callable[[], Coroutine[Any, Any, None]]

logger = logging.getLogger("fastroai.runtime")


class Interruption:
    """Ends one request from outside: when it is `set`, the request raises `ScopeClosedError`.

    As with `asyncio.timeout`, the task is cancelled, and the cancellation ends where the request does: code
    around the request sees an ordinary exception.
    """

    __slots__ = (
        "_cancellations",
        "_cancelled",
        "_is_set",
        "_loop",
        "_scope",
        "_sender",
        "_stop",
        "_stopping",
    )

    def __init__(self, scope: Scope) -> None:
        """Of a request that was made in `scope`."""
        self._scope = scope
        self._is_set = self._cancelled = False
        self._cancellations = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sender: asyncio.Task[Any] | None = None
        self._stop: Stop | None = None
        self._stopping: asyncio.Task[None] | None = None

    @property
    def is_set(self) -> bool:
        """Whether the run has ended."""
        return self._is_set

    def set(self) -> None:
        """End the request; from any thread."""
        self._is_set = True
        if (loop := self._loop) is None:
            return
        if loop is running_loop():
            self._end()
        else:
            with suppress(RuntimeError):  # the loop is closed, and the request with it
                loop.call_soon_threadsafe(self._end)

    def of_task(self) -> AbstractContextManager[None]:
        """Inside, the running task awaits the provider, and nothing but that."""
        return _OfTask(self)

    def send_here(self) -> None:
        """The running task is cancelled if the request is ended from now on.

        Raises:
            ScopeClosedError: the run has ended.
        """
        if self._is_set:
            raise self._closed()
        task = asyncio.current_task()
        assert task is not None
        self._sender, self._loop, self._cancellations = task, task.get_loop(), task.cancelling()

    def sent(self, error: BaseException | None) -> None:
        """It is not cancelled any more; `error` has left the request, if it was no answer.

        Raises:
            ScopeClosedError: the error is our cancellation, and nobody else's.
        """
        task, self._sender = self._sender, None
        if task is None or not self._cancelled:
            return
        self._cancelled = False
        is_ours = task.uncancel() <= self._cancellations  # those that are left are of others
        if is_ours and isinstance(error, asyncio.CancelledError):
            raise self._closed() from error

    def read_here(self) -> None:
        """The stream is ended on the running loop from now on; any code reads it, and is not cancelled.

        Raises:
            ScopeClosedError: the run has ended.
        """
        if self._is_set:
            raise self._closed()
        self._loop = asyncio.get_running_loop()

    def was_read(self, error: BaseException | None) -> None:
        """The stream is read no more; `error` has left it, if it did not come to its end.

        Raises:
            ScopeClosedError: the run has ended, whatever error came of that.
        """
        if self._is_set and (error is None or isinstance(error, Exception)):
            raise self._closed() from error

    def stop_by(self, stop: Stop) -> None:
        """Note how the source of a stream is closed."""
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
    """What `Interruption.of_task` is."""

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
        pass  # of a model that cannot do it, the stream is read to its end, and then fails
    except Exception:
        logger.warning("a stream could not be closed at the end of its run", exc_info=True)
