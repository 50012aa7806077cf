"""A stream from a producer, in a task of its own, to its consumer: bounded, cancellable, always ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import Context, copy_context
from typing import Final, Generic, Self, TypeAlias, TypeVar

from fastroai.errors import ScopeClosedError
from fastroai.runtime.concurrency.flow import STALLED_AFTER, Flow, current_flow
from fastroai.runtime.concurrency.tasks import end_task
from fastroai.runtime.concurrency.wakeup import no_running_loop, running_loop
from fastroai.runtime.scope import Scope, current_scope

T = TypeVar("T")

Send: TypeAlias = Callable[[T], Awaitable[None]]
Produce: TypeAlias = Callable[[Send[T]], Awaitable[None]]


class _End:
    """Marks the end of the items."""


_END: Final = _End()


class Pump(Generic[T]):
    """Iterates the items that `produce(send)` sends from a task of its own, at most `depth` items ahead.

    The task is needed because the producer may hold cancel scopes. These must end in the task in which they
    began, but an async generator can be closed from another task. The task starts on the first iteration,
    with the context variables of the place where the pump was made. It ends at `aclose()`, at the latest when
    the scope that was current there ends. An exception of the producer is raised where the items are read.
    """

    def __init__(self, produce: Produce[T], *, depth: int = 1) -> None:
        self._produce = produce
        self._queue: asyncio.Queue[T | _End] = asyncio.Queue()
        self._room = asyncio.Semaphore(depth)
        self._context: Context = copy_context()
        self._scope: Scope | None = current_scope()
        self._task: asyncio.Task[None] | None = None
        self._closed = self._is_over = False
        self.is_stopped = False
        """Whether `stop` has cancelled the producer."""
        self._flow = Flow()
        self._blocked = 0
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def started(self) -> bool:
        """Whether an item was ever asked for."""
        return self._task is not None

    def __aiter__(self) -> Pump[T]:
        return self

    async def __anext__(self) -> T:
        if self._closed:
            raise StopAsyncIteration
        if self._task is None:
            self._start()
        self._flow.read()
        item = await self._queue.get()
        if not isinstance(item, _End):
            self._room.release()
            return item
        self._queue.put_nowait(item)  # for others who read at the same time
        if self._is_over and self._scope is not None:
            raise ScopeClosedError(self._scope.path, in_flight=True)
        await self._finish()
        raise StopAsyncIteration

    def _start(self) -> None:
        if running_loop() is None:
            raise no_running_loop()
        self._task = asyncio.create_task(self._run(), context=self._context)
        # The end needs no room in the queue, and comes although the task is cancelled before it has begun.
        self._task.add_done_callback(lambda _: self._queue.put_nowait(_END))
        if self._scope is not None:
            self._scope.on_close(self._end)

    async def _run(self) -> None:
        current_flow.set(self._flow)
        await self._produce(self._send)

    async def _send(self, item: T) -> None:
        if self._room.locked():
            await self._wait_for_room()
        else:
            await self._room.acquire()
        self._queue.put_nowait(item)

    async def _wait_for_room(self) -> None:
        self._blocked += 1
        self._set_alarm()
        try:
            await self._room.acquire()
        finally:
            self._blocked -= 1
            self._flow.resume()
            self._set_alarm()  # other senders may still be blocked: one item read lets only one go on

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._blocked:
            self._alarm = asyncio.get_running_loop().call_later(STALLED_AFTER, self._flow.stall)

    async def _finish(self) -> None:
        assert self._task is not None
        was_ended, self._closed = self.is_stopped or self._closed, True
        self._flow.end()
        if self._scope is not None:
            self._scope.forget_closer(self._end)
        if not (was_ended and self._task.cancelled()):
            await self._task

    def stop(self) -> None:
        """Cancel the producer without waiting for its end. The items end with it."""
        if not (self._closed or self.is_stopped):
            self._closed = self._task is None
            self.is_stopped = self._task is None or self._task.cancel()

    async def _end(self) -> None:
        """Close the pump because the scope ends. A reader in another task gets `ScopeClosedError`."""
        self._is_over = True
        await self.aclose()

    async def aclose(self) -> None:
        """Stop the producer and wait for its end. A failure that nobody has seen yet is not raised here.

        Code that the producer itself awaits, such as a tool of an agent, does not wait.
        """
        if self._closed:
            return
        self._closed = True
        self._flow.end()
        if self._scope is not None:
            self._scope.forget_closer(self._end)
        if self._task is not None and current_flow.get() is self._flow:
            self._task.cancel()
        elif self._task is not None:
            await end_task(self._task)


class PumpedStream(Generic[T]):
    """A stream for users: the items of a pump, which is closed when the user leaves.

    `async for item in stream` closes the pump when the loop is left. `async with stream:` closes it when the
    block is left, so that a loop inside can be left and continued. At the latest, the end of the enclosing
    scope closes it.
    """

    def __init__(self, produce: Produce[T], *, depth: int = 1) -> None:
        self._pump: Pump[T] = Pump(produce, depth=depth)
        self._entered = False

    async def __aenter__(self) -> Self:
        self._entered = True
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def __aiter__(self) -> AsyncIterator[T]:
        try:
            while True:
                try:
                    item = await self._receive()
                except StopAsyncIteration:
                    return
                yield item
        finally:
            # Inside `async with`, the end of the block closes the pump.
            if not self._entered:
                await self._pump.aclose()

    async def __anext__(self) -> T:
        """Return the next item. The pump stays open until `async with`, `aclose` or the scope closes it."""
        return await self._receive()

    def _receive(self) -> Awaitable[T]:
        """Return the next item; raise `StopAsyncIteration` after the last. Subclasses may override this."""
        return anext(self._pump)

    async def aclose(self) -> None:
        """End the producer of the items, if it has not ended."""
        await self._pump.aclose()
