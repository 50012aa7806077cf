"""Errors of FastroAI as HTTP: what the client did, what it should wait for, and what we must look at."""

import logging
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from fastroai.errors import (
    AnswerRejected,
    QuestionClosed,
    RunExists,
    RunInProgress,
    RunNotFound,
    RunStatusConflict,
    SpendLimitExceeded,
    StoreUnavailable,
)
from invoice_desk.desk import TooBusy

T = TypeVar("T")
logger = logging.getLogger(__name__)

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
DETAIL: Final[dict[type[Exception], str]] = {
    RunNotFound: "there is no such invoice",
    RunInProgress: "somebody works on this invoice just now",
    StoreUnavailable: "the store cannot be reached just now",
}
"""The words for errors whose own are for us: they name the store, or a process. The log has those."""
TRY_AGAIN: Final = {"Retry-After": "5"}


def add_error_handlers(app: FastAPI) -> None:
    """Answer the errors above in the form that FastAPI has for others: `{"detail": …}`."""

    async def answer(request: Request, error: Exception) -> JSONResponse:
        status = _of(error, STATUS)
        detail = _of(error, DETAIL)
        if detail is not None:
            logger.warning("%s %s: %s", request.method, request.url.path, error)
        answered = {"detail": str(error) if detail is None else detail}
        return JSONResponse(answered, status or 500, TRY_AGAIN if status == 503 else None)

    for kind in STATUS:
        app.add_exception_handler(kind, answer)

    # --8<-- [start:room]
    @app.exception_handler(SpendLimitExceeded)
    async def refuse(request: Request, error: SpendLimitExceeded) -> JSONResponse:
        """A run was not begun, because the customer's money of today may not pay for it to its end."""
        left = error.limit - error.committed
        if error.requested is not None and error.requested <= left:
            seconds = 5  # other runs have reserved it, and give back what they do not need
        else:
            assert error.resets_at is not None  # a day ends
            seconds = math.ceil((error.resets_at - datetime.now(UTC)).total_seconds())
        spent, limit, reserved, most = map(
            in_usd, (error.committed, error.limit, error.reserved, error.requested)
        )
        spent_today = f"{spent} of {limit} is spent today and {reserved} is reserved"
        detail = f"{spent_today}, and an invoice may cost up to {most}"
        return JSONResponse({"detail": detail}, 429, {"Retry-After": str(max(1, seconds))})

    # --8<-- [end:room]


def in_usd(microcents: int | None) -> str:
    """Return an amount as people read it."""
    return "an unknown amount" if microcents is None else f"${Decimal(microcents) / 1_000_000:f}"


def _of(error: Exception, known: Mapping[type[Exception], T]) -> T | None:
    return next((value for kind, value in known.items() if isinstance(error, kind)), None)
