"""Errors as problem details (RFC 9457): what the client did, or what it should wait for; nothing secret."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from pydantic import JsonValue, ValidationError

from fastroai.errors import (
    AnswerRejected,
    BudgetExceeded,
    ConfigurationError,
    ContractViolation,
    CostBudgetExceeded,
    MissingExtraError,
    QuestionClosed,
    RunDefinitionChanged,
    RunExists,
    RunInProgress,
    RunNotFound,
    RunStatusConflict,
    SpendLimitExceeded,
    StoreUnavailable,
)
from fastroai.records import microcents_to_usd

try:
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import JSONResponse
except ImportError as error:
    raise MissingExtraError("fastroai.web", "web", "starlette") from error

MEDIA_TYPE: Final = "application/problem+json"
SOON: Final = 5
"""Seconds after which a client may try again what fails for a moment."""

logger: Final = logging.getLogger("fastroai.web")


class Problem(Exception):
    """A refused request: an exception that is answered as problem details (RFC 9457).

    The routes of `runs_router` and `runs_routes` answer with its `response`. In your own endpoints, return
    that from an exception handler.
    """

    def __init__(
        self,
        status: int,
        code: str,
        title: str,
        detail: str,
        more: Mapping[str, JsonValue] | None = None,
        *,
        retry_after: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Refuse a request.

        Args:
            status: The status of HTTP.
            code: The kind of problem, for programs.
            title: The kind of problem, for people.
            detail: What is wrong this time.
            more: Members of the problem besides those of the RFC.
            retry_after: Seconds after which the client may try again.
            headers: Headers of the response, such as `WWW-Authenticate`.
        """
        super().__init__(status, code, title, detail)
        self.status, self.code, self.title, self.detail = status, code, title, detail
        self.more, self.headers = dict(more or {}), dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(retry_after)

    def response(self, request: Request) -> JSONResponse:
        """Return the problem as a JSON response, of the media type `application/problem+json`.

        The body has `type`, `title`, `status`, `detail`, `instance` (the path of the request), `code`, and
        the members of `more`. The response has the status and the headers of the problem.
        """
        told = {
            "type": f"urn:fastroai:problem:{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "instance": request.url.path,
            "code": self.code,
            **self.more,
        }
        return JSONResponse(told, self.status, self.headers, media_type=MEDIA_TYPE)


def problem_of(error: Exception) -> Problem | None:
    """Return the problem to answer a client with for an error that the client or a later attempt can mend.

    `RunNotFound` is a 404, inputs that do not fit are a 422, a run in the wrong state is a 409, a budget that
    is too small is a 402, a spend limit that opens again is a 429, and a store that cannot be reached is a
    503. A `Problem` is returned as it is. Return `None` for any other error, such as a mistake in the
    application.
    """
    match error:
        case Problem():
            return error
        case RunNotFound():
            return no_such_run()
        case RunStatusConflict(status=status):
            detail = f"the run is {status}; this needs {error.expected}"
            return Problem(409, "run-status", "The run cannot do that", detail, {"run_status": status})
        case RunExists(status=status):
            return Problem(409, "run-exists", "The run exists already", f"the run is {status}")
        case RunInProgress():
            detail = "a process works on the run; try again when it has paused or ended"
            return Problem(409, "run-in-progress", "The run is running", detail, retry_after=SOON)
        case RunDefinitionChanged():
            detail = "the run belongs to another version of this service, which cannot continue it"
            return Problem(409, "definition-changed", "The run is of another version", detail)
        case QuestionClosed():
            return Problem(409, "question-closed", "The question is closed", "it can no longer be answered")
        case AnswerRejected(reason=reason):
            return Problem(422, "answer-rejected", "The answer does not fit", str(reason))
        case ContractViolation(direction="input", details=details):
            return invalid_input(details)
        case SpendLimitExceeded():
            return limit_reached(error)
        case BudgetExceeded():
            detail = "the budget of this request cannot pay for the run"
            return Problem(402, "budget", "The budget is too small", detail, _amounts(error))
        case ConfigurationError(option="tenant", value=None):
            detail = "a spend limit of this service counts by tenant, and you have none"
            return Problem(403, "tenant-needed", "A tenant is needed", detail)
        case ConfigurationError(option="input") if error.value is ...:  # no answer was given
            detail = "the run waits for the answer to a question; give that first"
            return Problem(409, "run-status", "The run cannot do that", detail, {"run_status": "paused"})
        case StoreUnavailable():
            detail = "the store cannot be reached right now"
            return Problem(503, "store-unavailable", "Try again soon", detail, retry_after=SOON)
        case _:
            return None


