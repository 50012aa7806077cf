"""Guards around calls of tools: time limit, retries, and the message about a failure."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from fastroai.errors import ConfigurationError, TimeLimitExceeded
from fastroai.runtime import Clock
from fastroai.runtime.concurrency.isolation import is_of_task, noting_cancellations
from fastroai.runtime.options import check_count, check_timeout
from fastroai.runtime.retrying.failures import may_retry
from fastroai.steps.reserving import Spend
from fastroai.tools.control import passes_through

T = TypeVar("T")

OnTimeout: TypeAlias = str | Callable[[], str]
"""The message to the model after a timeout: a text, or a function that returns it."""
OnError: TypeAlias = str | Callable[[Exception], str]
"""The message to the model after a failure: a text, in which `{error}` stands for the type and the message of
the exception, or a function of the exception that returns it.
"""

DEFAULT_TIMEOUT: Final = 30.0
"""Seconds that an attempt may take by default, so that a tool that hangs does not hang its agent for ever."""

_LONGEST_MESSAGE: Final = 1_000
"""Maximum number of characters of an exception's message that the model sees, as it is billed for them."""

_logger = logging.getLogger("fastroai.tools")


@dataclass(frozen=True, slots=True)
class _Failure:
    error: Exception
    timed_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """The checked options of `safe_tool` and `SafeToolset`, and the calls that follow them.

    Raises:
        ConfigurationError: an option has an invalid value.
    """

    timeout: float | None = DEFAULT_TIMEOUT
    retries: int = 0
    on_timeout: OnTimeout | None = None
    on_error: OnError | None = None

    def __post_init__(self) -> None:
        check_timeout("timeout", self.timeout)
        check_count("retries", self.retries, required=True)
        _check_answer("on_timeout", self.on_timeout, arguments=0, expected="a text, or a function () -> str")
        _check_answer(
            "on_error", self.on_error, arguments=1, expected="a text, or a function (exception) -> str"
        )

    async def call(
        self, tool: str, attempt: Callable[[], Awaitable[T]], cost: Callable[[], Spend] | None = None
    ) -> T | str:
        """Return the result of the first attempt that succeeds, or else the message about the last failure.

        If attempts cost money, the cost of each is set aside before it begins.
        """
        attempts = self.retries + 1
        number = 0
        while True:
            number += 1
            if cost is None:
                result = await self._try(tool, attempt)
            else:
                result = await self._pay(tool, attempt, cost)
            if not isinstance(result, _Failure):
                return result
            summary = f"{type(result.error).__name__}: {result.error}"
            _logger.warning("tool %r failed, attempt %d of %d: %s", tool, number, attempts, summary)
            _logger.debug("tool %r failed here", tool, exc_info=result.error)
            if number == attempts or not may_retry(result.error):
                return self._answer(tool, result)

    async def _pay(
        self, tool: str, attempt: Callable[[], Awaitable[T]], cost: Callable[[], Spend]
    ) -> T | _Failure:
        """Make an attempt after its cost is set aside. Its time does not run while it waits for the money."""
        result: T | _Failure | None = None
        try:
            async with cost() as spend:
                result = await self._try(tool, attempt)
                if isinstance(result, _Failure):
                    raise result.error  # goes on record as the reason for the unknown cost
                spend.settle()
        except Exception as error:
            if not isinstance(result, _Failure) or error is not result.error:
                raise
        return result

    async def _try(self, tool: str, attempt: Callable[[], Awaitable[T]]) -> T | _Failure:
        try:
            async with Clock(self.timeout, f"tool {tool!r}"):
                try:
                    return await noting_cancellations(attempt())
                except Exception as error:
                    # Caught inside the clock, since tools raise timeouts too: only the clock's own timeout
                    # may leave it.
                    if passes_through(error):
                        raise
                    failure = _Failure(error)
        except TimeLimitExceeded as error:
            return _Failure(error, timed_out=True)
        if is_of_task(failure.error):
            # The tool has answered a cancellation from outside with an exception of its own.
            raise asyncio.CancelledError from failure.error
        return failure

    def _answer(self, tool: str, failure: _Failure) -> str:
        answer: str | Callable[..., str] | None
        arguments: tuple[Exception, ...]
        if failure.timed_out:
            default = f"Tool {tool!r} timed out after {self.timeout:g} s."
            answer, arguments = self.on_timeout, ()
        else:
            default = f"Tool {tool!r} failed: {type(failure.error).__name__}"
            answer, arguments = self.on_error, (failure.error,)
        if callable(answer):
            return _written(answer, arguments, default)
        # Not `str.format`: a text may have other braces, and those of an exception must not become fields.
        return default if answer is None else answer.replace("{error}", _described(failure.error))


def _described(error: Exception) -> str:
    kind, message = type(error).__name__, str(error)
    if len(message) > _LONGEST_MESSAGE:
        message = f"{message[:_LONGEST_MESSAGE]}..."
    return f"{kind}: {message}" if message else kind


def _written(write: Callable[..., str], arguments: tuple[Exception, ...], default: str) -> str:
    """Return the text of the caller's function. A fault in it is logged, and must not end the agent's run."""
    try:
        text: object = write(*arguments)
    except Exception as error:
        if passes_through(error):
            raise
        _logger.exception("%r raised; the model gets the default text", write)
        return default
    if isinstance(text, str):
        return text
    _logger.error("%r returned %r, not a text; the model gets the default text", write, text)
    return default


def _check_answer(option: str, answer: object, *, arguments: int, expected: str) -> None:
    if answer is None or isinstance(answer, str):
        return
    if not callable(answer) or inspect.iscoroutinefunction(answer) or not _takes(answer, arguments):
        raise ConfigurationError(option, answer, expected)


def _takes(function: Callable[..., object], arguments: int) -> bool:
    """Return whether a function takes this many arguments. Built-ins without a signature are accepted."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return True
    try:
        signature.bind(*range(arguments))
    except TypeError:
        return False
    return True
