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
    """Records nothing. Its trace id is empty."""

    __slots__ = ()

    def span(self, name: str, **attributes: AttributeValue) -> AbstractAsyncContextManager[str]:
        """Return a span that is not recorded. Its trace id is `""`."""
        return _NO_SPAN

    def log_metric(self, trace_id: str, name: str, value: AttributeValue) -> None:
        """Do nothing."""

    def log_error(
        self, trace_id: str, error: BaseException, context: Mapping[str, AttributeValue] | None = None
    ) -> None:
        """Do nothing."""
