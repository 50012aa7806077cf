"""A lock for coroutines on any thread or event loop, first come, first served."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from fastroai.runtime.wakeup import Wakeup


@dataclass(eq=False)
class _Waiting:
    """A coroutine in line."""

    turn: Wakeup
    refusal: Exception | None = None


class Turnstile:
    """A lock: `async with turnstile:` lets one coroutine in at a time, first come, first served."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line: deque[_Waiting] = deque()
        self._taken = False

    async def __aenter__(self) -> None:
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            waiting = _Waiting(Wakeup())
            self._line.append(waiting)
        try:
            await waiting.turn.wait()
        except BaseException:
            with self._lock:
                if waiting in self._line:
                    self._line.remove(waiting)
                    raise
            if waiting.refusal is None:
                self._next()  # the turn had come already: pass it on
            raise
        if waiting.refusal is not None:
            raise waiting.refusal

    def turn_away(self, refusal: Callable[[], Exception]) -> None:
        """Raise an error in each coroutine that waits now. Later ones wait for their turn."""
        with self._lock:
            line, self._line = self._line, deque()
        for waiting in line:
            waiting.refusal = refusal()
            waiting.turn.set()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._next()

    def _next(self) -> None:
        with self._lock:
            if not self._line:
                self._taken = False
                return
            waiting = self._line.popleft()
        waiting.turn.set()