def refused(error: HTTPException) -> Problem:
    """Return what a dependency of the application refuses, such as a caller who is not known."""
    registered = error.status_code in {status.value for status in HTTPStatus}
    phrase = HTTPStatus(error.status_code).phrase if registered else f"Status {error.status_code}"
    code = phrase.lower().replace(" ", "-")
    return Problem(error.status_code, code, phrase, str(error.detail), headers=error.headers)


def no_such_run() -> Problem:
    """Return the problem of a run that there is not, or not for this caller."""
    return Problem(404, "run-not-found", "There is no such run", "check the id")


def not_json() -> Problem:
    """Return the problem of a body that is not JSON."""
    return Problem(400, "not-json", "The body is not JSON", "send a JSON object")


def no_such_question() -> Problem:
    """Return the problem of a question that a run has not asked."""
    return Problem(404, "question-not-found", "There is no such question", "check its key")


def invalid_input(details: Sequence[Any]) -> Problem:
    """Return the problem of a body that does not fit, with the place of each error as a JSON pointer."""
    told = [("".join(f"/{_escaped(part)}" for part in one["loc"]), str(one["msg"])) for one in details]
    pointer, why = told[0] if told else ("", "it does not fit")
    more = "" if len(told) < 2 else f"; and {len(told) - 1} other problem{'s' * (len(told) > 2)}"
    detail = f"{pointer or 'the body'}: {why}{more}"
    errors: list[JsonValue] = [{"pointer": pointer, "detail": why} for pointer, why in told]
    return Problem(422, "invalid-input", "The input does not fit", detail, {"errors": errors})


def invalid(error: ValidationError) -> Problem:
    """Return the problem of a body or of a query that pydantic refuses."""
    return invalid_input(error.errors(include_url=False, include_context=False, include_input=False))


def _escaped(part: object) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")


def _amounts(error: BudgetExceeded) -> dict[str, JsonValue]:
    """Return the limit of a stop, what is spent of it, and what was asked for, if that is known."""
    asked: dict[str, int] = {} if error.requested is None else {"requested": error.requested}
    amounts = {"limit": error.limit, "spent": error.committed, **asked}
    if isinstance(error, CostBudgetExceeded):
        return {f"{name}_usd": f"{microcents_to_usd(one):f}" for name, one in amounts.items()}
    return {**amounts, "unit": error.unit}


def limit_reached(error: SpendLimitExceeded) -> Problem:
    """Return the problem of a limit: 429 with the time if it opens again, otherwise 402."""
    more = _amounts(error)
    left = error.limit - error.committed
    if error.requested is not None and error.requested <= left:
        detail = "other runs have reserved what is left, and give back what they do not need"
        return Problem(429, "limit-reserved", "The limit is reserved", detail, more, retry_after=SOON)
    if error.resets_at is None:
        detail = "the spend limit is reached; somebody must raise it"
        return Problem(402, "limit-reached", "The spend limit is reached", detail, more)
    seconds = max(1, math.ceil((error.resets_at - datetime.now(UTC)).total_seconds()))
    detail = f"the spend limit opens again at {error.resets_at:%Y-%m-%d %H:%M} UTC"
    more["resets_at"] = error.resets_at.isoformat()
    return Problem(429, "limit-reached", "The spend limit is reached", detail, more, retry_after=seconds)


def answered(request: Request, error: Exception) -> JSONResponse:
    """Return the response for an error of an endpoint.

    Raises:
        Exception: the error itself, if it is a mistake of the application: its server logs it, and answers.
    """
    problem = problem_of(error)
    if problem is None:
        raise error
    if problem is not error:
        logger.info("%s %s: %s", request.method, request.url.path, error)
    return problem.response(request)
