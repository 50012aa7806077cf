"""The open spans: one chain for each task and thread, shared by all tracers.

The chain hangs on a `ContextVar`, so it branches where tasks start and follows into worker threads.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from types import TracebackType

from fastroai.tracing.protocol import Attributes, AttributeValue
from fastroai.tracing.redaction import redacted, redacted_attributes

_logger = logging.getLogger("fastroai.tracing")

_TRACED_ATTRIBUTE = "__fastroai_traced__"


class OpenSpan(ABC):
    """One span, from `async with` to its end. A subclass implements it for its backend.

    A subclass gets names and values redacted; it must redact the errors that it shows.
    """

    trace_id: str = ""
    span_id: str = ""

    def __init__(self, tracer: object, name: str, attributes: dict[str, AttributeValue]) -> None:
        self._tracer = tracer
        self._name, self._attributes = redacted(name), redacted_attributes(attributes)
        self._around: OpenSpan | None = None
        self._is_open = False

    async def __aenter__(self) -> str:
        self._around = next(_open_spans(), None)
        self.trace_id = self.start()
        self._is_open = True
        _innermost.set(self)
        return self.trace_id

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_open = False
        # Not a token's reset, which raises in another context: that is where an abandoned generator ends.
        if _innermost.get() is self:
            _innermost.set(self._around)
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            self.mark_cancelled()
        elif error is not None:
            self.mark_failed(error, is_new=first_seen(error, self.trace_id))
        self.end()

    @abstractmethod
    def start(self) -> str:
        """Start the span and return the id of its trace."""

    @abstractmethod
    def set_value(self, name: str, value: AttributeValue) -> None:
        """Set an attribute."""

    @abstractmethod
    def note_error(self, error: BaseException, context: Attributes) -> None:
        """Record an error without failing the span."""

    @abstractmethod
    def mark_failed(self, error: BaseException, *, is_new: bool) -> None:
        """Fail the span; record the error too if it `is_new` to the trace."""

    @abstractmethod
    def mark_cancelled(self) -> None:
        """Say that the span was left by cancellation, which is not a failure."""

    @abstractmethod
    def end(self) -> None:
        """End the span."""


_innermost: ContextVar[OpenSpan | None] = ContextVar("fastroai_innermost_span", default=None)


class SpanTracer:
    """The part of a tracer that finds the span to write on."""

    def log_metric(self, trace_id: str, name: str, value: AttributeValue) -> None:
        """Set a value on the innermost span of this trace that is open here; dropped if none is."""
        span = open_span(self, trace_id)
        if span is None:
            _logger.debug("no span of trace %s is open here: %s was dropped", trace_id, name)
        else:
            span.set_value(name, redacted_attributes({name: value})[name])

    def log_error(
        self, trace_id: str, error: BaseException, context: Mapping[str, AttributeValue] | None = None
    ) -> None:
        """Note an error on the innermost span of this trace that is open here; dropped if none is."""
        span = open_span(self, trace_id)
        if span is None:
            shown = redacted(repr(error))
            _logger.debug("no span of trace %s is open here: %s was dropped", trace_id, shown)
        else:
            mark_seen(error, trace_id)
            span.note_error(error, redacted_attributes(dict(context or {})))


def open_span(tracer: object, trace_id: str | None = None) -> OpenSpan | None:
    """Return the innermost span of a tracer that is open here, of the trace `trace_id` if that is given."""
    for span in _open_spans():
        if span._tracer is tracer and trace_id in (None, span.trace_id):
            return span
    return None


def _open_spans() -> Iterator[OpenSpan]:
    """Yield the open spans, innermost first. Some may be closed, as a task can outlive the span around it."""
    span = _innermost.get()
    while span is not None:
        if span._is_open:
            yield span
        span = span._around


def first_seen(error: BaseException, trace_id: str) -> bool:
    """Return whether this trace has not recorded the exception yet, and note that it has now.

    An exception passes through every span around it. Recorded at each, one failure would look like many.
    """
    is_new = error.__dict__.get(_TRACED_ATTRIBUTE) != trace_id
    mark_seen(error, trace_id)
    return is_new


def mark_seen(error: BaseException, trace_id: str) -> None:
    """Note on an exception that this trace has recorded it."""
    error.__dict__[_TRACED_ATTRIBUTE] = trace_id
