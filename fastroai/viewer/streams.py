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


def event_stream(visit: Visit, texts: AsyncGenerator[str]) -> Response:
    """Answer with a stream of a part of a page in HTML, each time that it has changed, until the texts end.

    The page says in `seen` what it has: see `version_of`. Browsers that connect again say what they had last.
    """
    headers = {"x-accel-buffering": "no"}  # or nginx would keep messages until it has many
    events = _events(visit, _changed(visit, texts))
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


def live(visit: Visit, render: Render) -> Response:
    """Answer with a stream of a part of a page, which is rendered every second."""

    async def texts() -> AsyncGenerator[str]:
        while True:
            yield await render(await visit.site.access.visitor(visit.request))
            await asyncio.sleep(POLL)

    return event_stream(visit, texts())


def version_of(text: str) -> str:
    """Return what tells a text from others: a part of a page, or in an id of HTML, the id of a run."""
    return sha256(text.encode()).hexdigest()[:16]


async def _changed(visit: Visit, texts: AsyncGenerator[str]) -> AsyncGenerator[str]:
    last = visit.request.headers.get("last-event-id") or visit.request.query_params.get("seen")
    async with aclosing(texts):
        async for text in texts:
            if (version := version_of(text)) != last:
                last = version
                yield text


async def _events(visit: Visit, messages: AsyncGenerator[str]) -> AsyncIterator[str]:
    async with aclosing(messages) as source:
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
