"""The page of one run: drawing, timeline, costs, and the panel of a step. It moves with the run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from starlette.responses import Response

from fastroai.drawing.svg_style import STYLE
from fastroai.runtime.fact_base import Fact
from fastroai.store.reading.following import FollowedRun
from fastroai.store.reading.history import RunHistory, RunSummary
from fastroai.store.reading.run_queries import RunQuery
from fastroai.store.reading.trace import RunTrace
from fastroai.viewer import run_actions
from fastroai.viewer.access import Action, Refused
from fastroai.viewer.run_actions import NotTaken, offer_of
from fastroai.viewer.run_view import Asked, RunView, row_of
from fastroai.viewer.step_panel import StepPanel
from fastroai.viewer.streams import event_stream, version_of
from fastroai.viewer.visit import Handler, PageRoute, Visit

SETTLE: Final = 0.1
"""Seconds for which facts are gathered before the page is sent: most events have several."""
TICK: Final = 2.0
"""Seconds after which the page of a running run is made again, whatever happens: its bars grow with time."""
RESTS: Final = 4.0
"""How much longer a stream rests than it takes to make a page, so that large runs leave time for others."""
CANDIDATES: Final = 20
"""Runs that are offered to compare with."""
MOST_DIFFERENCES: Final = 200
"""Rows of a comparison of two runs."""


async def show(visit: Visit, tried: NotTaken | None = None) -> Response:
    """Show a run; after a form that could not be taken, with what is wrong with it."""
    view = await _view(visit, "" if tried is None else tried.text("step"))
    live = _live(visit, view)
    stream = visit.url("run_stream", view.asked.query(seen=version_of(live)), run_id=view.run.run_id)
    return visit.page(
        "run.html",
        status=200 if tried is None else 422,
        view=view,
        tried=tried,
        live=live,
        stream=stream if view.is_live else None,
        panel=await _panel(visit, view, tried) if view.asked.step else "",
        offer=await offer_of(visit, view.run, view.trace),
    )


def _or_shown_again(act: Handler) -> Handler:
    """Return an action that shows the page again if its form could not be taken."""

    async def answer(visit: Visit) -> Response:
        try:
            return await act(visit)
        except NotTaken as tried:
            return await show(visit, tried)

    return answer


def _halting(action: Action, ask: Callable[[RunHistory, str], Awaitable[None]]) -> Handler:
    """Return an action that halts a run, whichever process has it, from any page that shows the run."""

    async def answer(visit: Visit) -> Response:
        visit.check_may(action)
        run = await visit.run(visit.param("run_id"))
        await ask(visit.site.history, run.run_id)
        return visit.go("run", {"did": action}, run_id=run.run_id)

    return answer


async def panel(visit: Visit) -> Response:
    """Show the panel of a step alone, for a page that is open already."""
    view = await _view(visit)
    return visit.page("run_part.html", part=await _panel(visit, view))


async def stream(visit: Visit) -> Response:
    """Send the moving part of the page again, each time that something has happened in the run."""
    run_id, asked = visit.param("run_id"), Asked.of(visit.request.query_params)
    await visit.run(run_id)

    async def texts() -> AsyncGenerator[str]:
        async for trace in _growing(visit.site.history, run_id):
            began = time.perf_counter()
            now = replace(visit, visitor=await visit.site.access.visitor(visit.request))
            yield _live(now, RunView(await now.run(run_id), trace.redacted(), asked))
            await asyncio.sleep(RESTS * (time.perf_counter() - began))

    return event_stream(visit, texts())


async def diff(visit: Visit) -> Response:
    """Compare a run with another one, side by side."""
    run = await visit.run(visit.param("run_id"))
    wanted = visit.request.query_params.get("with", "").strip()
    candidates = await _like(visit, run)
    if not wanted:
        return visit.page("diff.html", run=run, other=None, candidates=candidates, differences=(), sides=())
    other = await visit.run(wanted)
    history = visit.site.history
    first, second = [(await history.trace(one.run_id)).redacted() for one in (run, other)]
    return visit.page(
        "diff.html",
        run=run,
        other=other,
        candidates=candidates,
        differences=first.diff(second)[: MOST_DIFFERENCES + 1],
        most=MOST_DIFFERENCES,
        sides=[RunView(one, trace, Asked()) for one, trace in ((run, first), (other, second))],
    )


async def _like(visit: Visit, run: RunSummary) -> Sequence[RunSummary]:
    """Return the newest other runs of the same pipeline."""
    query = RunQuery(pipeline=run.pipeline, tenants=visit.visitor.tenants)
    page = await visit.site.history.page(query, limit=CANDIDATES + 1)
    return [one for one in page.items if one.run_id != run.run_id][:CANDIDATES]


async def drawing_style(visit: Visit) -> Response:
    """Send the style sheet of drawings: pages have none in their elements."""
    return Response(STYLE, media_type="text/css")


async def _view(visit: Visit, step: str = "") -> RunView:
    run = await visit.run(visit.param("run_id"))
    trace = (await visit.site.history.trace(run.run_id)).redacted()
    asked = Asked.of(visit.request.query_params)
    return RunView(run, trace, replace(asked, step=step) if step else asked)


def _live(visit: Visit, view: RunView) -> str:
    """Return the part of the page that moves."""
    return visit.render("run_live.html", view=view)


async def _panel(visit: Visit, view: RunView, tried: NotTaken | None = None) -> str:
    row = row_of(view.trace, view.asked.step)
    if row is None:
        missing = Refused(404, "There is no such step", "The run has not come to it, or it has another name.")
        return visit.render("stopped.html", refused=missing)
    offer = await offer_of(visit, view.run, view.trace)
    return visit.render("step.html", view=view, step=StepPanel(view, row), offer=offer, tried=tried)


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
    PageRoute("/runs/{run_id}/resume", _or_shown_again(run_actions.resume), "resume", ("POST",)),
    PageRoute("/runs/{run_id}/fork", _or_shown_again(run_actions.fork), "fork", ("POST",)),
    PageRoute("/runs/{run_id}/pause", _halting("pause", RunHistory.pause), "pause", ("POST",)),
    PageRoute("/runs/{run_id}/cancel", _halting("cancel", RunHistory.cancel), "cancel", ("POST",)),
)
