"""Errors of FastroAI as HTTP: what the client did, what it should wait for, and what we must look at."""

from typing import Final

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from fastroai.errors import (
    AnswerRejected,
    QuestionClosed,
    RunExists,
    RunInProgress,
    RunNotFound,
    RunStatusConflict,
    StoreUnavailable,
)
from invoice_desk.desk import TooBusy

STATUS: Final[dict[type[Exception], int]] = {
    RunNotFound: 404,
    RunExists: 409,
    RunInProgress: 409,
    RunStatusConflict: 409,
    QuestionClosed: 409,
    AnswerRejected: 422,
    StoreUnavailable: 503,
    TooBusy: 503,
}
"""All others are mistakes of ours: 500, and a traceback in the log."""
TRY_AGAIN: Final = {"Retry-After": "5"}


def add_error_handlers(app: FastAPI) -> None:
    """Answer the errors above in the form that FastAPI has for others: `{"detail": …}`."""

    async def answer(request: Request, error: Exception) -> JSONResponse:
        status = next(status for kind, status in STATUS.items() if isinstance(error, kind))
        return JSONResponse({"detail": str(error)}, status, TRY_AGAIN if status == 503 else None)

    for kind in STATUS:
        app.add_exception_handler(kind, answer)
