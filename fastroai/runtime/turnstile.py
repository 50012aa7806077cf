"""Letting coroutines through one at a time, whatever thread or event loop they are on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from fastroai.runtime.wakeup import Wakeup


@dataclass(eq=False)
class _Waiting:
    """Somebody in line."""

    turn: Wakeup
    refusal: Exception | None = None


class Turnstile:
    """`async with turnstile:` for one at a time, first come, first served."""

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
                self._next()  # it was our turn already
            raise
        if waiting.refusal is not None:
            raise waiting.refusal

    def turn_away(self, refusal: Callable[[], Exception]) -> None:
        """Raise an error in each who waits now. Those who come later wait for their turn."""
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
