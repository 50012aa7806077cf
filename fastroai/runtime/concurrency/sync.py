"""Sync entry points, which run a coroutine from a script, a worker thread, or a notebook without a loop."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import Context
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

from fastroai.callers import CALLER, Caller
from fastroai.errors import RunningLoopError
from fastroai.errors.base import attach_as
from fastroai.forks import in_forked_process
from fastroai.keyword_options import hint_for
from fastroai.runtime.concurrency.threads import depth, loop_of_this_thread, mark_thread
from fastroai.runtime.concurrency.wakeup import blocked_loop
from fastroai.runtime.scope import Scope, current_scope
from fastroai.runtime.tree import THIS_PROCESS

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")


class BackgroundLoop:
    """One event loop in a daemon thread, which runs while a call needs it.

    Between calls the loop is stopped. PydanticAI moves an HTTP client to another loop, such as that of the
    next `asyncio.run`, only when the loop that used it last has stopped. The loop is not closed, so that the
    next call can use the connections of the last.
    """

    def __init__(self, depth: int) -> None:
        """Make the loop for calls of threads at this depth."""
        self._depth = depth
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = threading.Condition()
        self._calls = 0
        self._runs = False

    @contextmanager
    def running(self) -> Iterator[asyncio.AbstractEventLoop]:
        """Keep the loop running inside the `with` block. After the last such block, the loop has stopped."""
        loop = self.start()
        try:
            yield loop
        finally:
            with self._changed:
                self._calls -= 1
                if not self._calls:
                    loop.call_soon_threadsafe(loop.stop)
                    self._changed.wait_for(lambda: self._calls or not self._runs)

    def start(self) -> asyncio.AbstractEventLoop:
        """Start the loop if it does not run, and return it. It runs from now on."""
        with self._changed:
            if self._loop is None or self._loop.is_closed():
                self._loop = self._open()
            self._calls += 1
            self._changed.notify_all()
            return self._loop

    def _open(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        # Threads for work that code on this loop hands over. Sync calls in them must not wait for this loop.
        loop.set_default_executor(
            ThreadPoolExecutor(
                thread_name_prefix="fastroai-sync", initializer=mark_thread, initargs=(self._depth + 1,)
            )
        )
        threading.Thread(target=self._serve, args=[loop], name="fastroai-sync", daemon=True).start()
        return loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            with self._changed:
                self._runs = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._calls)
                if loop.is_closed():
                    return
                self._runs = True
            # If a task of one caller raises one of these, asyncio stops the loop; the calls of others go on.
            with suppress(SystemExit, KeyboardInterrupt):
                loop.run_forever()

    def close(self) -> None:
        """Close the loop, if no call needs it."""
        with self._changed:
            if self._loop is not None and not self._calls and not self._runs:
                self._loop.close()


_loops: Final[dict[int | None, BackgroundLoop]] = {}
"""The loops for sync calls, by the depth of the threads that make them; `None` for that of chores.

A thread waits only for a loop of a greater depth. So a loop that needs a thread, for example to look up a
host, never finds all threads waiting for that same loop.
"""
in_forked_process(_loops.clear)  # their threads are those of the parent


@atexit.register
def _close() -> None:
    for background in _loops.values():
        background.close()


def background_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop that always runs in a thread of its own, for work that must outlive a call."""
    return _loops.setdefault(None, BackgroundLoop(0)).start()


_at_work: Final[set[concurrent.futures.Future[Any]]] = set()
"""Work on the background loop, kept until it is done: the loop has only weak references to its tasks."""
unfinished: Final[set[concurrent.futures.Future[Any]]] = set()
"""The part of that work for whose end the process waits."""
SECONDS_AT_EXIT = 5.0
in_forked_process(_at_work.clear)  # it belongs to the parent, whose loop is not here
in_forked_process(unfinished.clear)


@atexit.register
def _finish() -> None:
    """Wait a few seconds for work that must come to its end before the process does."""
    concurrent.futures.wait(list(unfinished), timeout=SECONDS_AT_EXIT)


