"""Spans as lines of the standard log."""

from __future__ import annotations

import logging
import time
import uuid
from contextlib import AbstractAsyncContextManager

from fastroai.tracing._spans import OpenSpan, SpanTracer, open_span
from fastroai.tracing.protocol import Attributes, AttributeValue
from fastroai.tracing.redaction import redacted_error

_LONGEST_VALUE = 200
"""The most characters of a value that are shown; prompts can be long, lines should not be."""


class SimpleTracer(SpanTracer):
    """Writes a line where a span starts and one where it ends, indented by depth, to the standard log.

    The end line has the status (`ok`, `error`, `cancelled`), the duration and the values that were set
    meanwhile. Lines start with the first digits of the trace id, to tell concurrent runs apart. An error
    is one line at level ERROR, where it happened.

    Args:
        logger: The logger to write to; `logging.getLogger("fastroai.tracing")` if not given.
        level: The level of all lines but errors. To see INFO, call `logging.basicConfig(level="INFO")`.
    """

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self.logger = logging.getLogger("fastroai.tracing") if logger is None else logger
        self.level = level

    def span(self, name: str, **attributes: AttributeValue) -> AbstractAsyncContextManager[str]:
        """Return a span. Its trace id is that of the span around it, or random: 32 hexadecimal digits."""
        return _Span(self, name, attributes)


class _Span(OpenSpan):
    def __init__(self, owner: SimpleTracer, name: str, attributes: dict[str, AttributeValue]) -> None:
        super().__init__(owner, name, attributes)
        self._owner = owner
        self._depth = 0
        self._values: dict[str, AttributeValue] = {}
        self._status, self._reason = "ok", ""
        self._level = owner.level

    def start(self) -> str:
        around = open_span(self._owner)
        self.trace_id = uuid.uuid4().hex
        if isinstance(around, _Span):
            self.trace_id, self._depth = around.trace_id, around._depth + 1
        self.span_id = uuid.uuid4().hex[:16]
        self._write(self._owner.level, "started", self._attributes)
        self._started = time.perf_counter()
        return self.trace_id

    def set_value(self, name: str, value: AttributeValue) -> None:
        self._values[name] = value

    def note_error(self, error: BaseException, context: Attributes) -> None:
        self._write(logging.ERROR, f"error: {_shown(redacted_error(error))}", context)

    def mark_failed(self, error: BaseException, *, is_new: bool) -> None:
        self._status = "error"
        self._reason = f": {_shown(redacted_error(error) if is_new else type(error).__name__)}"
        if is_new:
            self._level = logging.ERROR

    def mark_cancelled(self) -> None:
        self._status = "cancelled"

    def end(self) -> None:
        took = _duration(time.perf_counter() - self._started)
        self._write(self._level, f"{self._status} after {took}{self._reason}", self._values)

    def _write(self, level: int, what: str, attributes: Attributes) -> None:
        logger = self._owner.logger
        if logger.isEnabledFor(level):
            values = "".join(f" {name}={_shown(repr(value))}" for name, value in attributes.items())
            indent = "  " * self._depth
            logger.log(level, "[%s] %s%s: %s%s", self.trace_id[:8], indent, self._name, what, values)


def _shown(text: str) -> str:
    """Return a text on one line, cut to the length that a line should have."""
    line = text.replace("\r", "\\r").replace("\n", "\\n")
    return line if len(line) <= _LONGEST_VALUE else f"{line[:_LONGEST_VALUE]}..."


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"
