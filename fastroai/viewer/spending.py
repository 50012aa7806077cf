"""The page of spending, and of spend limits."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from fastroai.viewer.visit import PageRoute, Visit


async def show(visit: Visit) -> Response:
    """Show what was spent."""
    return visit.page("spending.html")


ROUTES: Final = (PageRoute("/spending", show, "spending"),)
