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
    """A `Tracer` that writes spans to the standard log: a line at the start and a line at the end of each.

    Lines are indented by depth. The line at the start has the attributes of the span. The line at the end has
    the status (`ok`, `error`, `cancelled`), the duration and the values that were set with `log_metric`.
    Lines start with the first 8 digits of the trace id, to tell concurrent runs apart. If an exception leaves
    several spans, the end of the innermost one has level ERROR and its message. `log_error` writes a line at
    level ERROR at once. Values of more than 200 characters are cut.

    Args:
        logger: The logger to write to; by default `logging.getLogger("fastroai.tracing")`.
        level: The level of all lines but errors, by default INFO. To see them, call
            `logging.basicConfig(level="INFO")`.
    """

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self.logger = logging.getLogger("fastroai.tracing") if logger is None else logger
        self.level = level

    def span(self, name: str, **attributes: AttributeValue) -> AbstractAsyncContextManager[str]:
        """Return an async context manager: a span that logs a line at its start and one at its end.

        It yields the trace id, 32 hexadecimal digits: that of the span of this tracer around it, or a random
        one. The name and the attributes are redacted as `set_redaction` says.
        """
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
