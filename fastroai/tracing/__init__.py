"""Spans around pipelines, steps, agents and requests, for the backend of your choice.

`SimpleTracer` writes to the log, `OpenTelemetryTracer` and `LogfireTracer` to their backends, `NoOpTracer`
nowhere; anything with the three methods of `Tracer` will do. `fastroai.tracing.attributes` has the names.
`set_redaction` keeps secrets out of spans, log records and traces.
"""

from fastroai.tracing.handle import TraceSpan
from fastroai.tracing.logfire import LogfireTracer
from fastroai.tracing.noop import NoOpTracer
from fastroai.tracing.opentelemetry import OpenTelemetryTracer
from fastroai.tracing.protocol import Attributes, AttributeValue, Tracer, log_metrics
from fastroai.tracing.redaction import Redact, redacted, set_redaction
from fastroai.tracing.simple import SimpleTracer

__all__ = [
    "AttributeValue",
    "Attributes",
    "LogfireTracer",
    "NoOpTracer",
    "OpenTelemetryTracer",
    "Redact",
    "SimpleTracer",
    "TraceSpan",
    "Tracer",
    "log_metrics",
    "redacted",
    "set_redaction",
]
