"""The endpoints."""

import logging
from collections.abc import AsyncGenerator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent

from fastroai import RunInProgress, RunNotFound, SpendLimitExceeded
from fastroai.store import RunSnapshot
from invoice_desk.dependencies import Customer, Desk, KnownRun, LastSeen, RunId
from invoice_desk.desk import TooBusy
from invoice_desk.invoices import Deps, summarizer
from invoice_desk.models import (
    Answer,
    CustomerSpending,
    Invoice,
    InvoiceLine,
    InvoiceState,
    Question,
    Spending,
)
from invoice_desk.news import news_of

logger = logging.getLogger(__name__)
router = APIRouter(prefix="/customers/{customer}")


# --8<-- [start:upload]
@router.put("/invoices/{number}", status_code=202, responses={200: {"model": InvoiceState}})
async def upload(
    invoice: Invoice, customer: Customer, run_id: RunId, desk: Desk, response: Response
) -> InvoiceState:
    """Begin to work on an invoice. To repeat the same upload is safe: it is not paid for twice."""
    try:
        run = await desk.pipeline.get_state(run_id)
    except RunNotFound:
        await desk.begin(run_id, invoice.text)
        return state_of(await desk.pipeline.get_state(run_id))
    if run.inputs["text"] != invoice.text:
        raise HTTPException(409, "there is another invoice with this number")
    response.status_code = 200
    return state_of(run)


# --8<-- [end:upload]
@router.get("/invoices")
async def invoices(customer: Customer, desk: Desk) -> list[InvoiceLine]:
    """List the newest invoices."""
    runs = await desk.history.list(pipeline=desk.pipeline.name, tenant=customer, limit=100)
    return [
        InvoiceLine(number=number_of(run.run_id), status=run.status, cost_usd=run.cost_usd) for run in runs
    ]


@router.get("/invoices/{number}")
async def read(run: KnownRun) -> InvoiceState:
    """Return how far an invoice is, whatever worker has it."""
    return state_of(run)


# --8<-- [start:events]
@router.get("/invoices/{number}/events", response_class=EventSourceResponse)
async def events(run: KnownRun, after: LastSeen, desk: Desk) -> AsyncGenerator[ServerSentEvent]:
    """Tell what happens, from the beginning or from where the browser lost its connection.

    The run is not that of this request: a client that leaves stops reading, and no more.
    """
    followed = desk.pipeline.follow(run.run_id, after=after)
    async for event in news_of(followed, desk.text_of(run.run_id)):
        yield event


# --8<-- [end:events]
# --8<-- [start:cancel]
@router.post("/invoices/{number}/cancel", status_code=202)
async def cancel(run: KnownRun, desk: Desk) -> None:
    """Stop the work on an invoice, whatever worker has it. What is paid for stays on record."""
    await desk.pipeline.cancel(run.run_id)


@router.post("/invoices/{number}/resume", status_code=202)
async def resume(run: KnownRun, desk: Desk) -> None:
    """Go on with an invoice that has failed or was cancelled: tomorrow, if the money of today was spent."""
    if run.status == "finished":
        raise HTTPException(409, "the invoice is finished")
    await desk.go_on(run.run_id)


# --8<-- [end:cancel]
def state_of(run: RunSnapshot) -> InvoiceState:
    """Return a run as clients see it."""
    return InvoiceState(
        number=number_of(run.run_id),
        status=run.status,
        code=None if run.finish is None else run.finish.reason_code,
        draft=run.outputs.get("draft"),
        cost_usd=run.trace.usage.cost_usd,
    )


def number_of(run_id: str) -> str:
    """Return the number of the invoice."""
    return run_id.partition(".")[2]


# --8<-- [start:summarize]
@router.post("/summaries", response_class=EventSourceResponse)
async def summarize(invoice: Invoice, customer: Customer, desk: Desk) -> AsyncGenerator[ServerSentEvent]:
    """Summarize an invoice for this client alone. If it leaves, the summary is not written to its end."""
    try:
        async with summarizer.run_stream(invoice.text, deps=Deps(customer), budget=desk.daily) as stream:
            async for chunk in stream:
                yield ServerSentEvent(event="text", data=chunk.content)
    except Exception:  # the status has been sent, so an event must say it
        logger.exception("a summary for %s has stopped", customer)
        yield ServerSentEvent(event="error", data="the summary has stopped")


# --8<-- [end:summarize]
@router.get("/questions")
async def questions(customer: Customer, desk: Desk) -> list[Question]:
    """List what waits for an answer."""
    return [
        Question(
            id=asked.id,
            number=number_of(asked.run_id),
            question=asked.question,
            answer_schema=asked.answer_schema,
            asked_at=asked.asked_at,
        )
        for asked in await desk.inbox.list(pipeline=desk.pipeline.name, tenant=customer)
    ]


# --8<-- [start:answer]
@router.post("/invoices/{number}/questions/{question_id}/answer", status_code=202)
async def answer(given: Answer, run: KnownRun, question_id: str, desk: Desk) -> None:
    """Answer a question. The run goes on here, or where there is room."""
    if question_id.rpartition(":")[0] != run.run_id:
        raise HTTPException(404, "this invoice has no such question")
    options = {"reviewer": given.reviewer, "rationale": given.rationale}
    if await desk.inbox.answer(question_id, given.value, **options):
        with suppress(TooBusy, RunInProgress, SpendLimitExceeded):  # the service goes on with it
            await desk.go_on(run.run_id)


# --8<-- [end:answer]
@router.get("/spending")
async def spending(customer: Customer, desk: Desk) -> Spending:
    """Say what a customer has spent today, in all workers."""
    status = await desk.daily.status(Deps(customer))
    return Spending(limit_usd=status.limit_usd, spent_usd=status.spent_usd, resets_at=status.resets_at)


# --8<-- [start:spending]
operators = APIRouter(prefix="/operators")
"""What customers must not see: a real service asks for a login here."""


@operators.get("/spending")
async def spending_by_customer(
    desk: Desk, days: Annotated[int, Query(ge=1, le=365)] = 30
) -> list[CustomerSpending]:
    """Sum what the invoices of each customer have cost, with what is left of today."""
    since = datetime.now(UTC) - timedelta(days=days)
    today = {status.key: status.remaining_usd for status in await desk.book.list(window="day")}
    return [
        CustomerSpending(
            customer=row.tenant,
            requests=row.usage.request_count,
            cost_usd=row.usage.committed_usd,
            left_today_usd=today.get(row.tenant),
        )
        for row in await desk.history.spending(since=since, by=("tenant",))
        if row.tenant is not None
    ]


# --8<-- [end:spending]
