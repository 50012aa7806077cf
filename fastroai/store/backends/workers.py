"""A few threads for blocking calls."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from fastroai.forks import in_forked_process

ResultT = TypeVar("ResultT")


class Workers:
    """At most `limit` daemon threads, started when needed; a forked process has none of its parent's.

    An executor would not do: it takes no more work once the interpreter has begun to exit, and by then the
    last spending is still being settled.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._start()
        in_forked_process(self._start)

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._idle = threading.Semaphore(0)
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._threads = 0
        weakref.finalize(self, self._jobs.put, None).atexit = False

    def submit(self, call: Callable[[], ResultT]) -> Future[ResultT]:
        """Run a call in a thread, as soon as one is free."""
        future: Future[ResultT] = Future()
        with self._lock:
            if not self._idle.acquire(blocking=False) and self._threads < self._limit:
                self._threads += 1
                thread = threading.Thread(
                    target=_work, args=[self._jobs, self._idle], name="fastroai-store", daemon=True
                )
                thread.start()
        self._jobs.put((future, call))
        return future


def _work(jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None], idle: threading.Semaphore) -> None:
    """Run calls until nobody has the `Workers` any more. This thread does not keep them alive."""
    while (job := jobs.get()) is not None:
        future, call = job
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
        del job, future, call  # or they stay alive until the next job
        idle.release()
    jobs.put(None)  # ends the other threads
