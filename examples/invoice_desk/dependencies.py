"""What endpoints ask for: the desk, the run that a path names, and room in a customer's budget."""

import math
from typing import Annotated, cast

from fastapi import Depends, Header, HTTPException, Path, Request

from fastroai.store import RunSnapshot
from invoice_desk.desk import InvoiceDesk
from invoice_desk.invoices import Deps

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
# --8<-- [start:room]
async def check_room(customer: Customer, desk: Desk) -> None:
    """Refuse a run that the customer's money may not pay for today, before it begins.

    The limit holds without this: it stops a run before a request that could cross it. But a run that begins
    should come to its end.
    """
    today = await desk.daily.status(Deps(customer))
    if today.spent_usd + desk.invoice_usd > today.limit_usd:
        assert today.resets_at is not None
        seconds = math.ceil((today.resets_at - today.now).total_seconds())
        detail = (
            f"${today.spent_usd} of ${today.limit_usd} is spent today, and an invoice may cost up to "
            f"${desk.invoice_usd}"
        )
        raise HTTPException(429, detail, {"Retry-After": str(seconds)})


# --8<-- [end:room]
