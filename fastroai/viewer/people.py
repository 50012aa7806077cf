"""The inbox: the questions of runs to people, and their answers."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from fastroai.viewer.visit import PageRoute, Visit


async def show(visit: Visit) -> Response:
    """List the questions that wait for an answer."""
    return visit.page("people.html")


ROUTES: Final = (PageRoute("/people", show, "people"),)