def in_background(work: Coroutine[Any, Any, T], *, finishes: bool = False) -> concurrent.futures.Future[T]:
    """Run a coroutine on the background loop. With `finishes`, a process ends some seconds later for it.

    Context variables are not passed on: work for many runs would otherwise keep the scopes of its first run
    alive.
    """
    future = Context().run(asyncio.run_coroutine_threadsafe, work, background_loop())
    kept = unfinished if finishes else _at_work
    kept.add(future)
    future.add_done_callback(kept.discard)
    return future


def _loop_called_on() -> asyncio.AbstractEventLoop | None:
    """Return the loop to which another thread handed the running code; `None` if none did.

    Also `None` in a process that was forked since: there the loop does not run, although it seems to.
    """
    caller = CALLER.get()
    return caller.loop if caller.process == THIS_PROCESS.id else None


def run_blocking(
    call: Callable[[], Coroutine[Any, Any, T]],
    *,
    called: str,
    instead: str,
    home: asyncio.AbstractEventLoop | None = None,
) -> T:
    """Run a coroutine to its end and return its result, with the caller's context variables.

    In a worker thread of a run (see `run_in_thread`), the coroutine runs on the loop of that run, otherwise
    on a background loop. In a thread of the caller's own it does not run on the loop of the run: that thread
    may belong to the default executor of the loop, and if all of its threads waited for the loop, the loop
    would have none left to look up hosts. `home` is for a call that can run on one loop only: it is used if
    the surrounding run is on that loop.

    Raises:
        RunningLoopError: this thread runs an event loop, which would be blocked.
    """
    if (loop_here := blocked_loop()) is not None:
        call().close()  # so that invalid arguments are reported first
        raise RunningLoopError(called, instead, loop_here)
    scope = current_scope()
    around = _loop_around(scope, home)
    if around is not None:
        return _Handover(call, scope, around).wait()
    here = depth()
    with _loops.setdefault(here, BackgroundLoop(here)).running() as loop:
        return _Handover(call, scope, loop).wait()


