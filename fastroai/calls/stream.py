"""Streamed answers: iterated or entered, and always settled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing, nullcontext, suppress
from contextvars import Context
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar

from pydantic import ValidationError
from pydantic_ai import AgentRunResultEvent
from pydantic_ai.exceptions import ModelRetry, UnexpectedModelBehavior
from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    NativeToolCallPart,
    TextPart,
)
from pydantic_ai.output import OutputDataT
from pydantic_ai.result import StreamedRunResult

from fastroai.calls.response import ChatResponse, StreamChunk
from fastroai.errors import ConfigurationError
from fastroai.pydantic_ai_private import stop_reading
from fastroai.records import Usage
from fastroai.runtime import Clock, PumpedStream, Scope, Send
from fastroai.runtime.concurrency.tasks import end_task

ItemT = TypeVar("ItemT")

DEBOUNCE_BY: Final = 0.1
"""Seconds for which methods of PydanticAI's streams put changes together by default."""
_DIVISION: Final = "\n\n"
_NOT_VALID: Final = (ValidationError, ModelRetry, UnexpectedModelBehavior)
"""What PydanticAI raises if an answer is not a valid output, or not yet."""
_ELSEWHERE: Final = {
    "result": "stream.response.result, once the stream has ended",
    "timestamp": "stream.response.result.timestamp, once the stream has ended",
    "run_id": "stream.response.run_id, once the stream has ended",
    "conversation_id": "stream.response.result.conversation_id, once the stream has ended",
    "metadata": "stream.response.result.metadata, once the stream has ended",
    "workspace": "stream.response.result.workspace, once the stream has ended",
    "validate_response_output": "stream.stream_output(), which validates the output so far",
}
"""Where to find what PydanticAI's stream has under these names."""

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


@dataclass(frozen=True, slots=True)
class Streaming(Generic[OutputDataT]):
    """PydanticAI's stream of an answer, for the code that reads it in another task."""

    result: StreamedRunResult[Any, OutputDataT]
    context: Context
    """The context variables of the call, whose budget pays for what validators of the output send."""
    on_stop: Callable[[], None]
    """Function to call before the answer is stopped."""

    async def partial_output(self, response: ModelResponse) -> OutputDataT | None:
        """Return the output in an answer so far, partially validated; `None` if there is none yet."""
        try:
            return await self._in_context(self.result.validate_response_output(response, allow_partial=True))
        except _NOT_VALID:
            return None

    async def stop(self) -> None:
        """Stop the answer, unless all of it has come."""
        if not (self.result.is_complete or self.result.response.state == "complete"):
            self.on_stop()
            await self._in_context(self._stop())

    async def _stop(self) -> None:
        await stop_reading(self.result)
        await self._cancel()

    async def _cancel(self) -> None:
        try:
            await self.result.cancel()
        except NotImplementedError:  # by a model whose connection is closed as the run ends
            await self.result.cancel()  # only notes the end, as the answer is cancelled now

    async def settle(self) -> None:
        """Put what has come of a stopped answer into the messages, and into the result if it is valid."""
        await self._cancel()
        with suppress(*_NOT_VALID):
            await self.result.get_output()

    async def _in_context(self, coroutine: Coroutine[Any, Any, ItemT]) -> ItemT:
        task = asyncio.create_task(coroutine, context=self.context)
        try:
            return await task
        finally:
            await end_task(task)


OnStreaming: TypeAlias = Callable[[Streaming[Any]], None]
"""Function that is given PydanticAI's stream of a call when it opens."""


