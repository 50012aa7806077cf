"""Streamed answers: iterated or entered, and always settled."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from pydantic_ai import AgentRunResultEvent
from pydantic_ai.messages import AgentStreamEvent
from pydantic_ai.output import OutputDataT

from fastroai.calls.response import ChatResponse, StreamChunk
from fastroai.errors import ConfigurationError
from fastroai.records import Usage
from fastroai.runtime import Clock, PumpedStream, Scope, Send

ItemT = TypeVar("ItemT")

OnText = Callable[[str], Awaitable[None]]
OnScope = Callable[[Scope], None]
"""Function that is given the scope of a call when it opens."""


class SettledStream(PumpedStream[ItemT]):
    """The items of one agent call. Leaving the stream early ends the call and settles its cost."""

    def __init__(self, produce: Callable[[Send[ItemT], OnScope], Awaitable[None]]) -> None:
        super().__init__(lambda send: produce(send, self._on_scope))
        self._scope: Scope | None = None

    def _on_scope(self, scope: Scope) -> None:
        self._scope = scope

    @property
    def usage(self) -> Usage:
        """Usage of the call so far; complete once the stream has ended or was left."""
        return Usage() if self._scope is None else self._scope.spent()


class ChatStream(SettledStream[StreamChunk[OutputDataT]], Generic[OutputDataT]):  # pyright: ignore[reportInvalidTypeArguments]
    """A streamed answer, as `StreamChunk`s. The last one is final, and has the whole response.

        async for chunk in agent.run_stream("Tell me a story"):
            print(chunk.content, end="")

    Leaving the stream early ends the call and settles its cost.
    """

    def __init__(self, produce: Callable[[Send[StreamChunk[OutputDataT]], OnScope], Awaitable[None]]) -> None:
        super().__init__(produce)
        self.response: ChatResponse[OutputDataT] | None = None
        """The response that `run` would have returned; `None` until the final chunk was read."""
        self._on_text: OnText | None = None
        self._clock: Clock | None = None

    def observe(self, *, on_text: OnText, clock: Clock | None) -> None:
        """Report text as it comes, and pause the clock of a step while it waits for the model. For steps."""
        self._on_text, self._clock = on_text, clock

    async def stream_text(self, *, delta: bool = False) -> AsyncIterator[str]:
        """Iterate the text so far, or each new piece of it with `delta`, as PydanticAI's `stream_text` does.

        Raises:
            ConfigurationError: the output is structured; iterate the stream itself for its `output` so far.
        """
        text = ""
        async for chunk in self:
            if chunk.output is not None and not isinstance(chunk.output, str):
                expected = "a stream of text; iterate the stream itself, whose chunks have the output so far"
                raise ConfigurationError("stream_text", type(chunk.output).__name__, expected)
            if chunk.content:
                text += chunk.content
                yield chunk.content if delta else text

    async def _receive(self) -> StreamChunk[OutputDataT]:
        if self._clock is None:
            chunk = await super()._receive()
        else:
            with self._clock.paused():
                chunk = await super()._receive()
        if chunk.is_final:
            self.response = chunk.usage_data
        elif chunk.content and self._on_text is not None:
            await self._on_text(chunk.content)
        return chunk


@dataclass(frozen=True, slots=True)
class ResponseEvent(Generic[OutputDataT]):
    """The last event of `run_stream_events`, with the response of the run."""

    response: ChatResponse[OutputDataT]
    event_kind: Literal["fastroai_response"] = "fastroai_response"


class EventStream(
    SettledStream[AgentStreamEvent | AgentRunResultEvent[OutputDataT] | ResponseEvent[OutputDataT]],
    Generic[OutputDataT],
):
    """A stream of PydanticAI's events of a run, its `AgentRunResultEvent`, and at last a `ResponseEvent`."""
