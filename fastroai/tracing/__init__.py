"""Spans around pipelines, steps, agents and requests, for the backend of your choice.

`SimpleTracer` writes to the log, `OpenTelemetryTracer` and `LogfireTracer` to their backends, `NoOpTracer`
nowhere; anything with the three methods of `Tracer` will do. `fastroai.tracing.attributes` has the names.
`set_redaction` keeps secrets out of spans, log records and traces.

Each name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names

if TYPE_CHECKING:
    from fastroai.tracing.handle import TraceSpan as TraceSpan
    from fastroai.tracing.logfire import LogfireTracer as LogfireTracer
    from fastroai.tracing.noop import NoOpTracer as NoOpTracer
    from fastroai.tracing.opentelemetry import OpenTelemetryTracer as OpenTelemetryTracer
    from fastroai.tracing.protocol import Attributes as Attributes
    from fastroai.tracing.protocol import AttributeValue as AttributeValue
    from fastroai.tracing.protocol import Tracer as Tracer
    from fastroai.tracing.protocol import log_metrics as log_metrics
    from fastroai.tracing.redaction import Redact as Redact
    from fastroai.tracing.redaction import redacted as redacted
    from fastroai.tracing.redaction import set_redaction as set_redaction
    from fastroai.tracing.simple import SimpleTracer as SimpleTracer
else:  # a type checker would take any name, if it saw `__getattr__`
    lazy_names(__name__, unlisted=["AttributeValue", "Attributes", "Redact", "log_metrics"])
