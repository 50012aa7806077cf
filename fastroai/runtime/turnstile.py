"""Letting coroutines through one at a time, whatever thread or event loop they are on."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType

from fastroai.runtime.wakeup import Wakeup


class Turnstile:
    """`async with turnstile:` for one at a time, first come, first served."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line: deque[Wakeup] = deque()
        self._taken = False

    async def __aenter__(self) -> None:
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            turn = Wakeup()
            self._line.append(turn)
        try:
            await turn.wait()
        except BaseException:
            with self._lock:
                if turn in self._line:
                    self._line.remove(turn)
                    raise
            self._next()  # it was our turn already
            raise

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
            turn = self._line.popleft()
        turn.set()
