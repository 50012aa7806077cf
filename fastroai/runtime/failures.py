"""What kind of failure an exception is, and whose retries it has used up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from fastroai.errors import FastroAIError, StepExecutionError, error_chain

if TYPE_CHECKING:
    from pydantic_ai.exceptions import ModelAPIError

_EXHAUSTED_ATTRIBUTE = "__fastroai_exhausted__"

_RETRYABLE_STATUSES = frozenset({408, 409, 425, 429})


def mark_exhausted(error: BaseException) -> None:
    """Note that some level has used up its retries on this failure, so that no outer level repeats it."""
    error.__dict__[_EXHAUSTED_ATTRIBUTE] = True


def is_exhausted(error: BaseException) -> bool:
    """Whether an inner level has used up its retries on this failure, or on one that it comes from."""
    return any(link.__dict__.get(_EXHAUSTED_ATTRIBUTE) for link in error_chain(error))


def is_terminal(error: BaseException) -> bool:
    """Whether trying again cannot help, or must not be tried: stops, mistakes, refusals, cancellation."""
    from pydantic_ai.exceptions import (
        FallbackExceptionGroup,
        ModelQuotaExceededError,
        ModelRequestRejectedError,
        RunCancelled,
        RunTimedOut,
        UsageLimitExceeded,
        UserError,
    )

    if not isinstance(error, Exception) or isinstance(error, asyncio.CancelledError):
        return True
    if isinstance(error, StepExecutionError):
        return is_terminal(error.original_error)
    if isinstance(error, FallbackExceptionGroup):
        return all(map(is_terminal, error.exceptions))  # one of the models may do better next time
    if isinstance(error, ExceptionGroup):
        return any(map(is_terminal, error.exceptions))  # all that ran side by side would have to
    if isinstance(error, FastroAIError):
        return not error.retryable
    if isinstance(error, RunTimedOut):
        return False  # a RunCancelled that nobody asked for
    return isinstance(
        error,
        UserError
        | UsageLimitExceeded
        | RunCancelled
        | ModelRequestRejectedError
        | ModelQuotaExceededError
        | NameError
        | NotImplementedError,
    )


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group, however nested; or the exception itself."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from leaves(member)
    else:
        yield error


def may_retry(error: BaseException) -> bool:
    """Whether an outer level may repeat what failed."""
    return not (is_terminal(error) or is_exhausted(error))


def is_transport_failure(error: BaseException) -> bool:
    """Whether a model request failed on its way: 408, 409, 425, 429, 5xx, or the connection.

    The statuses are those that the OpenAI and Anthropic SDKs retry by themselves, and as they do, a header
    `x-should-retry` has the last word. Exhausted quota is not among them although it arrives as a 429:
    waiting does not help.
    """
    from pydantic_ai.exceptions import (
        ModelAPIError,
        ModelConnectionError,
        ModelHTTPError,
        ModelQuotaExceededError,
        ModelRateLimitError,
        ModelServerError,
        ModelUnavailableError,
    )

    if not isinstance(error, ModelAPIError) or isinstance(error, ModelQuotaExceededError):
        return False
    if isinstance(error, ModelHTTPError):
        told = (error.headers or {}).get("x-should-retry")
        if told in ("true", "false"):
            return told == "true"
        return error.status_code in _RETRYABLE_STATUSES or error.status_code >= 500
    return isinstance(
        error, ModelConnectionError | ModelRateLimitError | ModelServerError | ModelUnavailableError
    )


def retry_after(error: BaseException) -> float | None:
    """Seconds that the provider asked to wait (`Retry-After`), if it did."""
    from pydantic_ai.exceptions import ModelAPIError

    return error.retry_after if isinstance(error, ModelAPIError) else None


def billing_of(error: BaseException) -> Literal["released", "unmeasured"]:
    """How a request that failed with this exception ends in the account.

    Released: refused with a status before a stream was open, or the connection was never made. Everything
    else may have been billed: cancelled, timed out, cut, or answered with something unreadable.
    """
    from pydantic_ai.exceptions import ModelAPIError, ModelConnectionError, ModelHTTPError, UserError

    if isinstance(error, UserError):
        return "released"
    if not isinstance(error, ModelAPIError) or error.in_stream:
        return "unmeasured"
    if isinstance(error, ModelConnectionError):
        return "released" if error.phase in ("pool", "connect") else "unmeasured"
    return "released" if _was_refused(error) or isinstance(error, ModelHTTPError) else "unmeasured"


def _was_refused(error: ModelAPIError) -> bool:
    from pydantic_ai.exceptions import (
        ModelQuotaExceededError,
        ModelRateLimitError,
        ModelRequestRejectedError,
        ModelUnavailableError,
    )

    return isinstance(
        error,
        ModelRateLimitError | ModelQuotaExceededError | ModelUnavailableError | ModelRequestRejectedError,
    )
