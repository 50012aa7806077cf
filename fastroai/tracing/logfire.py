"""Spans for Pydantic Logfire."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, cast

from opentelemetry import trace

from fastroai.errors import MissingExtraError
from fastroai.tracing import attributes as names
from fastroai.tracing._spans import OpenSpan, SpanTracer
from fastroai.tracing.opentelemetry import trace_id_of
from fastroai.tracing.protocol import Attributes, AttributeValue

if TYPE_CHECKING:
    from logfire import Logfire, LogfireSpan


class LogfireTracer(SpanTracer):
    """Records spans with Logfire, which `logfire.configure()` sets up; call it first.

    Args:
        instance: The Logfire instance to use, as `logfire.configure(local=True)` returns it; the default
            one if not given.

    Exceptions and cancellation are recorded as by `OpenTelemetryTracer`.

    Raises:
        MissingExtraError: logfire is not installed (the extra `logfire`).
    """

    def __init__(self, instance: Logfire | None = None) -> None:
        try:
            from logfire import DEFAULT_LOGFIRE_INSTANCE
        except ImportError as error:
            raise MissingExtraError("LogfireTracer", "logfire", "logfire") from error
        self._logfire = (instance or DEFAULT_LOGFIRE_INSTANCE).with_settings(custom_scope_suffix="fastroai")

    def span(self, name: str, **attributes: AttributeValue) -> AbstractAsyncContextManager[str]:
        """A span; its trace id is the one that Logfire shows, 32 hexadecimal digits."""
        return _Span(self, self._logfire, name, attributes)


class _Span(OpenSpan):
    def __init__(self, owner: object, logfire: Logfire, name: str, attributes: Attributes) -> None:
        super().__init__(owner)
        self._logfire, self._name, self._attributes = logfire, name, attributes

    def start(self) -> str:
        # The name is text, not a template; and attributes set here can have any name, `_tags` included.
        template = self._name.replace("{", "{{").replace("}", "}}")
        kind = trace.SpanKind.CLIENT if names.is_client_span(self._attributes) else trace.SpanKind.INTERNAL
        self._span: LogfireSpan = self._logfire.span(template, _span_name=self._name, _span_kind=kind)
        self._span.set_attributes(dict(self._attributes))
        self._span.__enter__()
        return trace_id_of(trace.get_current_span())

    def set_value(self, name: str, value: AttributeValue) -> None:
        self._span.set_attribute(name, value)

    def note_error(self, error: BaseException, context: Attributes) -> None:
        self._span.record_exception(error, attributes=context)

    def mark_failed(self, error: BaseException, *, is_new: bool) -> None:
        if is_new:
            self._span.record_exception(error, escaped=True)
        self._span.set_attribute(names.ERROR_TYPE, names.error_type(error))
        # A LogfireSpan is an OpenTelemetry span too, though its type does not say so. Its level follows
        # from the status.
        cast("trace.Span", self._span).set_status(trace.StatusCode.ERROR, names.error_summary(error))

    def mark_cancelled(self) -> None:
        self._span.set_attribute(names.CANCELLED, True)

    def end(self) -> None:
        self._span.__exit__(None, None, None)