class ChatStream(SettledStream[StreamChunk[OutputDataT]], Generic[OutputDataT]):  # pyright: ignore[reportInvalidTypeArguments]
    """A streamed answer, as `StreamChunk`s. The last one is final, and has the whole response.

    The call begins when the stream is first read, which also raises its errors. An answer that the provider
    ends without a finish reason raises nothing: `response.is_cut` is true.

        async for chunk in agent.run_stream("Tell me a story"):
            print(chunk.content, end="")

    `response` is the `ChatResponse` once the final chunk was read, and `None` before; `usage` is the spending
    so far. Leaving the loop early ends the call and settles its cost. The methods of PydanticAI's stream read
    the same answer: `stream_text`, `stream_output`, `stream_response`, `get_output`. In a block,
    `async with agent.run_stream(...) as stream:`, the stream stays open when you leave a loop, and the next
    method continues there. Only `stream_text` always begins with all the text so far.
    """

    def __init__(
        self,
        produce: Callable[[Send[StreamChunk[OutputDataT]], OnScope, OnStreaming], Awaitable[None]],
        *,
        is_text: bool,
    ) -> None:
        """Read what `produce` sends. With `is_text`, the output of the call is declared to be text."""
        super().__init__(lambda send, on_scope: produce(send, on_scope, self._on_streaming))
        self.response: ChatResponse[OutputDataT] | None = None
        """The response that `run` would have returned; `None` until the final chunk was read."""
        self._is_text = is_text
        self._streaming: Streaming[OutputDataT] | None = None
        self._ahead: StreamChunk[OutputDataT] | Exception | None = None
        """What was read, and comes next."""
        self._validated: ModelResponse | None = None
        """The answer so far, as it was validated last."""
        self._text = ""
        """The text so far."""
        self._on_text: OnText | None = None
        self._clock: Clock | None = None

    def _on_streaming(self, streaming: Streaming[OutputDataT]) -> None:
        self._streaming = streaming

    def observe(self, *, on_text: OnText, clock: Clock | None) -> None:
        """Set a function to call with each new piece of text, and a clock. For steps.

        The clock, if there is one, is paused while the stream waits for the model.
        """
        self._on_text, self._clock = on_text, clock

    # --- as PydanticAI's StreamedRunResult ---

    async def stream_text(
        self, *, delta: bool = False, debounce_by: float | None = DEBOUNCE_BY
    ) -> AsyncIterator[str]:
        """Iterate the text so far, or each new piece of it with `delta`, as PydanticAI's `stream_text` does.

        If other methods have read the beginning, the first item is all the text so far. Validators of the
        output see the whole text only.

        Args:
            delta: Whether to return new pieces instead of the text so far.
            debounce_by: Seconds for which new pieces are put together; `None` to return each as it comes.

        Raises:
            ConfigurationError: the output is structured; `stream_output` has the output so far.
        """
        if self._text:  # others have read the beginning
            yield self._text
        async with aclosing(self._pieces(debounce_by)) as pieces:
            async for piece in pieces:
                chunk = await self._chunk(piece)
                self._check_is_text(chunk.output)
                if chunk.content:
                    yield chunk.content if delta else self._text
        self._check_is_text(None if self.response is None else self.response.output)

    def _check_is_text(self, output: object) -> None:
        if output is not None and not isinstance(output, str):
            expected = "a stream of text; stream_output() has the output so far"
            raise ConfigurationError("stream_text", type(output).__name__, expected)

    async def stream_output(self, *, debounce_by: float | None = DEBOUNCE_BY) -> AsyncIterator[OutputDataT]:
        """Iterate the output so far, validated as far as it has come. The last item is the whole output.

        A text or number at the end may be only its beginning. An item at the end of a list, dict or
        `TypedDict` is left out until it is valid. Within a model, nothing is left out: there is no output
        while a required field is missing, or the last item of one of its lists is not valid yet.

        If `cancel` stops the answer before it is valid, the iteration ends without the whole output.

        Args:
            debounce_by: Seconds for which changes are put together, because each is validated. `None`
                validates every change.
        """
        async with aclosing(self._pieces(debounce_by)) as pieces:
            async for piece in pieces:
                if (output := await self._partial_output(piece)) is not None:
                    yield output
        if self.response is not None:
            yield self.response.output

    async def stream_response(
        self, *, debounce_by: float | None = DEBOUNCE_BY
    ) -> AsyncIterator[ModelResponse]:
        """Iterate the answer of the model so far, as PydanticAI's `ModelResponse`.

        `state` of the last one is `"complete"`, or `"interrupted"` if the answer was stopped.

        Args:
            debounce_by: Seconds for which changes are put together; `None` to return each as it comes.
        """
        last: ModelResponse | None = None
        async with aclosing(self._pieces(debounce_by)) as pieces:
            async for piece in pieces:
                if (last := piece.response) is not None:
                    yield last
        if last is None and self.response is not None:
            yield self.response.result.response

    async def get_output(self) -> OutputDataT:
        """Read the stream to its end, and return the output.

        Raises:
            ConfigurationError: there is no output: the stream was left before its end, or `cancel` stopped
                the answer before it was valid.
        """
        async with aclosing(self._pieces(DEBOUNCE_BY)) as pieces:
            async for _ in pieces:
                pass
        if self.response is None:
            expected = "a stream that was read to its end"
            if self.cancelled:
                expected = "an answer whose output was valid before cancel() stopped it"
            raise ConfigurationError("get_output", ..., expected)
        return self.response.output

    def all_messages(self) -> list[ModelMessage]:
        """Return the history that was passed in, followed by the messages so far.

        Before the answer begins, the list is empty: it lacks the history, too. The answer is in it once all
        of it has come; after `cancel`, the part that has come.
        """
        return [] if self._streaming is None else self._streaming.result.all_messages()

    def new_messages(self) -> list[ModelMessage]:
        """Return the messages of this call so far; none before the answer begins.

        The answer is among them once all of it has come; after `cancel`, the part that has come.
        """
        return [] if self._streaming is None else self._streaming.result.new_messages()

    def all_messages_json(self) -> bytes:
        """Return `all_messages` as the bytes of a JSON array."""
        return ModelMessagesTypeAdapter.dump_json(self.all_messages())

    def new_messages_json(self) -> bytes:
        """Return `new_messages` as the bytes of a JSON array."""
        return ModelMessagesTypeAdapter.dump_json(self.new_messages())

    @property
    def is_complete(self) -> bool:
        """Whether the stream was read to its end, so that `response` has the response.

        It stays false if `cancel` stopped the answer before its output was valid.
        """
        return self.response is not None

    @property
    def cancelled(self) -> bool:
        """Whether the answer was stopped by `cancel`."""
        return self._pump.is_stopped or (self._streaming is not None and self._streaming.result.cancelled)

    async def cancel(self) -> None:
        """Stop the answer. If you read on, the stream ends with the text that has arrived so far.

        That text is the output, and `response.is_cut` is true. Other tasks may call this, too. If all of the
        answer has arrived, this does nothing.

        In two cases, there is no output. The answer has not begun, for example because a tool runs; then the
        call ends there. Or the part that has arrived is not a valid output, such as half of a structured one.
        Then the stream ends without a final chunk, and `response` stays `None`.

        The usage of the stopped request is not known, so budgets charge the most that it can have cost. To
        stop the answer without reading on, leave the stream.
        """
        if self._streaming is None:
            self._pump.stop()
        else:
            await self._streaming.stop()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if (instead := _ELSEWHERE.get(name)) is not None:
                raise AttributeError(f"a ChatStream has no {name!r}; there is {instead}")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # --- parts ---

    async def _pieces(self, debounce_by: float | None) -> AsyncGenerator[StreamChunk[OutputDataT]]:
        """Iterate the chunks before the final one; then, outside of a block, close the stream."""
        try:
            while (taken := await self._take(debounce_by)) is not None:
                if not taken.is_final:
                    yield taken
        finally:
            if not self._entered:
                await self.aclose()

    async def _receive(self) -> StreamChunk[OutputDataT]:
        debounce_by = None if self._is_text else DEBOUNCE_BY
        while (taken := await self._take(debounce_by)) is not None:
            if taken.is_final and isinstance(taken.output, str) and (rest := await self._rest(taken.output)):
                self._ahead = taken
                return StreamChunk(content=rest)
            chunk = taken if taken.is_final else await self._chunk(taken)
            if chunk.is_final or chunk.content or chunk.output is not None:
                return chunk
        raise StopAsyncIteration

    async def _chunk(self, taken: StreamChunk[OutputDataT]) -> StreamChunk[OutputDataT]:
        """Return a chunk with what is new in it: text, or the output so far."""
        output = None if self._is_text else await self._partial_output(taken)
        if isinstance(output, str):
            return replace(taken, content=await self._new_text(output))
        return taken if output is None else replace(taken, output=output)

    async def _rest(self, output: str) -> str:
        """Return the text that a stream of other outputs too has not given yet when its output is text."""
        return "" if self._is_text else await self._new_text(output)

    async def _partial_output(self, taken: StreamChunk[OutputDataT]) -> OutputDataT | None:
        """Return the output so far; `None` if it is not new, not valid yet, or about to come as a whole."""
        before, answer = self._validated, taken.response
        if answer is None or answer.state != "incomplete" or self._streaming is None:
            return None
        self._validated = answer
        if before is not None and before.parts == answer.parts:
            return None
        return await self._streaming.partial_output(answer)

    async def _new_text(self, text: str) -> str:
        new = text.removeprefix(self._text)
        self._text = text
        if new and self._on_text is not None:
            await self._on_text(new)
        return new

    async def _take(self, debounce_by: float | None) -> StreamChunk[OutputDataT] | None:
        """Return what comes next, or the last of all that comes within some seconds; `None` at the end."""
        with nullcontext() if self._clock is None else self._clock.paused():
            try:
                taken = await self._next()
            except StopAsyncIteration:
                return None
            if debounce_by is not None and not taken.is_final:
                taken = await self._last_until(asyncio.get_running_loop().time() + debounce_by, taken)
        if taken.is_final:
            self.response = taken.usage_data
        elif self._is_text:
            text = taken.content if taken.response is None else text_in(taken.response)
            return replace(taken, content=await self._new_text(text))
        return taken

    async def _last_until(self, until: float, taken: StreamChunk[OutputDataT]) -> StreamChunk[OutputDataT]:
        """Return the last chunk that comes until a time of the loop. The final one and errors come later."""
        while True:
            limit = asyncio.timeout_at(until)
            try:
                async with limit:
                    following = await self._next()
            except StopAsyncIteration:
                return taken
            except Exception as error:
                is_ours = limit.expired() and isinstance(error.__cause__, asyncio.CancelledError)
                self._ahead = None if is_ours else error
                return taken
            if following.is_final:
                self._ahead = following
                return taken
            taken = following

    async def _next(self) -> StreamChunk[OutputDataT]:
        ahead, self._ahead = self._ahead, None
        if isinstance(ahead, Exception):
            raise ahead
        while ahead is None or not (ahead.is_final or ahead.content or ahead.response):
            ahead = await anext(self._pump)
        return ahead


