"""The protocol, the tracer that does nothing, and tracers of users."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from fastroai.tracing import (
    AttributeValue,
    LogfireTracer,
    NoOpTracer,
    OpenTelemetryTracer,
    SimpleTracer,
    Tracer,
    log_metrics,
)


class ListTracer:
    """A tracer as a user would write it, without a base class."""

    def __init__(self) -> None:
        self.log: list[object] = []

    @asynccontextmanager
    async def _span(self, name: str) -> AsyncIterator[str]:
        self.log.append(name)
        yield "t1"

    def span(self, name: str, **attributes: AttributeValue) -> AbstractAsyncContextManager[str]:
        return self._span(name)

    def log_metric(self, trace_id: str, name: str, value: AttributeValue) -> None:
        self.log.append((trace_id, name, value))

    def log_error(
        self, trace_id: str, error: BaseException, context: Mapping[str, AttributeValue] | None = None
    ) -> None:
        self.log.append(error)


async def test_any_object_with_the_three_methods_is_a_tracer() -> None:
    tracer: Tracer = ListTracer()
    assert isinstance(tracer, Tracer)
    async with tracer.span("step s") as trace_id:
        log_metrics(tracer, trace_id, {"a": 1, "b": "two"})

    assert isinstance(tracer, ListTracer)
    assert tracer.log == ["step s", ("t1", "a", 1), ("t1", "b", "two")]


def test_the_tracers_of_the_library_are_tracers_and_other_objects_are_not() -> None:
    for tracer in (NoOpTracer(), SimpleTracer(), OpenTelemetryTracer(), LogfireTracer()):
        assert isinstance(tracer, Tracer)
    assert not isinstance(object(), Tracer)


async def test_the_no_op_tracer_records_nothing_and_lets_exceptions_pass() -> None:
    tracer = NoOpTracer()
    error = ValueError("boom")
    async with tracer.span("pipeline p", run="r") as outer, tracer.span("step s") as inner:
        tracer.log_metric(outer, "cost", 1.0)
        tracer.log_error(inner, error)
    with pytest.raises(ValueError, match="boom") as raised:
        async with tracer.span("step t"):
            raise error

    assert raised.value is error
    assert outer == inner == ""
    assert error.__dict__ == {}


def test_the_no_op_tracer_makes_no_span_objects() -> None:
    assert NoOpTracer().span("a") is NoOpTracer().span("b", c=1)