def blocking(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
    *,
    of: str | Callable[[S], str],
    name: str = "",
    home: Callable[..., asyncio.AbstractEventLoop | None] | None = None,
) -> Callable[Concatenate[S, P], T]:
    """Return the sync twin of an async method.

        execute_sync = blocking(execute, of="pipeline")

    The twin has the parameters and the docstring of the method, and calls the method of a subclass if that
    overrides it. It is a plain function: through a descriptor class, type checkers would lose the type
    variables of the method.

    Args:
        method: The async method.
        of: The name of the object in errors, or a function that returns it from the object.
        name: The name of the method, if it differs from that of its function.
        home: Function that returns the `home` of `run_blocking`, from the object and the arguments.
    """
    name = name or method.__name__

    @functools.wraps(method)
    def twin(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        own: Callable[P, Coroutine[Any, Any, T]] = getattr(self, name)  # a subclass may override the method
        signature = inspect.signature(own)
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:  # its text does not name the sync twin, nor what may be meant
            unknown = next((name for name in kwargs if name not in signature.parameters), None)
            hint = "" if unknown is None else hint_for(unknown, signature, f"{name}_sync")
            raise TypeError(f"{type(self).__name__}.{name}_sync() {error}{hint}") from None
        called = of if isinstance(of, str) else of(self)
        return run_blocking(
            lambda: own(*args, **kwargs),
            called=f"{called}.{name}_sync",
            instead=f"{called}.{name}",
            home=None if home is None else home(self, *args, **kwargs),
        )

    around = method.__qualname__.removesuffix(method.__name__)
    twin.__name__, twin.__qualname__ = f"{name}_sync", f"{around}{name}_sync"
    callers = "steps that are not `async`" if home is loop_of_run else "scripts and worker threads"
    twin.__doc__ = (
        f"`{name}` for {callers}. On a running event loop it raises `RunningLoopError`; "
        f"await `{name}` there.\n\n{inspect.getdoc(method)}"
    )
    return twin


def blocking_overloaded(
    method: Callable[..., Coroutine[Any, Any, Any]],
    *,
    of: str,
    home: Callable[..., asyncio.AbstractEventLoop | None] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that makes the sync twin of a method with overloads, as `blocking` does for others.

    It decorates the definition below the overloads of the twin. Those are written out, because mypy passes
    only the first overload of a method through `blocking`.
    """
    twin = blocking(method, of=of, home=home)
    return lambda definition: twin


def loop_of_run(*_: object, **__: object) -> asyncio.AbstractEventLoop | None:
    """Return the loop of the surrounding run: the `home` of calls that belong to a step, from any thread."""
    scope = current_scope()
    return None if scope is None else _loop_called_on() or scope.tree.loop


def _loop_around(
    scope: Scope | None, home: asyncio.AbstractEventLoop | None
) -> asyncio.AbstractEventLoop | None:
    """Return the loop of the surrounding run if the call may run on it, else `None`."""
    own = loop_of_this_thread()
    if own is not None and own.is_running():
        return own
    around = None if scope is None else _loop_called_on() or scope.tree.loop
    return around if around is not None and around is home and around.is_running() else None


class _Exit:
    """A `SystemExit` or `KeyboardInterrupt` on its way to the thread that waits for the call."""

    def __init__(self, error: SystemExit | KeyboardInterrupt) -> None:
        self.error = error


class _Handover(Generic[T]):
    """A coroutine that another thread's loop runs while this thread waits."""

    def __init__(
        self,
        call: Callable[[], Coroutine[Any, Any, T]],
        scope: Scope | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._call, self._scope, self._loop = call, scope, loop
        self._depth, self._thread = depth(), threading.get_ident()
        self._task: asyncio.Task[T | _Exit] | None = None
        self._outcome: concurrent.futures.Future[T | _Exit] = concurrent.futures.Future()
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._error: BaseException | None = None

    def wait(self) -> T:
        """Wait for the coroutine and return its result.

        An interrupt cancels the coroutine, waits for its end, and gets its usage attached.
        """
        try:
            # Here, an interrupt can come when the coroutine has begun already: the loop is in another thread.
            self._loop.call_soon_threadsafe(self._begin)
            outcome = self._outcome.result()
        except concurrent.futures.CancelledError:
            # `concurrent.futures.CancelledError` is an Exception, so a step might retry it.
            raise asyncio.CancelledError from None
        except BaseException as error:
            if not self._outcome.done():
                self._loop.call_soon_threadsafe(self._cancel)
                concurrent.futures.wait([self._ended], timeout=10.0)
                if self._error is not None:
                    attach_as(error, self._error)
            raise
        if isinstance(outcome, _Exit):
            raise outcome.error
        return outcome

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._carry())
        self._task.add_done_callback(self._end_with)

    def _cancel(self) -> None:
        if self._task is None:
            self._ended.set_result(None)  # the interrupt came before anything was handed over
        else:
            self._task.cancel()

    def _end_with(self, task: asyncio.Task[T | _Exit]) -> None:
        if task.cancelled():
            self._outcome.cancel()
        elif (error := task.exception()) is not None:
            self._outcome.set_exception(error)
        else:
            self._outcome.set_result(task.result())
        self._ended.set_result(None)

    async def _carry(self) -> T | _Exit:
        """Await the coroutine, and return an exit as a value: if the task raised it, the loop would stop."""
        CALLER.set(Caller(self._thread, self._depth + 1, self._loop, THIS_PROCESS.id))
        holder = self._holder()
        if holder is not None:
            holder.on_close(self._end)
        try:
            return await self._call()
        except (SystemExit, KeyboardInterrupt) as error:
            return _Exit(error)
        except BaseException as error:
            self._error = error
            raise
        finally:
            if holder is not None:
                holder.forget_closer(self._end)

    def _holder(self) -> Scope | None:
        """Return the scope whose end also ends the coroutine, because the waiting thread cannot be ended."""
        if self._scope is None:
            return None
        return next((scope for scope in self._scope.lineage() if not scope.closed), self._scope.root)

    async def _end(self) -> None:
        """Cancel the coroutine and wait for its end, from any loop, even if the caller is cancelled."""
        assert self._task is not None
        ended = asyncio.wrap_future(self._ended)
        cancelled: asyncio.CancelledError | None = None
        while not ended.done():
            self._loop.call_soon_threadsafe(self._task.cancel)
            try:
                await asyncio.wait([ended])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
