"""A tracer that records nothing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

from fastroai.tracing.protocol import AttributeValue


class _NoSpan:
    """A span that does nothing, any number of times, nested or at once; so one object is enough."""

    __slots__ = ()

    async def __aenter__(self) -> str:
        return ""

    async def __aexit__(self, *error: object) -> None:
        return None


_NO_SPAN = _NoSpan()


class NoOpTracer:
    """A `Tracer` that records nothing, to switch tracing off. The trace id of its spans is `""`."""

    __slots__ = ()

    def span(self, name: str, **attributes: AttributeValue) -> AbstractAsyncContextManager[str]:
        """Return an async context manager that does nothing and yields the trace id `""`."""
        return _NO_SPAN

    def log_metric(self, trace_id: str, name: str, value: AttributeValue) -> None:
        """Do nothing: the value is not recorded."""

    def log_error(
        self, trace_id: str, error: BaseException, context: Mapping[str, AttributeValue] | None = None
    ) -> None:
        """Do nothing: the error is not recorded."""
