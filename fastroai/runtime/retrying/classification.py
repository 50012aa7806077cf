"""Classes of failures: the one table of rules by which every level decides whether to retry an exception.

- recoverable: nothing was done, and trying again can help, as after a rate limit, or without a connection;
- ambiguous: the work may have been done and billed, or nobody knows, as after a timeout or malformed output;
- terminal: trying again cannot help or must not happen, as after stops, mistakes, refusals, cancellation.

Classifiers of users decide first, then the provider's answer, then the type of the exception.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from fastroai.errors import AnswerCutError, CancelledInside, FastroAIError, StepExecutionError, error_chain
from fastroai.runtime.retrying.http_signals import REPEATABLE_STATUSES, should_retry, status_of

logger = logging.getLogger("fastroai.runtime")


class FailureClass(StrEnum):
    """The class of a failure, which decides whether to try again."""

    RECOVERABLE = "recoverable"
    """Nothing was done, and trying again can help."""
    TERMINAL = "terminal"
    """Trying again cannot help, or must not happen."""
    AMBIGUOUS = "ambiguous"
    """The work may have been done and billed, or nobody knows whether trying again helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureContext:
    """Details of a failure that a classifier gets beside the exception: step, attempt, run, and causes."""

    step_id: str | None = None
    """The step, if the failure was in one."""
    attempt: int = 1
    """The attempt that failed, from 1."""
    run_id: str | None = None
    """The run, if the failure was in one."""
    chain: tuple[BaseException, ...] = ()
    """The exception, its causes, and the members of groups, nearest first."""


Classifier: TypeAlias = Callable[[BaseException, FailureContext], FailureClass | None]
"""Function that returns the class of a failure, or `None` if it has no opinion."""

_NEVER_CONNECTED_ERRNOS: Final = frozenset(
    {errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN}
)

_NEVER_CONNECTED_NAMES: Final = frozenset(
    # httpx and its forks; aiohttp; urllib3 and requests. By name, so that none of them must be imported.
    {"ConnectError", "ConnectTimeout", "PoolTimeout", "ClientConnectorError"}
    | {"ConnectTimeoutError", "NewConnectionError"}
)


def classify(
    error: BaseException, context: FailureContext | None = None, classifiers: Sequence[Classifier] = ()
) -> FailureClass:
    """Return the class of a failure: from the first classifier that returns one, or from built-in rules.

    A classifier that raises, or returns anything but a `FailureClass` or `None`, is logged and skipped.
    Cancellation, and exceptions that are no `Exception`, such as `KeyboardInterrupt`, are `TERMINAL`;
    classifiers are not asked about them.

    By the built-in rules, rate limits, statuses 408, 409, 425, 429 and 5xx, and connections that were never
    made are `RECOVERABLE`. Other statuses of 4xx, exhausted quotas, reached budgets, mistakes of
    configuration, `NameError` and the like are `TERMINAL`. Timeouts, connections lost on the way, and all
    other exceptions, such as `ValueError`, are `AMBIGUOUS`. A `StepExecutionError` has the class of the
    exception in it, and a group that of its worst member: `TERMINAL`, then `AMBIGUOUS`. In the group of a
    `FallbackModel`, terminal failures count only if all are terminal.

        classify(ConnectionRefusedError())  # FailureClass.RECOVERABLE
    """
    if not isinstance(error, Exception) or isinstance(error, asyncio.CancelledError):
        return FailureClass.TERMINAL
    if classifiers:
        if context is None:
            context = FailureContext(chain=tuple(error_chain(error)))
        for classifier in classifiers:
            if (said := _ask(classifier, error, context)) is not None:
                return said
    if isinstance(error, StepExecutionError):
        return classify(error.original_error, context, classifiers)
    if isinstance(error, ExceptionGroup):
        return _of_group(error, context, classifiers)
    return _of_signals(error) or _of_type(error)


def _ask(classifier: Classifier, error: BaseException, context: FailureContext) -> FailureClass | None:
    try:
        said: object = classifier(error, context)
    except Exception:
        logger.exception("classifier %r failed on %r; the next one decides", classifier, error)
        return None
    if said is None or isinstance(said, FailureClass):
        return said
    logger.error("classifier %r returned %r, neither a FailureClass nor None", classifier, said)
    return None


