"""The application: `uvicorn --app-dir examples invoice_desk.app:app --workers 2`."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from fastapi import FastAPI
from fastapi.responses import FileResponse

from invoice_desk.api import operators, router
from invoice_desk.desk import InvoiceDesk
from invoice_desk.errors import add_error_handlers
from invoice_desk.settings import Settings

PAGE: Final = Path(__file__).with_name("page.html")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[dict[str, object]]:
    """Open the desk of this worker, and close it when uvicorn has stopped accepting requests."""
    async with InvoiceDesk.opened(Settings.from_environment()) as desk:
        yield {"desk": desk}


app = FastAPI(title="Invoice desk", lifespan=lifespan)
app.include_router(router)
app.include_router(operators)
add_error_handlers(app)


@app.get("/", include_in_schema=False)
async def page() -> FileResponse:
    """Serve the page that uploads an invoice and shows the draft while it is written."""
    return FileResponse(PAGE)
