"""The page of one run."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from fastroai.viewer.visit import PageRoute, Visit


async def show(visit: Visit) -> Response:
    """Show a run."""
    run = await visit.run(visit.param("run_id"))
    return visit.page("run.html", run=run)


ROUTES: Final = (PageRoute("/runs/{run_id}", show, "run"),)
