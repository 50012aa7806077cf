"""Failures of a variant of a router after which its fallback runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from fastroai.errors import (
    BudgetExceeded,
    ConfigurationError,
    NoUsableOutput,
    StepExecutionError,
    error_chain,
)
from fastroai.runtime import Scope
from fastroai.runtime.retrying.failures import is_terminal, stops
from fastroai.runtime.retrying.http_signals import status_of

FallbackOn: TypeAlias = (
    type[Exception] | Callable[[Exception], bool] | Sequence[type[Exception] | Callable[[Exception], bool]]
)
"""Failures after which a fallback runs: an exception type, a function of the exception, or a list of both."""


class FallbackRule:
    """Decides whether a fallback runs after a failure."""

    def __init__(self, fallback_on: FallbackOn | None) -> None:
        """Take the setting of a router. Raises `ConfigurationError`."""
        self._conditions = None if fallback_on is None else _checked(fallback_on)

    def __call__(self, scope: Scope, error: Exception) -> bool:
        """Return whether the fallback of a variant runs after its failure. `scope` is that of the router."""
        failure = _failure_in(error)
        if not isinstance(failure, Exception) or stops(scope, failure):
            return False
        if self._conditions is None:
            return _another_may_survive(failure)
        return any(_matches(condition, failure) for condition in self._conditions)


def _another_may_survive(failure: BaseException) -> bool:
    """Return whether another variant may succeed after a failure.

    After a used-up budget, a cancellation and a mistake in the configuration, none can.
    """
    from pydantic_ai.exceptions import ContentFilterError, FallbackExceptionGroup, ModelAPIError

    failure = _failure_in(failure)
    if isinstance(failure, BaseExceptionGroup):
        members = map(_another_may_survive, failure.exceptions)
        return any(members) if isinstance(failure, FallbackExceptionGroup) else all(members)
    if isinstance(failure, BudgetExceeded):
        return False
    was_answered = isinstance(failure, ModelAPIError | ContentFilterError) or status_of(failure) is not None
    return was_answered or isinstance(failure, NoUsableOutput) or not is_terminal(failure)


def _failure_in(error: BaseException) -> BaseException:
    """Return the exception that a step has raised, without those that say in which step it was."""
    while isinstance(error, StepExecutionError):
        error = error.original_error
    return error


def _matches(condition: type[Exception] | Callable[[Exception], bool], failure: Exception) -> bool:
    if isinstance(condition, type):
        return any(isinstance(link, condition) for link in error_chain(failure))
    return condition(failure)


def _checked(fallback_on: FallbackOn) -> tuple[type[Exception] | Callable[[Exception], bool], ...]:
    conditions: list[Any] = [*fallback_on] if isinstance(fallback_on, list | tuple) else [fallback_on]
    for condition in conditions:
        is_type = isinstance(condition, type)
        if (
            not callable(condition)
            or (is_type and not issubclass(condition, Exception))
            or inspect.iscoroutinefunction(condition)
        ):
            expected = "an exception type, a function (exception) -> bool, not async, or a list of both"
            raise ConfigurationError("fallback_on", fallback_on, expected)
    return tuple(conditions)
