"""Pausing and cancelling a run, from any page that shows it."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from fastroai.viewer.visit import PageRoute, Visit


async def pause(visit: Visit) -> Response:
    """Ask the process of a run to halt it."""
    visit.check_may("pause")
    run = await visit.run(visit.param("run_id"))
    await visit.site.history.pause(run.run_id)
    return visit.go("run", {"did": "pause"}, run_id=run.run_id)


async def cancel(visit: Visit) -> Response:
    """Cancel a run, whichever process has it."""
    visit.check_may("cancel")
    run = await visit.run(visit.param("run_id"))
    await visit.site.history.cancel(run.run_id)
    return visit.go("run", {"did": "cancel"}, run_id=run.run_id)


ROUTES: Final = (
    PageRoute("/runs/{run_id}/pause", pause, "pause", ("POST",)),
    PageRoute("/runs/{run_id}/cancel", cancel, "cancel", ("POST",)),
)
