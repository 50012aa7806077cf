"""The span of a scope."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from fastroai.runtime.scope import Scope
from fastroai.tracing import Attributes, Tracer, attributes, log_metrics
from fastroai.tracing.handle import handle_of


@asynccontextmanager
async def span_of(scope: Scope, tracer: Tracer, name: str, described: Attributes) -> AsyncGenerator[None]:
    """Open the span of a scope, with these attributes. It gets the usage of the scope at its end."""
    try:
        async with tracer.span(name, **described) as trace_id:
            scope.span = handle_of(tracer, trace_id, name)
            try:
                yield
            finally:
                log_metrics(tracer, trace_id, attributes.usage_attributes(scope.spent()))
    finally:
        if scope.span is not None:
            scope.span.ended_at = datetime.now(UTC)
