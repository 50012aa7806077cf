"""Server-sent events: one stream a page, whose visitor is asked for again before each message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from hashlib import sha256
from typing import Final

from starlette.responses import Response, StreamingResponse

from fastroai.errors import FastroAIError
from fastroai.viewer.access import Refused, Visitor
from fastroai.viewer.failures import refusal_of
from fastroai.viewer.visit import Visit

HEARTBEAT: Final = 10.0
"""Seconds after which a stream says that it lives, and asks whether its visitor may still see it."""
POLL: Final = 1.0
"""Seconds between two looks at the store."""

Render = Callable[[Visitor], Awaitable[str]]
"""A function that returns a part of a page as it is now, for a visitor as they are now."""


def event_stream(visit: Visit, messages: Callable[[], AsyncGenerator[str]]) -> Response:
    """Answer with a stream of messages, which are parts of a page in HTML. It ends when the messages do."""
    headers = {"x-accel-buffering": "no"}  # or nginx would keep messages until it has many
    return StreamingResponse(_events(visit, messages), media_type="text/event-stream", headers=headers)


def live(visit: Visit, render: Render, *, every: float = POLL) -> Response:
    """Answer with a stream of a part of a page, each time that it has changed.

    The page says in `seen` what it has: see `version_of`. Browsers that connect again say what they had last.
    """

    async def changes() -> AsyncGenerator[str]:
        last = visit.request.headers.get("last-event-id") or visit.request.query_params.get("seen")
        while True:
            text = await render(await visit.site.access.visitor(visit.request))
            if (version := version_of(text)) != last:
                last = version
                yield text
            await asyncio.sleep(every)

    return event_stream(visit, changes)


def version_of(text: str) -> str:
    """Return what tells a text from others."""
    return sha256(text.encode()).hexdigest()[:16]


async def _events(visit: Visit, messages: Callable[[], AsyncGenerator[str]]) -> AsyncIterator[str]:
    async with aclosing(messages()) as source:
        coming = asyncio.ensure_future(anext(source, None))
        try:
            while True:
                await asyncio.wait({coming}, timeout=HEARTBEAT)
                await visit.site.access.visitor(visit.request)  # who may see it may have changed
                if not coming.done():
                    yield ": still here\n\n"
                elif (text := coming.result()) is None:
                    return
                else:
                    yield _event(text)
                    coming = asyncio.ensure_future(anext(source, None))
        except (Refused, FastroAIError) as error:
            yield _event(visit.render("stopped.html", refused=refusal_of(error)))
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)  # the stream ends with the first error


def _event(text: str) -> str:
    lines = "".join(f"data: {line}\n" for line in text.splitlines())
    return f"id: {version_of(text)}\n{lines}\n"
