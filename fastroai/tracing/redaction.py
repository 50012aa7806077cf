"""Redaction: secrets and users' data are replaced in texts of spans, log records and traces.

There is one redactor for the process, because its log and its spans are those of the process too.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from pydantic import JsonValue

from fastroai.errors import ConfigurationError
from fastroai.tracing.attributes import AMOUNTS, error_summary
from fastroai.tracing.protocol import AttributeValue

Redact: TypeAlias = Callable[[str], str] | Iterable[str | re.Pattern[str]]
"""A function that returns a text without its secrets, or regular expressions of them."""

REDACTED: Final = "[redacted]"
"""The text shown for a match of a pattern, and for a text on which the redactor has failed."""

LOGGERS: Final = tuple(
    f"fastroai.{name}"
    for name in (
        *("agent", "distributed", "functions", "graphs", "human", "pipelines", "rows", "run", "runs"),
        *("runtime", "steps", "store", "testing", "tools", "usage", "viewer", "web", "workflows"),
    )
)
"""The loggers of the package. Lines of `fastroai.tracing` are made of spans, which are redacted before."""

_EXPECTED: Final = "a function that takes and returns a text, or regular expressions"
_OF_EVERY_RECORD: Final = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"}
_logger: Final = logging.getLogger("fastroai.tracing")


class _Redactor:
    """A function of the user that neither fails a run nor lets a text through by failing."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._has_failed = False

    def __call__(self, text: str) -> str:
        try:
            shown: object = self._redact(text)
        except Exception as error:  # the user's function may raise anything; its message may quote the text
            return self._failed(f"raised {type(error).__name__}")
        return shown if isinstance(shown, str) else self._failed(f"returned {type(shown).__name__}, not str")

    def _failed(self, how: str) -> str:
        if not self._has_failed:
            self._has_failed = True
            _logger.warning("the function given as redact= %s; texts are shown as %s", how, REDACTED)
        return REDACTED


_redactor: _Redactor | None = None


def set_redaction(redact: Redact | None) -> None:
    """Redact the texts that FastroAI shows from now on, in this process: in spans, log records and traces.

    A second call replaces the redaction of the first.

        set_redaction(["sk-[A-Za-z0-9]+", "[^ @]+@[^ @]+"])

    Of a trace, this is what it writes: `explain()`, `transcript()`, `to_json()` and its pages. The store, the
    values of a `RunTrace` such as `outputs`, other loggers, and spans of other libraries are not redacted.

    Args:
        redact: A function that returns a text without its secrets; or regular expressions, of which each
            match becomes `[redacted]`; `None` to show everything, as at the start of a process. Threads and
            event loops call the function, so it must not block. A text on which it fails is shown as
            `[redacted]`; the first failure is logged.

    Raises:
        ConfigurationError: `redact` is none of these, is an async function or an empty list, or a regular
            expression is invalid.
    """
    global _redactor
    _redactor = None if redact is None else _Redactor(_function(redact))
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if _redactor is None:
            logger.removeFilter(_in_records)
        else:
            logger.addFilter(_in_records)


def _function(redact: Redact) -> Callable[[str], str]:
    if callable(redact):
        if inspect.iscoroutinefunction(redact):
            raise ConfigurationError("redact", redact, f"{_EXPECTED}; the function must not be async")
        return redact
    if isinstance(redact, str | bytes) or not isinstance(redact, Iterable):
        raise ConfigurationError("redact", redact, f"{_EXPECTED}, in a list")
    patterns = [_pattern(one) for one in redact]
    if not patterns:
        raise ConfigurationError("redact", redact, f"{_EXPECTED}; None to show everything")

    def without_matches(text: str) -> str:
        for pattern in patterns:
            text = pattern.sub(REDACTED, text)
        return text

    return without_matches


def _pattern(one: object) -> re.Pattern[str]:
    if isinstance(one, re.Pattern) and isinstance(one.pattern, str):
        return one
    if not isinstance(one, str):
        raise ConfigurationError("redact", one, "a regular expression for texts")
    try:
        return re.compile(one)
    except re.error as error:
        raise ConfigurationError("redact", one, f"a regular expression: {error}") from None


def is_redacting() -> bool:
    """Return whether texts are redacted in this process."""
    return _redactor is not None


def redacted(text: str) -> str:
    """Return a text as spans, log records and traces show it: redacted as `set_redaction` was told.

    Without redaction, the text is returned unchanged. If the function that was given fails on the text, the
    result is `[redacted]`. A tracer that you write can use it.
    """
    return text if _redactor is None else _redactor(text)


def redacted_error(error: BaseException) -> str:
    """Return the class and the message of an exception, as spans show them."""
    return redacted(error_summary(error))


def redacted_attributes(attributes: dict[str, AttributeValue]) -> dict[str, AttributeValue]:
    """Return attributes as spans and metrics show them. Amounts of money stay exact."""
    if _redactor is None:
        return attributes
    return {
        name: value if name in AMOUNTS else _redacted_attribute(value) for name, value in attributes.items()
    }


def _redacted_attribute(value: AttributeValue) -> AttributeValue:
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, bool | int | float):
        return value
    return tuple(redacted(one) for one in value if isinstance(one, str)) or value


def redacted_json(value: JsonValue) -> JsonValue:
    """Return a value of JSON with all its texts redacted, keys of objects included.

    Keys that would be the same then are numbered: `[redacted]`, `[redacted] 2`.
    """
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, list | tuple):
        return [redacted_json(one) for one in value]
    if not isinstance(value, dict):
        return value
    shown: dict[str, JsonValue] = {}
    for key, one in value.items():
        name, number = redacted(key), 1
        while (free := name if number == 1 else f"{name} {number}") in shown:
            number += 1
        shown[free] = redacted_json(one)
    return shown


# --- log records ---


def _in_records(record: logging.LogRecord) -> bool:
    """Redact a log record before any handler sees it. This is a filter of loggers."""
    if _redactor is None:
        return True
    record.msg, record.args = _redacted_message(record), None
    if record.exc_info:
        # Handlers that read exceptions themselves would show them as they are.
        record.exc_text = redacted(logging.Formatter().formatException(record.exc_info))
        record.exc_info = None
    if record.stack_info:
        record.stack_info = redacted(record.stack_info)
    for name in record.__dict__.keys() - _OF_EVERY_RECORD:
        record.__dict__[name] = _redacted_extra(record.__dict__[name])
    return True


def _redacted_message(record: logging.LogRecord) -> str:
    try:
        message = record.getMessage()
    except Exception:  # arguments that do not fit; a handler would print them
        return REDACTED
    return redacted(message)


def _redacted_extra(value: object) -> object:
    """Return a value of `extra=` redacted. Handlers write values of any kind."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {redacted(str(key)): _redacted_extra(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_redacted_extra(one) for one in value]
    try:
        return redacted(str(value))
    except Exception:  # raised by a user's `__str__`
        return REDACTED
