"""A pipeline run as a stream of what happens in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Generic, Self

from fastroai.pipelines.result import OutputT, PipelineResult
from fastroai.runtime import Listener, Pump, RunEvent, Send


class PipelineStream(Generic[OutputT]):
    """Iterates the events of a run, which goes on only as fast as they are read.

    Use it with `async for`, or with `async with` to be sure that leaving it has ended the run.
    """

    def __init__(self, execute: Callable[[Listener], Awaitable[PipelineResult[OutputT]]]) -> None:
        self._execute = execute
        self._pump: Pump[RunEvent] = Pump(self._produce, depth=16)
        self._entered = False
        self.result: PipelineResult[OutputT] | None = None
        """The result, once the iteration has ended."""

    async def _produce(self, send: Send[RunEvent]) -> None:
        self.result = await self._execute(send)

    async def __aenter__(self) -> Self:
        self._entered = True
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._pump.aclose()

    async def __aiter__(self) -> AsyncIterator[RunEvent]:
        try:
            async for event in self._pump:
                yield event
        finally:
            # Inside `async with` the block decides when it ends.
            if not self._entered:
                await self._pump.aclose()
