"""Spans for OpenTelemetry."""

from __future__ import annotations

import logging
from contextlib import AbstractAsyncContextManager

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, StatusCode, TracerProvider

from fastroai.tracing import attributes as names
from fastroai.tracing._spans import OpenSpan, SpanTracer
from fastroai.tracing.protocol import Attributes, AttributeValue
from fastroai.tracing.redaction import is_redacting, redacted, redacted_error


class OpenTelemetryTracer(SpanTracer):
    """A `Tracer` that records spans with OpenTelemetry, under the current OpenTelemetry span.

    Args:
        tracer_provider: The provider that takes the spans; by default, the global one. If no SDK is set up
            (it comes with the extra `otel`), spans are dropped, and the trace id is empty.

    An exception that leaves a span gives it status `ERROR` and `error.type`. It is recorded as an event once,
    on the innermost span. Cancellation leaves the status unset and sets `fastroai.cancelled`: the operation
    was stopped, it did not fail.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._otel_tracer = trace.get_tracer("fastroai", tracer_provider=tracer_provider)

    def span(self, name: str, **attributes: AttributeValue) -> AbstractAsyncContextManager[str]:
        """Return an async context manager: an OpenTelemetry span, under the current one.

        It yields OpenTelemetry's trace id, 32 hexadecimal digits; `""` if no SDK is set up. The name and the
        attributes are redacted as `set_redaction` says.
        """
        return _Span(self, self._otel_tracer, name, attributes)


class OpenTelemetrySpan(OpenSpan):
    """A span that records values and errors as OpenTelemetry does, however it is opened."""

    _span: Span

    def __init__(self, owner: object, name: str, attributes: dict[str, AttributeValue]) -> None:
        super().__init__(owner, name, attributes)
        self._kind = SpanKind.CLIENT if names.is_client_span(attributes) else SpanKind.INTERNAL

    def set_value(self, name: str, value: AttributeValue) -> None:
        """Set an attribute."""
        self._span.set_attribute(name, value)

    def note_error(self, error: BaseException, context: Attributes) -> None:
        """Record an error without failing the span."""
        self._record(error, context)

    def mark_failed(self, error: BaseException, *, is_new: bool) -> None:
        """Fail the span; record the error too if it `is_new` to the trace."""
        if is_new:
            self._record(error, {}, escaped=True)
        self._span.set_attribute(names.ERROR_TYPE, names.error_type(error))
        self._span.set_status(StatusCode.ERROR, redacted_error(error))

    def mark_cancelled(self) -> None:
        """Say that the span was left by cancellation, which is not a failure."""
        self._span.set_attribute(names.CANCELLED, True)

    def _record(self, error: BaseException, context: Attributes, *, escaped: bool = False) -> None:
        if not is_redacting():
            self._span.record_exception(error, attributes=context, escaped=escaped)
            return
        # Logfire's `record_exception` adds the input of a `ValidationError`, in a form of its own.
        traceback = logging.Formatter().formatException((type(error), error, error.__traceback__))
        recorded = {
            names.EXCEPTION_TYPE: names.error_type(error),
            names.EXCEPTION_MESSAGE: redacted(str(error)),
            names.EXCEPTION_STACKTRACE: redacted(traceback),
            names.EXCEPTION_ESCAPED: str(escaped),
        }
        self._span.add_event("exception", {**recorded, **context})


class _Span(OpenTelemetrySpan):
    def __init__(
        self, owner: object, tracer: trace.Tracer, name: str, attributes: dict[str, AttributeValue]
    ) -> None:
        super().__init__(owner, name, attributes)
        self._otel_tracer = tracer

    def start(self) -> str:
        self._span = self._otel_tracer.start_span(self._name, kind=self._kind, attributes=self._attributes)
        self._token = otel_context.attach(trace.set_span_in_context(self._span))
        self.span_id = span_id_of(self._span)
        return trace_id_of(self._span)

    def end(self) -> None:
        otel_context.detach(self._token)
        self._span.end()


def trace_id_of(span: Span) -> str:
    """Return the span's trace id in hexadecimal; empty if it has none."""
    where = span.get_span_context()
    return trace.format_trace_id(where.trace_id) if where.is_valid else ""


def span_id_of(span: Span) -> str:
    """Return the span's own id in hexadecimal; empty if it has none."""
    where = span.get_span_context()
    return trace.format_span_id(where.span_id) if where.is_valid else ""
