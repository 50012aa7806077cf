"""What endpoints ask for: the desk, the run that a path names, and the last event that a browser has seen."""

from typing import Annotated, cast

from fastapi import Depends, Header, HTTPException, Path, Request

from fastroai.store import RunSnapshot
from invoice_desk.desk import InvoiceDesk

ENDED = ("finished", "failed", "cancelled")


# --8<-- [start:desk]
def the_desk(request: Request) -> InvoiceDesk:
    return cast(InvoiceDesk, request.state.desk)


Desk = Annotated[InvoiceDesk, Depends(the_desk)]

# --8<-- [end:desk]
Customer = Annotated[str, Path(pattern=r"^[a-z][a-z0-9-]{0,39}$")]
"""Who asks. A real service takes it from a session: browsers send no headers of yours with an EventSource,
but they send cookies."""
Number = Annotated[str, Path(pattern=r"^[A-Za-z0-9-]{1,60}$")]


def _run_id(customer: Customer, number: Number) -> str:
    return f"{customer}.{number}"


RunId = Annotated[str, Depends(_run_id)]
"""The id of a run says whose it is, so nobody can name a run of another customer."""


async def _known_run(run_id: RunId, desk: Desk) -> RunSnapshot:
    return await desk.pipeline.get_state(run_id)


KnownRun = Annotated[RunSnapshot, Depends(_known_run)]


# --8<-- [start:last-seen]
def _last_seen(run: KnownRun, last_event_id: Annotated[int, Header(ge=0)] = 0) -> int:
    """The position from which a browser goes on. It sends the header when it reconnects."""
    if last_event_id > run.position:
        raise HTTPException(400, f"there is no event {last_event_id}; the last one is {run.position}")
    if last_event_id == run.position and run.status in ENDED:
        raise HTTPException(204)  # tells the browser not to reconnect
    return last_event_id


LastSeen = Annotated[int, Depends(_last_seen)]


# --8<-- [end:last-seen]
