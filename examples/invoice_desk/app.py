"""The application: `uvicorn --app-dir examples invoice_desk.app:app --workers 2`."""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import FastAPI, Path, Query
from fastapi.responses import FileResponse, RedirectResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel, Field

from fastroai import Budget, SpendLimit, SQLiteRunStore
from fastroai.pipelines import BudgetWarning
from fastroai.store import RunSummary, SQLiteSpendStore
from fastroai.usage import SpendBook
from fastroai.web import Caller, RunsHost, runs_router
from invoice_desk.invoices import Deps, Invoice, invoice_pipeline, summarizer
from invoice_desk.settings import Settings

logger = logging.getLogger(__name__)
settings = Settings.from_environment()
Customer = Annotated[str, Path(pattern=r"^[a-z][a-z0-9-]{0,39}$")]
"""Who asks. A real service takes it from a session or a token."""


# --8<-- [start:alert]
def alert(warning: BudgetWarning) -> None:
    """Tell the operators. Of all workers, one is called for each share, once a day for each customer."""
    share, limit_usd = warning.threshold * 100, warning.limit_usd
    logger.warning("customer %s has spent %.0f %% of $%s today", warning.key, share, limit_usd)


# --8<-- [end:alert]
# --8<-- [start:money]
spend_store = SQLiteSpendStore(settings.folder / "spend.db")
daily = SpendLimit(
    usd=settings.daily_usd,
    window="day",
    key=lambda deps: deps.customer,
    store=spend_store,
    warn_at=(0.5, 0.8, 0.95),
    on_warning=alert,
)


# --8<-- [end:money]
# --8<-- [start:runs]
def deps_for(run: RunSummary) -> Deps:
    """Return the deps of a run, also when another worker takes it up."""
    return Deps(customer=run.tenant or "nobody")


async def caller(customer: Customer) -> Caller[Deps]:
    """Return who asks: a customer sees their own runs, and no others."""
    return Caller(tenant=customer)


run_store = SQLiteRunStore(settings.folder / "runs.db")
runs = RunsHost(
    invoice_pipeline(run_store, Budget(usd=settings.invoice_usd), daily),
    deps_for=deps_for,
    reserve="quote",
    every=1,
)
router = runs_router(runs, caller=caller)


# --8<-- [end:runs]
# --8<-- [start:summarize]
@router.post("/summaries", response_class=EventSourceResponse)
async def summarize(invoice: Invoice, customer: Customer) -> AsyncGenerator[ServerSentEvent]:
    """Summarize an invoice for this client alone. If it leaves, the summary is not written to its end."""
    try:
        async with summarizer.run_stream(invoice["text"], deps=Deps(customer), budget=daily) as stream:
            async for chunk in stream:
                yield ServerSentEvent(event="text", data=chunk.content)
    except Exception:  # the status has been sent, so an event must say it
        logger.exception("a summary for %s has stopped", customer)
        yield ServerSentEvent(event="error", data="the summary has stopped")


# --8<-- [end:summarize]
class Spending(BaseModel):
    """What a customer has spent today, and may spend."""

    limit_usd: Decimal
    spent_usd: Decimal
    resets_at: datetime | None


@router.get("/spending")
async def spending(customer: Customer) -> Spending:
    """Say what a customer has spent today, in all workers."""
    status = await daily.status(Deps(customer))
    return Spending(limit_usd=status.limit_usd, spent_usd=status.spent_usd, resets_at=status.resets_at)


@router.get("/", include_in_schema=False)
async def page(customer: Customer) -> FileResponse:
    """Serve the page of a customer."""
    return FileResponse(FilePath(__file__).with_name("page.html"))


# --8<-- [start:app]
@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
    """Close the stores when the runs of this worker have ended or are handed over."""
    async with aclosing(run_store), aclosing(spend_store):
        yield


app = FastAPI(title="Invoice desk", lifespan=lifespan)
app.include_router(router, prefix="/customers/{customer}")


# --8<-- [end:app]
# --8<-- [start:spending]
class CustomerSpending(BaseModel):
    """What the invoices of a customer have cost, and what is left of today's limit."""

    customer: str
    requests: int
    cost_usd: Decimal
    left_today_usd: Decimal | None = Field(description="null if nothing was spent for a long time")


@app.get("/operators/spending")  # customers must not see it: a real service asks for a login here
async def spending_by_customer(days: Annotated[int, Query(ge=1, le=365)] = 30) -> list[CustomerSpending]:
    """Sum what the invoices of each customer have cost, with what is left of today."""
    since = datetime.now(UTC) - timedelta(days=days)
    today = {status.key: status.remaining_usd for status in await SpendBook(spend_store).list(window="day")}
    return [
        CustomerSpending(
            customer=row.tenant,
            requests=row.usage.request_count,
            cost_usd=row.usage.committed_usd,
            left_today_usd=today.get(row.tenant),
        )
        for row in await runs.history.spending(since=since, by=("tenant",))
        if row.tenant is not None
    ]


# --8<-- [end:spending]
@app.get("/", include_in_schema=False)
async def home() -> RedirectResponse:
    """Show the page of a customer."""
    return RedirectResponse("customers/ada/")
