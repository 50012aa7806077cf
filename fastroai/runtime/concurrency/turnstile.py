"""A lock for coroutines on any thread or event loop, first come, first served."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager

from fastroai.runtime.concurrency.wakeup import result_of


class Turn(Future["Turn | None"]):
    """A turn, with the turn to wait for instead as its result, if nobody waits for this one any more."""


class Turnstile:
    """Let one coroutine in at a time: each waits for the end of the turn before its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: Turn | None = None

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Turn]:
        """Wait for a turn, and keep it until the end of the block.

        The turn also ends with an exception that is set in the future. It is raised in each coroutine that
        waits then. Later ones get their turn.
        """
        turn = Turn()
        with self._lock:
            before, self._last = self._last, turn
        while before is not None and before.done():
            before = None if before.exception() else before.result()
        try:
            while before is not None:
                before = await result_of(before)
            yield turn
        finally:
            if not turn.done():
                refusal = before.exception() if before is not None and before.done() else None
                if refusal is None:
                    turn.set_result(before)
                else:
                    turn.set_exception(refusal)
