"""Spans around pipelines, steps, agents and requests, for the backend of your choice.

`SimpleTracer` writes to the log, `OpenTelemetryTracer` and `LogfireTracer` to their backends, `NoOpTracer`
nowhere; anything with the three methods of `Tracer` will do. `fastroai.tracing.attributes` has the names.
`set_redaction` keeps secrets out of spans, log records and traces.
"""

from fastroai.tracing.handle import TraceSpan
from fastroai.tracing.logfire import LogfireTracer
from fastroai.tracing.noop import NoOpTracer
from fastroai.tracing.opentelemetry import OpenTelemetryTracer
from fastroai.tracing.protocol import Attributes as Attributes
from fastroai.tracing.protocol import AttributeValue as AttributeValue
from fastroai.tracing.protocol import Tracer
from fastroai.tracing.protocol import log_metrics as log_metrics
from fastroai.tracing.redaction import Redact as Redact
from fastroai.tracing.redaction import redacted, set_redaction
from fastroai.tracing.simple import SimpleTracer

__all__ = [
    "LogfireTracer",
    "NoOpTracer",
    "OpenTelemetryTracer",
    "SimpleTracer",
    "TraceSpan",
    "Tracer",
    "redacted",
    "set_redaction",
]
