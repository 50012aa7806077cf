"""Answers of a worker to probes over HTTP: whether it lives, and whether it takes runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final

from fastroai.distributed.worker import Worker
from fastroai.errors import FastroAIError

_LONGEST: Final = 5.0
"""Seconds that a probe may take."""


@asynccontextmanager
async def answering_probes(worker: Worker, port: int, host: str = "0.0.0.0") -> AsyncGenerator[int]:
    """Answer `GET /live` and `GET /ready` on a port, which is yielded; 0 is any free one.

    `/live` answers as long as the event loop of the worker does. `/ready` asks its store and its queues, too.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            async with asyncio.timeout(_LONGEST):
                request = (await reader.readline()).split(b" ")
                status, text = await _answer(worker, request[1] if len(request) > 1 else b"")
                head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nConnection: close\r\n"
                body = text.encode()
                writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, host, port)
    async with server:
        bound: int = server.sockets[0].getsockname()[1]
        yield bound


async def _answer(worker: Worker, path: bytes) -> tuple[str, str]:
    match path:
        case b"/live":
            return "200 OK", "alive\n"
        case b"/ready":
            try:
                await worker.check_ready()
            except FastroAIError as error:
                return "503 Service Unavailable", f"{type(error).__name__}\n"
            return "200 OK", f"{worker.running} runs\n"
        case _:
            return "404 Not Found", "ask for /live or /ready\n"
