"""The options in the query of a request: one that is misspelt is told, and not ignored."""

from __future__ import annotations

from collections.abc import Collection

from starlette.requests import Request

from fastroai.errors.texts import nearest
from fastroai.web.problems import invalid_input


def check_query(request: Request, known: Collection[str]) -> None:
    """Refuse an option whose name is near to that of a known one. Others may be the application's own.

    Raises:
        Problem: an option is probably misspelt.
    """
    for name in request.query_params:
        if name not in known and (near := nearest(name, known)) is not None:
            raise invalid_input([{"loc": ("query", name), "msg": f"did you mean {near}?"}])
