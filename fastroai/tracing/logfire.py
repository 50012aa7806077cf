"""Spans for Pydantic Logfire."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, cast

from opentelemetry import trace

from fastroai.errors import MissingExtraError
from fastroai.tracing._spans import SpanTracer
from fastroai.tracing.opentelemetry import OpenTelemetrySpan, span_id_of, trace_id_of
from fastroai.tracing.protocol import AttributeValue

if TYPE_CHECKING:
    from logfire import Logfire


class LogfireTracer(SpanTracer):
    """A `Tracer` that sends spans to Pydantic Logfire. Call `logfire.configure()` first.

    Args:
        instance: The Logfire instance to use, as `logfire.configure(local=True)` returns it; by default, the
            global instance.

    An exception that leaves a span gives it status `ERROR`, and is recorded once, on the innermost span.
    Cancellation is not an error: it sets the attribute `fastroai.cancelled`.

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
        """Return an async context manager: a Logfire span, under the one that is open around it.

        It yields the trace id that Logfire shows, 32 hexadecimal digits. The name and the attributes are
        redacted as `set_redaction` says.
        """
        return _Span(self, self._logfire, name, attributes)


class _Span(OpenTelemetrySpan):
    def __init__(
        self, owner: object, logfire: Logfire, name: str, attributes: dict[str, AttributeValue]
    ) -> None:
        super().__init__(owner, name, attributes)
        self._logfire = logfire

    def start(self) -> str:
        # The name is text, not a template; and attributes set here can have any name, `_tags` included.
        template = self._name.replace("{", "{{").replace("}", "}}")
        self._logfire_span = self._logfire.span(template, _span_name=self._name, _span_kind=self._kind)
        self._logfire_span.set_attributes(dict(self._attributes))
        self._logfire_span.__enter__()
        # A LogfireSpan is an OpenTelemetry span too, though its type does not say so. Its level follows
        # from the status.
        self._span = cast("trace.Span", self._logfire_span)
        span = trace.get_current_span()
        self.span_id = span_id_of(span)
        return trace_id_of(span)

    def end(self) -> None:
        self._logfire_span.__exit__(None, None, None)
