"""Which exceptions of a tool are not its failure, but a message to whoever runs the agent."""

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
    RunCancelled,  # PydanticAI itself tells the model of a cancelled sub-agent
    UsageLimitExceeded,
    UserError,  # a mistake in the program, which a model cannot mend
    FastroAIError,
)

_FAILURES_OF_WORK_INSIDE = (RunTimedOut, StepExecutionError, TimeLimitExceeded)
"""An agent or step that a tool runs failed or took too long: to the tool, a failure like any other."""


def passes_through(error: Exception) -> bool:
    """Whether an exception must leave a safe tool unchanged.

    That is PydanticAI's control flow, stops and mistakes of FastroAI (budgets first of all), and a group with
    such an exception in it. Cancellation is no `Exception`, so it is never asked about.
    """
    if isinstance(error, ExceptionGroup):
        return any(passes_through(member) for member in error.exceptions)
    if isinstance(error, _FAILURES_OF_WORK_INSIDE):
        return False
    return isinstance(error, _CONTROL)
