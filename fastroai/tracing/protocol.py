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
    """Records spans. Write your own by giving a class these three methods; no base class is needed.

    A span lets exceptions pass through it unchanged.
    """

    def span(self, name: str, **attributes: AttributeValue) -> AbstractAsyncContextManager[str]:
        """Return a span for the time inside `async with`, under the span that is open around it.

        Yields the id of its trace, which all spans of one trace share. An empty id means that nothing is
        recorded, so you can skip collecting attributes. Open and close a span in the same task.
        """
        ...

    def log_metric(self, trace_id: str, name: str, value: AttributeValue) -> None:
        """Set a value on the innermost span of this trace that is open where this is called."""
        ...

    def log_error(
        self, trace_id: str, error: BaseException, context: Mapping[str, AttributeValue] | None = None
    ) -> None:
        """Note an error on the innermost span of this trace that is open where this is called.

        Use it for errors that you handle, or to add `context` before raising. It does not fail the span:
        an exception that leaves it does.
        """
        ...


def log_metrics(tracer: Tracer, trace_id: str, values: Attributes) -> None:
    """Call `log_metric` for each of several values."""
    for name, value in values.items():
        tracer.log_metric(trace_id, name, value)
