"""The interface of tracers: three methods, so that any object can be a tracer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias, runtime_checkable

AttributeValue: TypeAlias = (
    str | bool | int | float | Sequence[str] | Sequence[bool] | Sequence[int] | Sequence[float]
)
"""The values that an attribute can have, as in OpenTelemetry."""

Attributes: TypeAlias = Mapping[str, AttributeValue]
"""Attributes by name; the names are in `fastroai.tracing.attributes`."""


@runtime_checkable
class Tracer(Protocol):
    """Records spans of pipelines, steps, agents and requests: `PipelineConfig(tracer=...)`.

    `SimpleTracer`, `OpenTelemetryTracer` and `LogfireTracer` are tracers. Write your own by giving a class
    these three methods; no base class is needed. A span lets exceptions pass through it unchanged.
    """

    def span(self, name: str, **attributes: AttributeValue) -> AbstractAsyncContextManager[str]:
        """Return an async context manager: a span that lasts as long as its `async with` block.

        It yields the id of its trace, which it shares with the span that is open around it. An empty id means
        that nothing is recorded, so you can skip collecting attributes. Open and close a span in the same
        task.
        """
        ...

    def log_metric(self, trace_id: str, name: str, value: AttributeValue) -> None:
        """Set a value on the innermost span of this trace that is open where this is called.

        FastroAI's tracers drop the value if no such span is open.
        """
        ...

    def log_error(
        self, trace_id: str, error: BaseException, context: Mapping[str, AttributeValue] | None = None
    ) -> None:
        """Note an error on the innermost span of this trace that is open where this is called.

        Use it for errors that you handle, or to add `context` before raising. It does not give the span the
        status of an error: an exception that leaves the span does. FastroAI's tracers drop the error if no
        such span is open.
        """
        ...


def log_metrics(tracer: Tracer, trace_id: str, values: Attributes) -> None:
    """Call `log_metric` for each of several values."""
    for name, value in values.items():
        tracer.log_metric(trace_id, name, value)
