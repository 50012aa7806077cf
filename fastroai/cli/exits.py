"""Exit codes, and how a command ends: with a code, and at most a line on standard error."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Final, ParamSpec, TypeAlias

from fastroai.errors import (
    CallChangedError,
    ConfigurationError,
    FastroAIError,
    QuestionClosed,
    RunConflict,
    RunCorrupt,
    RunDefinitionChanged,
    RunExists,
    RunFromNewerVersion,
    RunFromOlderVersion,
    RunInProgress,
    RunNotFound,
    RunStatusConflict,
    RunTakenOver,
    StoreUnavailable,
)
from fastroai.workflows import WorkflowValidationError

OK: Final = 0
FAILED: Final = 1
"""The run failed, the runs differ, or a workflow spec is invalid."""
USAGE: Final = 2
"""The command, an option, or the object that an option names is invalid."""
NOT_FOUND: Final = 3
"""There is no such run, or no such file."""
REFUSED: Final = 4
"""The run is in progress, exists already, has finished, was changed by somebody else, or its pipeline has
changed; the question takes no answer; or the user said no."""
UNAVAILABLE: Final = 5
"""The store cannot be reached."""
UNREADABLE: Final = 6
"""The record is damaged, or another version of FastroAI wrote it."""
INTERRUPTED: Final = 130
"""An interrupt has ended the command; `main` says so."""

P = ParamSpec("P")
Performed: TypeAlias = Callable[..., int | Coroutine[Any, Any, int | None] | None]
"""A command: a function that returns the exit code, or `None` if it is not over, or a coroutine function."""

_CODES: Final[tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], int], ...]] = (
    (RunNotFound, NOT_FOUND),
    (
        (
            RunInProgress,
            RunExists,
            RunStatusConflict,
            RunDefinitionChanged,
            CallChangedError,
            RunTakenOver,
            RunConflict,
            QuestionClosed,
        ),
        REFUSED,
    ),
    (StoreUnavailable, UNAVAILABLE),
    ((RunCorrupt, RunFromNewerVersion, RunFromOlderVersion), UNREADABLE),
    (WorkflowValidationError, FAILED),
    ((ValueError, ImportError, TypeError), USAGE),
)


_PARAMETERS: Final = {"input": "answer"}
"""Options of Python whose flag has another name."""


def exit_code_of(error: FastroAIError) -> int:
    """Return the exit code of a command that an error has ended."""
    return next((code for errors, code in _CODES if isinstance(error, errors)), FAILED)


def performing(command: Callable[P, int | Coroutine[Any, Any, int | None] | None]) -> Callable[P, None]:
    """Return a command that is run to its end, and exits with the code that it returns, if it returns one."""

    @wraps(command)
    def perform(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            done = command(*args, **kwargs)
            code = asyncio.run(done) if isinstance(done, Coroutine) else done
        except FastroAIError as error:
            complain(_in_words_of_the_command(error))
            code = exit_code_of(error)
        except KeyboardInterrupt:
            code = INTERRUPTED
        if code is not None:
            raise SystemExit(code)

    return perform


def _in_words_of_the_command(error: FastroAIError) -> FastroAIError:
    """Return the error with the name of the flag, if it is about a value that was given with a flag."""
    import click

    context = click.get_current_context(silent=True)
    if context is None or not isinstance(error, ConfigurationError):
        return error
    name = _PARAMETERS.get(error.option, error.option)
    for parameter in context.command.params:
        given = context.params.get(name, ...)
        # A pipeline that the command runs can have an option of the same name, with another value.
        if parameter.name == name and error.value in (given, (given,), ...):
            flag = parameter.opts[0] if parameter.param_type_name == "option" else name.upper()
            return ConfigurationError(flag, error.value if error.value is ... else given, error.expected)
    return error


def complain(error: object) -> None:
    """Print an error on standard error, without the control characters that foreign messages can have."""
    from fastroai.plain_text import plain

    print(f"fastroai: {plain(str(error))}", file=sys.stderr)
