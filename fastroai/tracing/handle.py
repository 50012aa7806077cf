"""Handles of spans, by which results say where they are in a trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from fastroai.tracing._spans import open_span
from fastroai.tracing.protocol import Tracer


@dataclass(slots=True)
class TraceSpan:
    """A span that a tracer has made, to find it in the backend of the tracer, or to link to it."""

    name: str
    trace_id: str
    span_id: str | None
    """The id of the span itself; `None` if the tracer does not tell, as one of your own does not."""
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    ended_at: datetime | None = None
    """`None` while the span is open."""


def handle_of(tracer: Tracer, trace_id: str, name: str) -> TraceSpan | None:
    """Return the handle of the span that a tracer has just opened; `None` if it records nothing."""
    if not trace_id:
        return None
    opened = open_span(tracer, trace_id)
    return TraceSpan(name, trace_id, None if opened is None else opened.span_id or None)