def text_in(answer: ModelResponse) -> str:
    """Return the text of an answer. An empty line stands where the provider called a tool between texts."""
    texts: list[str] = []
    for part in answer.parts:
        if isinstance(part, TextPart):
            texts.append(part.content)
        elif isinstance(part, NativeToolCallPart) and texts and texts[-1] != _DIVISION:
            texts.append(_DIVISION)
    return "".join(texts)


@dataclass(frozen=True, slots=True)
class ResponseEvent(Generic[OutputDataT]):
    """The last event of `run_stream_events`: `response` is the `ChatResponse` that `run` would return."""

    response: ChatResponse[OutputDataT]
    event_kind: Literal["fastroai_response"] = "fastroai_response"


class EventStream(
    SettledStream[AgentStreamEvent | AgentRunResultEvent[OutputDataT] | ResponseEvent[OutputDataT]],
    Generic[OutputDataT],
):
    """A stream of PydanticAI's events of a run, its `AgentRunResultEvent`, and at last a `ResponseEvent`.

    `agent.run_stream_events(...)` returns it, for `async for` or `async with`. The call begins when it is
    first read, which also raises its errors, and ends if you leave the stream early. `usage` is the spending
    so far. An answer that the provider ends without a finish reason raises nothing: `response.is_cut` of the
    `ChatResponse` is true.
    """
