"""Notes on failures, by which levels agree on who retries, and whether a failure may have been billed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from fastroai.errors import BudgetExceeded, RunStoreUnavailable, RunTakenOver, ScopeClosedError, error_chain
from fastroai.runtime.retrying.classification import FailureClass, classify, was_never_sent

if TYPE_CHECKING:
    from fastroai.runtime.facts import FailedAgentCall
    from fastroai.runtime.scope import Scope

_EXHAUSTED_ATTRIBUTE = "__fastroai_exhausted__"
_CLASS_ATTRIBUTE = "__fastroai_failure_class__"
_AGENT_CALL_ATTRIBUTE = "__fastroai_agent_call__"
_CALLS_ATTRIBUTE = "__fastroai_failed_calls__"
_BESIDE_ATTRIBUTE = "__fastroai_failed_beside__"


def mark_exhausted(error: BaseException) -> None:
    """Note that some level has used up its retries on a failure, so that no outer level repeats the work."""
    error.__dict__[_EXHAUSTED_ATTRIBUTE] = True


def is_exhausted(error: BaseException) -> bool:
    """Return whether an inner level has used up its retries on this failure, or on a cause of it."""
    return any(link.__dict__.get(_EXHAUSTED_ATTRIBUTE) for link in error_chain(error))


def note_class(error: BaseException, failure_class: FailureClass) -> None:
    """Note the class that a level has found for a failure, so that classifiers are asked only once."""
    error.__dict__[_CLASS_ATTRIBUTE] = failure_class


def noted_class(error: BaseException) -> FailureClass | None:
    """Return the class that a level has noted for a failure; `None` if none has."""
    known: FailureClass | None = error.__dict__.get(_CLASS_ATTRIBUTE)
    return known


def note_agent_call(error: BaseException, failed: FailedAgentCall) -> None:
    """Note a call in a flow that a failure leaves: of calls inside each other, the innermost comes first."""
    notes = error.__dict__
    known: FailedAgentCall | None = notes.get(_AGENT_CALL_ATTRIBUTE)
    if known is None or not known.is_inside(failed):
        notes[_AGENT_CALL_ATTRIBUTE] = failed
    notes[_CALLS_ATTRIBUTE] = (*notes.get(_CALLS_ATTRIBUTE, ()), failed)


def note_failed_beside(error: BaseException, others: Iterable[BaseException]) -> None:
    """Note the calls that failed side by side with that of `error`, which is raised for all of them."""
    beside = [(agent_calls_of(other), failed_calls_of(other)) for other in others]
    error.__dict__[_BESIDE_ATTRIBUTE] = tuple(beside)


def agent_calls_of(error: BaseException) -> tuple[FailedAgentCall, ...]:
    """Return the agent calls in the code of flows whose failures this error is, comes from or stands for.

    Of calls inside each other, only the innermost is returned.
    """
    found: list[FailedAgentCall | None] = []
    for link in _failed_links(error):
        found.append(link.__dict__.get(_AGENT_CALL_ATTRIBUTE))
        found += [one for calls, _ in link.__dict__.get(_BESIDE_ATTRIBUTE, ()) for one in calls]
    return tuple(dict.fromkeys(one for one in found if one is not None and one.call))


def failed_calls_of(error: BaseException) -> tuple[FailedAgentCall, ...]:
    """Return all calls in the code of flows whose failures this error is, comes from or stands for.

    They are the calls of agents, of typed functions and of code, also those around each other.
    """
    found: list[FailedAgentCall] = []
    for link in _failed_links(error):
        found += link.__dict__.get(_CALLS_ATTRIBUTE, ())
        found += [one for _, calls in link.__dict__.get(_BESIDE_ATTRIBUTE, ()) for one in calls]
    return tuple(dict.fromkeys(found))


def _failed_links(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those it comes from, without failures that were handled when a call failed.

    In `except ParseFailure: await send()`, Python makes the handled error the context of that of `send`.
    """
    seen: set[int] = set()
    waiting: list[tuple[BaseException, FailedAgentCall | None]] = [(error, None)]
    while waiting:
        link, around = waiting.pop(0)
        calls: tuple[FailedAgentCall, ...] = link.__dict__.get(_CALLS_ATTRIBUTE, ())
        if id(link) in seen or (around and calls and not calls[-1].is_inside(around)):
            continue
        seen.add(id(link))
        yield link
        if isinstance(link, BaseExceptionGroup):
            waiting += [(one, around) for one in link.exceptions]
        around = calls[-1] if calls else around
        if link.__cause__ is not None:
            waiting.append((link.__cause__, None))
        elif link.__context__ is not None and not link.__suppress_context__ and not (around and around.call):
            waiting.append((link.__context__, around))


def is_terminal(error: BaseException) -> bool:
    """Return whether a failure is terminal: a stop, a mistake, a refusal or a cancellation."""
    return classify(error) is FailureClass.TERMINAL


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in a group, however nested; or the exception itself."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from leaves(member)
    else:
        yield error


def stops(scope: Scope | None, error: BaseException) -> bool:
    """Return whether a failure below a scope stops the scope, too.

    That is so for failures of a budget of the scope or above it, and for failures of the run or its store.
    """
    return any(_stops(scope, leaf) for leaf in leaves(error))


def _stops(scope: Scope | None, error: BaseException) -> bool:
    if isinstance(error, BudgetExceeded):
        return scope is not None and scope.is_within(error.scope_path)
    return isinstance(error, RunStoreUnavailable | RunTakenOver | ScopeClosedError)


def may_retry(error: BaseException) -> bool:
    """Return whether an outer level may repeat the work that failed."""
    return not (is_terminal(error) or is_exhausted(error))


def is_transport_failure(error: BaseException) -> bool:
    """Return whether a model request failed on its way, so that a retry repeats the request itself.

    Such failures are rate limits, overloaded providers, 408, 409, 425, 429, 5xx, and failed connections.
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
    """Return how the reservation of a request that failed with this exception ends.

    Released: PydanticAI refused to send it (`UserError`), the provider refused it with a status before a
    stream was open, or the connection was never made.
    Unmeasured, because it may have been billed: any other request, such as one that was cancelled, timed out,
    or got an unreadable answer.
    """
    from pydantic_ai.exceptions import (
        ModelAPIError,
        ModelHTTPError,
        ModelQuotaExceededError,
        ModelRateLimitError,
        ModelRequestRejectedError,
        ModelUnavailableError,
        UserError,
    )

    if isinstance(error, UserError):
        return "released"
    if not isinstance(error, ModelAPIError) or error.in_stream:
        return "unmeasured"
    limited = ModelRateLimitError | ModelQuotaExceededError | ModelUnavailableError
    was_refused = isinstance(error, limited | ModelHTTPError | ModelRequestRejectedError)
    return "released" if was_refused or was_never_sent(error) else "unmeasured"
