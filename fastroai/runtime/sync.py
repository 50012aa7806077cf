"""Sync entry points: run a coroutine from a script, a notebook cell without a loop, or a worker thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from fastroai.errors import RunningLoopError, attach_usage, records_of, usage_of
from fastroai.runtime.scope import Scope, current_scope
from fastroai.runtime.tasks import end_task

T = TypeVar("T")


class _BackgroundLoop:
    """One event loop in a daemon thread, shared by all sync calls of the process.

    One loop, because HTTP clients belong to the loop that they were first used on: a loop for each call
    would leave the second call with the dead connections of the first.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0

    def get(self) -> asyncio.AbstractEventLoop:
        """The running loop; started on first use, and again after a fork."""
        with self._lock:
            if self._loop is None or self._process != os.getpid():
                self._loop = asyncio.new_event_loop()
                self._process = os.getpid()
                thread = threading.Thread(
                    target=_run_for_ever, args=[self._loop], name="fastroai-sync", daemon=True
                )
                thread.start()
            return self._loop


def _run_for_ever(loop: asyncio.AbstractEventLoop) -> None:
    stopped = False
    while not stopped:
        try:
            loop.run_forever()
            stopped = True
        except (SystemExit, KeyboardInterrupt):
            pass  # a task of one caller raised it, and asyncio stopped for it; the others' calls go on


_background = _BackgroundLoop()


def background_loop() -> asyncio.AbstractEventLoop:
    """The event loop that runs in a thread of its own, for sync calls and for what must outlive a call."""
    return _background.get()


def run_blocking(call: Callable[[], Coroutine[Any, Any, T]], *, called: str, instead: str) -> T:
    """Run a coroutine to its end and return its result, with the caller's context variables.

    In a worker thread of a running pipeline it runs on that pipeline's loop; otherwise on a background loop.

    Raises:
        RunningLoopError: this thread runs an event loop, which waiting here would block.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise RunningLoopError(called, instead)
    scope = current_scope()
    if scope is not None and scope.loop is not None and scope.loop.is_running():
        return _Handover(_run_within(scope, call)).wait(scope.loop)
    return _Handover(call()).wait(_background.get())


class _Exit:
    """A `SystemExit` or `KeyboardInterrupt` on its way to the thread that it is meant for."""

    def __init__(self, error: SystemExit | KeyboardInterrupt) -> None:
        self.error = error


class _Handover(Generic[T]):
    """A coroutine that another thread's loop runs while this thread waits."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._ended = threading.Event()
        self._error: BaseException | None = None

    def wait(self, loop: asyncio.AbstractEventLoop) -> T:
        """Its result. An interrupt cancels it, waits for its end, and has what it spent."""
        future = asyncio.run_coroutine_threadsafe(self._carry(), loop)
        try:
            outcome = future.result()
        except concurrent.futures.CancelledError:
            raise asyncio.CancelledError from None  # the other one is an Exception, which a step might retry
        except BaseException as error:
            if not future.done():
                future.cancel()
                self._ended.wait(timeout=10.0)
                if self._error is not None and (spent := usage_of(self._error)) is not None:
                    attach_usage(error, spent, records_of(self._error))
            raise
        if isinstance(outcome, _Exit):
            raise outcome.error
        return outcome

    async def _carry(self) -> T | _Exit:
        """Hand an exit over as a value: a task that raises it stops its loop, and nobody would be told."""
        try:
            return await self._coroutine
        except (SystemExit, KeyboardInterrupt) as error:
            return _Exit(error)
        except BaseException as error:
            self._error = error
            raise
        finally:
            self._ended.set()


async def _run_within(scope: Scope, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a call of a worker thread so that it ends with its scope, as the thread itself cannot be ended."""
    task = asyncio.current_task()
    assert task is not None
    holder = next((scope for scope in scope.lineage() if not scope.closed), scope.root)
    end = functools.partial(end_task, task)
    holder.on_close(end)
    try:
        return await call()
    finally:
        holder.forget_closer(end)
