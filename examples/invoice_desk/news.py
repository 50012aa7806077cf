"""What a browser is told of a run: facts by `follow`, and text as it is written, as server-sent events."""

import asyncio
from collections.abc import AsyncGenerator

from fastapi.sse import ServerSentEvent

from fastroai.pipelines import RunEvent, RunFinished, StepFailed, StepFinished, StepSkipped, StepStarted
from fastroai.store import FollowedRun
from invoice_desk.models import EndNews, StepNews
from invoice_desk.texts import TextReader

SOON = 0.1
"""Seconds between two looks for new text."""


async def news_of(run: FollowedRun, text: TextReader) -> AsyncGenerator[ServerSentEvent]:
    """Yield the facts from where `run` is, each with its position as the id, and new pieces of text.

    Text has no id, because it is not on record. A browser that reconnects asks for what is after the last
    fact that it has. It gets the text from the beginning, and `at` says where each piece belongs.
    """
    next_fact = asyncio.create_task(run.__anext__())
    try:
        while True:
            await asyncio.wait([next_fact], timeout=SOON)
            if not next_fact.done():
                for piece in text.new():
                    yield ServerSentEvent(event="text", data=piece)
                continue
            try:
                position, fact = next_fact.result()
            except StopAsyncIteration:
                return
            next_fact = asyncio.create_task(run.__anext__())
            if len(fact.path) == 1 and (news := news_in(fact)) is not None:
                event = "end" if isinstance(news, EndNews) else "step"
                yield ServerSentEvent(event=event, data=news, id=str(position))
    finally:
        next_fact.cancel()


def news_in(fact: RunEvent) -> StepNews | EndNews | None:
    """Return what a fact is to a browser; `None` for what happens inside, such as a request."""
    match fact:
        case StepStarted(step_id=step):
            return StepNews(step=step, status="started")
        case StepFinished(step_id=step, output=output):
            return StepNews(step=step, status="finished", output=output)
        case StepFailed(step_id=step):
            return StepNews(step=step, status="failed")
        case StepSkipped(step_id=step):
            return StepNews(step=step, status="skipped")
        case RunFinished(status=status, reason_code=code):
            return EndNews(status=status, code=code)
        case _:
            return None
