"""A run as a stream of its events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from fastroai.runtime import PumpedStream, Send
from fastroai.runtime.events import Listener
from fastroai.runtime.fact_base import RunEvent

ResultT = TypeVar("ResultT")


class RunStream(PumpedStream[RunEvent], Generic[ResultT]):
    """Iterates the events of a run. The run goes on only as fast as the events are read.

    Use the stream with `async for`. With `async with`, the run has always ended when the block is left.
    """

    def __init__(self, execute: Callable[[Listener], Awaitable[ResultT]]) -> None:
        super().__init__(self._produce, depth=16)
        self._execute = execute
        self.result: ResultT | None = None
        """The result, once the iteration has ended."""

    async def _produce(self, send: Send[RunEvent]) -> None:
        self.result = await self._execute(send)
