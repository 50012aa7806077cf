"""A lock for coroutines on any thread or event loop, first come, first served."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager

from fastroai.runtime.wakeup import result_of


class Turnstile:
    """Let one coroutine in at a time: each waits for the end of the turn before its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: Future[None] = _ended()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Future[None]]:
        """Wait for a turn, and keep it until the end of the block.

        The turn also ends with an exception that is set in the future. It is raised in each coroutine that
        waits then. Later ones get their turn.
        """
        turn: Future[None] = Future()
        with self._lock:
            before = _ended() if self._last.done() else self._last
            self._last = turn
        try:
            if not before.done():
                await result_of(before)
            yield turn
        finally:  # who is cancelled in line ends its turn when it would begin
            before.add_done_callback(lambda before: _pass_on(before, turn))


def _ended() -> Future[None]:
    turn: Future[None] = Future()
    turn.set_result(None)
    return turn


def _pass_on(before: Future[None], turn: Future[None]) -> None:
    """End a turn as the one before has ended, unless it has ended by itself."""
    if turn.done():
        return
    if (refusal := before.exception()) is None:
        turn.set_result(None)
    else:
        turn.set_exception(refusal)
