"""Handles of spans, by which results say where they are in a trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from fastroai.tracing._spans import open_span
from fastroai.tracing.protocol import Tracer


@dataclass(slots=True)
class TraceSpan:
    """The ids and times of a span that a tracer has made, to find the span in the tracer's backend.

    `trace_id` is shared by all spans of one trace. The times are in UTC, by FastroAI's clock.
    """

    name: str
    trace_id: str
    span_id: str | None
    """The id of the span itself; `None` if the tracer does not tell it: only FastroAI's tracers do."""
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    ended_at: datetime | None = None
    """Time when the span ended; `None` while it is open."""


def handle_of(tracer: Tracer, trace_id: str, name: str) -> TraceSpan | None:
    """Return the handle of the span that a tracer has just opened; `None` if it records nothing."""
    if not trace_id:
        return None
    opened = open_span(tracer, trace_id)
    return TraceSpan(name, trace_id, None if opened is None else opened.span_id or None)
