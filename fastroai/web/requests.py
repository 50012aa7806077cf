"""What a request may have: options in its query, of which a misspelt one is told, and a body up to a size."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.types import Message

from fastroai.errors.texts import nearest
from fastroai.store.reading.run_queries import PAGE, RunOrder
from fastroai.store.record.entries import RunState
from fastroai.web.operations import LONGEST
from fastroai.web.problems import Problem, invalid_input

MOST_BYTES: Final = 1_000_000
"""Bytes of a body, unless a router says otherwise."""


class Wait(BaseModel):
    """Options of a request that can wait for a run."""

    wait: float = Field(0, ge=0, le=LONGEST, description="seconds to wait for the result")


class Events(BaseModel):
    """Options of a stream of events."""

    after: int = Field(0, ge=0, description="the id of the last event that the client has")
    cancel_on_disconnect: bool = Field(False, description="cancel the run when this client leaves")


class Listed(BaseModel):
    """Options of a list of questions."""

    tag: str | None = Field(None, max_length=200)
    limit: int = Field(PAGE, ge=1, le=200)
    after: str | None = Field(None, description="`next` of the page before")

    def wanted(self) -> dict[str, Any]:
        """Return the fields of a `RunQuery`."""
        return self.model_dump(exclude={"limit", "after"})


class Runs(Listed):
    """Options of a list of runs."""

    status: RunState | None = None
    search: str = Field("", max_length=200)
    started_since: datetime | None = None
    started_until: datetime | None = None
    sort: RunOrder = "started"
    ascending: bool = False


def check_query(request: Request, known: Collection[str]) -> None:
    """Refuse an option whose name is near to that of a known one. Others may be the application's own.

    Raises:
        Problem: an option is probably misspelt.
    """
    for name in request.query_params:
        if name not in known and (near := nearest(name, known)) is not None:
            raise invalid_input([{"loc": ("query", name), "msg": f"did you mean {near}?"}])


def limited(request: Request, most: int) -> Request:
    """Return the request, whose body raises `Problem` when more than `most` bytes of it have come."""
    read = 0

    async def receive() -> Message:
        nonlocal read
        message = await request.receive()
        read += len(message.get("body", b""))
        if read > most:
            detail = f"a body has {most:,} bytes at most"
            raise Problem(413, "too-large", "The body is too large", detail)
        return message

    return Request(request.scope, receive)
