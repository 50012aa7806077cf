"""Sending an answer to its client, with the faults of a connection: late, slow, hanging, cut, garbled."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from fastroai.testing.replies import Fault, in_seconds

_PIECES_OF_A_BODY = 4


@dataclass(frozen=True)
class Chunk:
    """Bytes that are sent at once."""

    data: bytes
    content: bool = True
    """Whether the bytes have a piece of the content. Faults count these pieces."""


def body_chunks(body: bytes) -> list[Chunk]:
    """Return a body in four pieces, so that it can be slow, hang or be cut as a stream can."""
    size = -(-len(body) // _PIECES_OF_A_BODY) or 1
    return [Chunk(body[start : start + size]) for start in range(0, len(body), size)]


def garbled(chunks: Sequence[Chunk], after: int) -> list[Chunk]:
    """Return the same chunks with one that is not JSON, after `after` pieces of content."""
    stop = _stop_at(chunks, after)
    data = chunks[stop].data
    half = data[: len(data) // 2]
    # An event stays an event: its name and its end remain, and its data is cut.
    broken = half.rstrip(b"\n") + b"\n\n" if data.endswith(b"\n\n") else half
    return [*chunks[:stop], Chunk(broken), *chunks[stop + 1 :]]


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """An ASGI application that sends one answer, and reports how the sending ended."""

    status: int
    headers: Mapping[str, str]
    chunks: Sequence[Chunk]
    on_end: Callable[[bool, bool], None]
    """Called once, with two flags: the answer is complete; the client has left."""
    hang_up: Callable[[Scope], None]
    """Closes the connection of a request, after everything that was sent."""
    fault: Fault | None = None
    latency: float = 0.0
    chunk_delay: float = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        gone = asyncio.create_task(_disconnected(receive))
        connection = _Connection(scope, send, gone, self.hang_up)
        completed = False
        try:
            await self._write(connection)
            completed = True
        except _ConnectionEndedError:
            pass
        finally:
            gone.cancel()
            self.on_end(completed, not completed and not connection.hung_up)

    async def _write(self, connection: "_Connection") -> None:
        kind = self.fault.kind if self.fault else None
        before_headers, between_chunks, stop = self.latency, self.chunk_delay, None
        if self.fault:
            before_headers += in_seconds(self.fault.before_headers)
            between_chunks += in_seconds(self.fault.between_chunks)
            stop = None if self.fault.after is None else _stop_at(self.chunks, self.fault.after)

        await connection.pause(before_headers)
        if self.fault and self.fault.silent:
            await (connection.hang_up() if kind == "disconnect" else connection.pause(None))
        await connection.start(self.status, self.headers)
        content_begun = False
        for number, chunk in enumerate(self.chunks):
            if number == stop and kind == "hang":
                await connection.pause(None)
            if number == stop and kind == "cut":
                await connection.hang_up()
            await connection.pause(between_chunks if chunk.content and content_begun else 0)
            await connection.write(chunk.data, more=number + 1 < len(self.chunks))
            content_begun = content_begun or chunk.content


class _ConnectionEndedError(Exception):
    """The client has left, so nothing more can be sent."""


@dataclass
class _Connection:
    """The connection to one client. Every pause ends when the client leaves."""

    scope: Scope
    send: Send
    gone: "asyncio.Task[None]"
    close: Callable[[Scope], None]
    hung_up: bool = False

    async def pause(self, seconds: float | None) -> None:
        """Wait for some seconds, or with `None` for ever.

        Raises:
            _ConnectionEndedError: if the client leaves.
        """
        await asyncio.wait([self.gone], timeout=seconds)
        if self.gone.done():
            raise _ConnectionEndedError

    async def hang_up(self) -> None:
        """Close the connection.

        Raises:
            _ConnectionEndedError: always.
        """
        self.hung_up = not self.gone.done()
        self.close(self.scope)
        await self.pause(None)

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": encoded})

    async def write(self, data: bytes, *, more: bool) -> None:
        await self.send({"type": "http.response.body", "body": data, "more_body": more})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _stop_at(chunks: Sequence[Chunk], after: int) -> int:
    """Return the number of the chunk before which a fault strikes, after `after` pieces of content.

    It strikes after the last piece at the latest, so that the end of the answer is always hit.
    """
    content = [number for number, chunk in enumerate(chunks) if chunk.content]
    if after < len(content):
        return content[after]
    return min(content[-1] + 1 if content else 1, len(chunks) - 1)
