"""What levels tell each other about a failure: whose it is to retry, and whether it can have been billed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from fastroai.errors import BudgetExceeded, RunStoreUnavailable, RunTakenOver, ScopeClosedError, error_chain
from fastroai.runtime.classification import FailureClass, classify

if TYPE_CHECKING:
    from pydantic_ai.exceptions import ModelAPIError

    from fastroai.runtime.facts import FailedAgentCall
    from fastroai.runtime.scope import Scope

_EXHAUSTED_ATTRIBUTE = "__fastroai_exhausted__"
_CLASS_ATTRIBUTE = "__fastroai_failure_class__"
_AGENT_CALL_ATTRIBUTE = "__fastroai_agent_call__"
_BESIDE_ATTRIBUTE = "__fastroai_failed_beside__"


def mark_exhausted(error: BaseException) -> None:
    """Note that some level has used up its retries on this failure, so that no outer level repeats it."""
    error.__dict__[_EXHAUSTED_ATTRIBUTE] = True


def is_exhausted(error: BaseException) -> bool:
    """Whether an inner level has used up its retries on this failure, or on one that it comes from."""
    return any(link.__dict__.get(_EXHAUSTED_ATTRIBUTE) for link in error_chain(error))


def note_class(error: BaseException, failure_class: FailureClass) -> None:
    """Note what a level has found a failure to be that might have repeated it: classifiers are asked once."""
    error.__dict__[_CLASS_ATTRIBUTE] = failure_class


def noted_class(error: BaseException) -> FailureClass | None:
    """What a level has found this failure to be; `None` if none was asked."""
    known: FailureClass | None = error.__dict__.get(_CLASS_ATTRIBUTE)
    return known


def note_agent_call(error: BaseException, failed: FailedAgentCall) -> None:
    """Note which agent call a failure in a flow is of: the innermost."""
    known: FailedAgentCall | None = error.__dict__.get(_AGENT_CALL_ATTRIBUTE)
    if known is None or not known.is_inside(failed):
        error.__dict__[_AGENT_CALL_ATTRIBUTE] = failed


def note_failed_beside(error: BaseException, others: Iterable[BaseException]) -> None:
    """Note which agent calls have failed side by side with that of `error`, which stands for all of them."""
    error.__dict__[_BESIDE_ATTRIBUTE] = tuple(call for other in others for call in agent_calls_of(other))


def agent_calls_of(error: BaseException) -> tuple[FailedAgentCall, ...]:
    """Return the agent calls in the code of flows whose failure this is, or comes from, or stands for."""
    found: list[FailedAgentCall | None] = []
    for link in error_chain(error):
        known = link.__dict__
        found += (known.get(_AGENT_CALL_ATTRIBUTE), *known.get(_BESIDE_ATTRIBUTE, ()))
    return tuple(dict.fromkeys(one for one in found if one is not None and one.call))


def is_terminal(error: BaseException) -> bool:
    """Whether trying again cannot help, or must not be tried: stops, mistakes, refusals, cancellation."""
    return classify(error) is FailureClass.TERMINAL


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group, however nested; or the exception itself."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from leaves(member)
    else:
        yield error


def stops(scope: Scope | None, error: BaseException) -> bool:
    """Whether a failure below a scope stops that too: of a budget from there up, of the run, of its store."""
    return any(_stops(scope, leaf) for leaf in leaves(error))


def _stops(scope: Scope | None, error: BaseException) -> bool:
    if isinstance(error, BudgetExceeded):
        return scope is not None and scope.is_within(error.scope_path)
    return isinstance(error, RunStoreUnavailable | RunTakenOver | ScopeClosedError)


def may_retry(error: BaseException) -> bool:
    """Whether an outer level may repeat what failed."""
    return not (is_terminal(error) or is_exhausted(error))


def is_transport_failure(error: BaseException) -> bool:
    """Whether a model request failed on its way, so that the request itself is to be repeated, if anything.

    A rate limit, an overloaded provider, 408, 409, 425, 429, 5xx, or the connection.
    """
    from pydantic_ai.exceptions import (
        ModelConnectionError,
        ModelHTTPError,
        ModelRateLimitError,
        ModelServerError,
        ModelUnavailableError,
    )

    refused = ModelHTTPError | ModelRateLimitError | ModelServerError | ModelUnavailableError
    return isinstance(error, refused | ModelConnectionError) and not is_terminal(error)


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
