"""A tracer that keeps what it is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from fastroai.tracing import AttributeValue


@dataclass
class RecordedSpan:
    """One span, with the names of those around it."""

    name: str
    around: tuple[str, ...]
    attributes: dict[str, AttributeValue]
    error: BaseException | None = None
    ended: bool = False

    @property
    def path(self) -> tuple[str, ...]:
        """Names from the outermost span to this one."""
        return (*self.around, self.name)


@dataclass
class RecordingTracer:
    """Any object with these three methods is a tracer."""

    spans: list[RecordedSpan] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    _innermost: ContextVar[RecordedSpan | None] = field(
        default_factory=lambda: ContextVar("innermost", default=None)
    )

    @asynccontextmanager
    async def span(self, name: str, **attributes: AttributeValue) -> AsyncIterator[str]:
        """Record a span under the one that is open here."""
        around = self._innermost.get()
        span = RecordedSpan(name, around.path if around else (), dict(attributes))
        self.spans.append(span)
        token = self._innermost.set(span)
        try:
            yield "trace-1"
        except BaseException as error:
            span.error = error
            raise
        finally:
            span.ended = True
            self._innermost.reset(token)

    def log_metric(self, trace_id: str, name: str, value: AttributeValue) -> None:
        """Keep it on the innermost span."""
        if (span := self._innermost.get()) is not None:
            span.attributes[name] = value

    def log_error(
        self, trace_id: str, error: BaseException, context: Mapping[str, AttributeValue] | None = None
    ) -> None:
        """Keep it."""
        self.errors.append(error)

    @property
    def paths(self) -> set[tuple[str, ...]]:
        """Where each span is."""
        return {span.path for span in self.spans}
