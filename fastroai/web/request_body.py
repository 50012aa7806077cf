"""Bodies of requests, which are read up to a size."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.types import Message

from fastroai.web.problems import Problem

MOST_BYTES: Final = 1_000_000
"""Bytes of a body, unless a router says otherwise."""


def limited(request: Request, most: int) -> Request:
    """Return the request, whose body raises `Problem` when more than `most` bytes of it have come."""
    read = 0

    async def receive() -> Message:
        nonlocal read
        message = await request.receive()
        read += len(message.get("body", b""))
        if read > most:
            detail = f"a body has {most:,} bytes at most"
            raise Problem(413, "too-large", "The body is too large", detail)
        return message

    return Request(request.scope, receive)
