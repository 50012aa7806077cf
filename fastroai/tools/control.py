"""Exceptions of tools that are not failures, but messages to the caller of the agent."""

from __future__ import annotations

from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    RunCancelled,
    RunTimedOut,
    SkipModelRequest,
    SkipToolExecution,
    SkipToolValidation,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
    UsageLimitExceeded,
    UserError,
)

from fastroai.errors import FastroAIError, StepExecutionError, TimeLimitExceeded

_CONTROL = (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    SkipModelRequest,
    SkipToolExecution,
    SkipToolValidation,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
    RunCancelled,  # PydanticAI itself tells the model of a cancelled agent
    UsageLimitExceeded,
    UserError,  # a mistake in the program, which a model cannot fix
    FastroAIError,
)

_FAILURES_OF_WORK_INSIDE = (RunTimedOut, StepExecutionError, TimeLimitExceeded)
"""An agent or step inside of a tool failed or took too long. To the tool, that is an ordinary failure."""


def passes_through(error: Exception) -> bool:
    """Return whether an exception must leave a safe tool unchanged.

    These exceptions are PydanticAI's control flow, stops and mistakes of FastroAI (budgets first of all), and
    a group with such an exception in it. Cancellation is no `Exception`, so it never gets here.
    """
    if isinstance(error, ExceptionGroup):
        return any(passes_through(member) for member in error.exceptions)
    if isinstance(error, _FAILURES_OF_WORK_INSIDE):
        return False
    return isinstance(error, _CONTROL)
