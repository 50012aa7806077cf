"""The page of one run: drawing, timeline, costs, and the panel of a step. It moves with the run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Final

from starlette.responses import Response

from fastroai.drawing.svg_style import STYLE
from fastroai.runtime.facts import Fact
from fastroai.store.reading.following import FollowedRun
from fastroai.store.reading.history import RunHistory
from fastroai.store.reading.trace import RunTrace
from fastroai.viewer.access import Refused
from fastroai.viewer.run_actions import ROUTES as ACTION_ROUTES
from fastroai.viewer.run_actions import offer_of
from fastroai.viewer.run_view import Asked, RunView, row_of
from fastroai.viewer.step_panel import StepPanel
from fastroai.viewer.streams import event_stream, version_of
from fastroai.viewer.visit import PageRoute, Visit

SETTLE: Final = 0.1
"""Seconds for which facts are gathered before the page is sent: most events have several."""
TICK: Final = 2.0
"""Seconds after which the page of a running run is made again, whatever happens: its bars grow with time."""
RESTS: Final = 4.0
"""How much longer a stream rests than it takes to make a page, so that large runs leave time for others."""
MOST_DIFFERENCES: Final = 200
"""Rows of a comparison of two runs."""


async def show(visit: Visit) -> Response:
    """Show a run."""
    view = await _view(visit)
    live = _live(visit, view)
    stream = visit.url("run_stream", view.asked.query(seen=version_of(live)), run_id=view.run.run_id)
    return visit.page(
        "run.html",
        view=view,
        live=live,
        stream=stream if view.is_live else None,
        panel=await _panel(visit, view) if view.asked.step else "",
        offer=await offer_of(visit, view.run, view.trace),
    )


async def panel(visit: Visit) -> Response:
    """Show the panel of a step alone, for a page that is open already."""
    view = await _view(visit)
    return visit.page("run_part.html", part=await _panel(visit, view))


async def stream(visit: Visit) -> Response:
    """Send the moving part of the page again, each time that something has happened in the run."""
    run_id, asked = visit.param("run_id"), Asked.of(visit.request.query_params)
    await visit.run(run_id)

    async def changes() -> AsyncGenerator[str]:
        seen = visit.request.headers.get("last-event-id") or visit.request.query_params.get("seen")
        async for trace in _growing(visit.site.history, run_id):
            began = time.perf_counter()
            text = _live(visit, RunView(await visit.run(run_id), trace.redacted(), asked))
            if (version := version_of(text)) != seen:
                seen = version
                yield text
            await asyncio.sleep(RESTS * (time.perf_counter() - began))

    return event_stream(visit, changes)


async def diff(visit: Visit) -> Response:
    """Compare a run with another one, side by side."""
    run = await visit.run(visit.param("run_id"))
    wanted = visit.request.query_params.get("with", "").strip()
    if not wanted:
        return visit.page("diff.html", run=run, other=None, differences=(), sides=())
    other = await visit.run(wanted)
    history = visit.site.history
    first, second = [(await history.trace(one.run_id)).redacted() for one in (run, other)]
    return visit.page(
        "diff.html",
        run=run,
        other=other,
        differences=first.diff(second)[: MOST_DIFFERENCES + 1],
        most=MOST_DIFFERENCES,
        sides=[RunView(one, trace, Asked()) for one, trace in ((run, first), (other, second))],
    )


async def drawing_style(visit: Visit) -> Response:
    """Send the style sheet of drawings: pages have none in their elements."""
    return Response(STYLE, media_type="text/css")


async def _view(visit: Visit) -> RunView:
    run = await visit.run(visit.param("run_id"))
    trace = (await visit.site.history.trace(run.run_id)).redacted()
    return RunView(run, trace, Asked.of(visit.request.query_params))


def _live(visit: Visit, view: RunView) -> str:
    """Return the part of the page that moves."""
    return visit.render("run_live.html", view=view)


async def _panel(visit: Visit, view: RunView) -> str:
    row = row_of(view.trace, view.asked.step)
    if row is None:
        missing = Refused(404, "There is no such step", "The run has not come to it, or it has another name.")
        return visit.render("stopped.html", refused=missing)
    offer = await offer_of(visit, view.run, view.trace)
    return visit.render("step.html", view=view, step=StepPanel(view, row), offer=offer)


async def _growing(history: RunHistory, run_id: str) -> AsyncGenerator[RunTrace]:
    """Yield the trace of a run again and again: after each thing that happens, and while it runs."""
    entries: list[Fact] = []
    position = 0
    while True:
        followed, has_ended = history.follow(run_id, after=position), False
        before = len(entries)
        while not has_ended:
            has_ended = await _gather(followed, entries)
            if entries and (not has_ended or len(entries) > before):
                yield RunTrace(entries)
        position = followed.position
        await asyncio.sleep(TICK)  # somebody may resume it


async def _gather(followed: FollowedRun, entries: list[Fact]) -> bool:
    """Add the next facts of a run. Return whether that was the last, unless somebody resumes the run."""
    loop = asyncio.get_running_loop()
    latest = loop.time() + TICK
    until = latest
    while (left := until - loop.time()) > 0:
        try:
            async with asyncio.timeout(left):
                _, fact = await anext(followed)
        except TimeoutError:
            return False
        except StopAsyncIteration:
            return True
        entries.append(fact)
        until = min(loop.time() + SETTLE, latest)
    return False


ROUTES: Final = (
    PageRoute("/drawing.css", drawing_style, "drawing_style"),
    PageRoute("/runs/{run_id}", show, "run"),
    PageRoute("/runs/{run_id}/step", panel, "run_step"),
    PageRoute("/runs/{run_id}/diff", diff, "run_diff"),
    PageRoute("/stream/runs/{run_id}", stream, "run_stream"),
    *ACTION_ROUTES,
)