def _of_group(
    group: ExceptionGroup, context: FailureContext | None, classifiers: Sequence[Classifier]
) -> FailureClass:
    from pydantic_ai.exceptions import FallbackExceptionGroup

    classes = {classify(member, context, classifiers) for member in group.exceptions}
    if isinstance(group, FallbackExceptionGroup):
        # The models were tried one after the other. One whose failure is not terminal may succeed next time.
        classes = classes - {FailureClass.TERMINAL} or classes
    return _worst(classes)  # a retry would repeat all members of the group


def _worst(classes: Iterable[FailureClass]) -> FailureClass:
    order = (FailureClass.RECOVERABLE, FailureClass.AMBIGUOUS, FailureClass.TERMINAL)
    return max(classes, key=order.index)


def _of_signals(error: Exception) -> FailureClass | None:
    """Return the class by the provider's answer (its words, a header, the status); `None` without one."""
    from pydantic_ai.exceptions import (
        ContentFilterError,
        ModelQuotaExceededError,
        ModelRateLimitError,
        ModelRequestRejectedError,
        ModelServerError,
        ModelUnavailableError,
    )

    if isinstance(error, ModelQuotaExceededError | ContentFilterError):
        return FailureClass.TERMINAL
    if (told := should_retry(error)) is not None:
        return _repeatable(error) if told else FailureClass.TERMINAL
    if isinstance(error, ModelRequestRejectedError):
        return FailureClass.TERMINAL
    if isinstance(error, ModelRateLimitError | ModelUnavailableError | ModelServerError):
        return _repeatable(error)
    if (status := status_of(error)) is not None:
        repeatable = status in REPEATABLE_STATUSES or status >= 500
        return _repeatable(error) if repeatable else FailureClass.TERMINAL
    return None


def _repeatable(error: Exception) -> FailureClass:
    """Return the class of a passing refusal: ambiguous in an open stream, which may have been billed."""
    return FailureClass.AMBIGUOUS if getattr(error, "in_stream", False) else FailureClass.RECOVERABLE


def _of_type(error: Exception) -> FailureClass:
    from pydantic_ai.exceptions import (
        ConcurrencyLimitExceeded,
        ModelAPIError,
        RunCancelled,
        RunTimedOut,
        UsageLimitExceeded,
        UserError,
    )

    if isinstance(error, FastroAIError):
        return _of_ours(error)
    if isinstance(error, ModelAPIError):
        return FailureClass.RECOVERABLE if was_never_sent(error) else FailureClass.AMBIGUOUS
    if isinstance(error, RunTimedOut):
        return FailureClass.AMBIGUOUS  # a RunCancelled that nobody asked for
    if isinstance(error, UserError | UsageLimitExceeded | RunCancelled | NameError | NotImplementedError):
        return FailureClass.TERMINAL
    if _never_connected(error) or isinstance(error, ConcurrencyLimitExceeded):
        return FailureClass.RECOVERABLE
    return FailureClass.AMBIGUOUS


def _of_ours(error: FastroAIError) -> FailureClass:
    """Return the class of a FastroAI error: ambiguous if work was cut in the middle, as by a timeout."""
    if not error.retryable:
        return FailureClass.TERMINAL
    in_the_middle = isinstance(error, TimeoutError | AnswerCutError | CancelledInside)
    return FailureClass.AMBIGUOUS if in_the_middle else FailureClass.RECOVERABLE


def was_never_sent(error: BaseException) -> bool:
    """Return whether a request to a model failed before there was a connection for it."""
    from pydantic_ai.exceptions import ModelConnectionError

    return isinstance(error, ModelConnectionError) and error.phase in ("pool", "connect")


def _never_connected(error: Exception) -> bool:
    if isinstance(error, socket.gaierror) or getattr(error, "errno", None) in _NEVER_CONNECTED_ERRNOS:
        return True
    return isinstance(error, ConnectionRefusedError) or any(
        kind.__name__ in _NEVER_CONNECTED_NAMES for kind in type(error).__mro__
    )
