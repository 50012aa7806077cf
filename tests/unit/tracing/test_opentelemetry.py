import asyncio
from collections.abc import AsyncGenerator, Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracerProvider, StatusCode
from support.agents import paid_agent

from fastroai.tracing import OpenTelemetryTracer
from fastroai.tracing import attributes as names


class Recorded:
    """A tracer on a real SDK, and what it exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = OpenTelemetryTracer(self.provider)

    def span(self, name: str) -> ReadableSpan:
        [span] = [span for span in self.exporter.get_finished_spans() if span.name == name]
        return span

    def parent_of(self, name: str) -> str | None:
        parent = self.span(name).parent
        if parent is None:
            return None
        by_id = {span.context.span_id: span.name for span in self.exporter.get_finished_spans()}
        return by_id[parent.span_id]


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    recorded = Recorded()
    yield recorded
    recorded.provider.shutdown()


async def test_spans_nest_from_pipeline_to_request_in_one_trace(recorded: Recorded) -> None:
    tracer = recorded.tracer
    async with (
        tracer.span("pipeline research") as outermost,
        tracer.span("step write"),
        tracer.span("invoke_agent writer"),
        tracer.span("chat gpt-5-mini") as innermost,
    ):
        pass

    assert recorded.parent_of("chat gpt-5-mini") == "invoke_agent writer"
    assert recorded.parent_of("invoke_agent writer") == "step write"
    assert recorded.parent_of("step write") == "pipeline research"
    assert recorded.parent_of("pipeline research") is None
    assert outermost == innermost == f"{recorded.span('step write').context.trace_id:032x}"


async def test_a_response_has_the_ids_of_its_span(recorded: Recorded) -> None:
    response = await paid_agent().run("one", tracer=recorded.tracer)

    context = recorded.span("invoke_agent agent").context
    assert response.trace_span is not None
    assert response.trace_span.trace_id == f"{context.trace_id:032x}"
    assert response.trace_span.span_id == f"{context.span_id:016x}"


async def test_parallel_tasks_nest_under_the_span_they_started_in_and_not_in_each_other(
    recorded: Recorded,
) -> None:
    everyone_is_in = asyncio.Barrier(3)

    async def step(name: str) -> None:
        async with recorded.tracer.span(f"step {name}"):
            await everyone_is_in.wait()
            async with recorded.tracer.span(f"chat {name}"):
                await everyone_is_in.wait()

    async with recorded.tracer.span("pipeline p"), asyncio.TaskGroup() as tasks:
        for name in "abc":
            tasks.create_task(step(name))

    assert [recorded.parent_of(f"step {name}") for name in "abc"] == ["pipeline p"] * 3
    assert [recorded.parent_of(f"chat {name}") for name in "abc"] == ["step a", "step b", "step c"]


async def test_spans_in_worker_threads_nest_under_the_span_that_started_them(recorded: Recorded) -> None:
    async def inside() -> str:
        async with recorded.tracer.span("chat m") as trace_id:
            return trace_id

    async with recorded.tracer.span("step s") as trace_id:
        in_thread = await asyncio.to_thread(asyncio.run, inside())

    assert in_thread == trace_id
    assert recorded.parent_of("chat m") == "step s"


async def test_a_span_carries_the_attributes_it_is_opened_with(recorded: Recorded) -> None:
    async with recorded.tracer.span("chat m", **{names.REQUEST_MODEL: "m"}, streamed=True, parts=["a", "b"]):
        pass

    assert dict(recorded.span("chat m").attributes or {}) == {
        "gen_ai.request.model": "m",
        "streamed": True,
        "parts": ("a", "b"),
    }


async def test_a_metric_lands_on_the_innermost_open_span_of_its_trace(recorded: Recorded) -> None:
    tracer = recorded.tracer
    async with tracer.span("step s") as trace_id:
        async with tracer.span("chat m"):
            tracer.log_metric(trace_id, "cost", 0.5)
        tracer.log_metric(trace_id, "cost", 0.75)

    assert recorded.span("chat m").attributes == {"cost": 0.5}
    assert recorded.span("step s").attributes == {"cost": 0.75}


async def test_a_metric_after_the_span_has_ended_goes_to_the_span_around_it(recorded: Recorded) -> None:
    tracer, child_ended = recorded.tracer, asyncio.Event()

    async def late(trace_id: str) -> None:
        await child_ended.wait()
        tracer.log_metric(trace_id, "late", True)

    async with tracer.span("step s") as trace_id:
        async with tracer.span("chat m"):
            task = asyncio.create_task(late(trace_id))
        child_ended.set()
        await task

    assert recorded.span("chat m").attributes == {}
    assert recorded.span("step s").attributes == {"late": True}


async def test_a_metric_of_another_trace_is_dropped_with_a_debug_line(
    recorded: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG", "fastroai.tracing"):
        async with recorded.tracer.span("step s"):
            recorded.tracer.log_metric("f" * 32, "cost", 1.0)
            recorded.tracer.log_error("f" * 32, ValueError("lost"))

    assert recorded.span("step s").attributes == {}
    assert [record.getMessage() for record in caplog.records] == [
        f"no span of trace {'f' * 32} is open here: cost was dropped",
        f"no span of trace {'f' * 32} is open here: ValueError('lost') was dropped",
    ]


async def test_two_tracers_do_not_write_on_each_others_spans(recorded: Recorded) -> None:
    other = Recorded()
    async with recorded.tracer.span("mine") as mine, other.tracer.span("theirs") as theirs:
        recorded.tracer.log_metric(mine, "value", 1)
        other.tracer.log_metric(theirs, "value", 2)

    assert recorded.span("mine").attributes == {"value": 1}
    assert other.span("theirs").attributes == {"value": 2}


async def test_an_exception_fails_every_span_it_leaves_and_is_recorded_once(recorded: Recorded) -> None:
    error = LookupError("no such city")
    with pytest.raises(LookupError) as raised:
        async with recorded.tracer.span("pipeline p"), recorded.tracer.span("step s"):
            raise error

    assert raised.value is error
    for name in ("pipeline p", "step s"):
        span = recorded.span(name)
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description == "LookupError: no such city"
        assert span.attributes == {"error.type": "LookupError"}
    [event] = recorded.span("step s").events
    assert event.attributes is not None
    assert event.attributes["exception.message"] == "no such city"
    assert recorded.span("pipeline p").events == ()


async def test_an_exception_raised_again_in_another_trace_is_recorded_there_too(recorded: Recorded) -> None:
    error = ValueError("twice")
    for name in ("first", "second"):
        with pytest.raises(ValueError, match="twice"):
            async with recorded.tracer.span(name):
                raise error

    assert len(recorded.span("first").events) == len(recorded.span("second").events) == 1


async def test_log_error_notes_a_handled_error_without_failing_the_span(recorded: Recorded) -> None:
    async with recorded.tracer.span("step s") as trace_id:
        recorded.tracer.log_error(trace_id, ValueError("first try"), {names.ATTEMPT: 1})

    span = recorded.span("step s")
    assert span.status.status_code is StatusCode.UNSET
    [event] = span.events
    assert event.attributes is not None
    assert event.attributes["fastroai.attempt"] == 1
    assert event.attributes["exception.type"] == "ValueError"


async def test_an_error_that_was_logged_is_not_recorded_again_when_it_leaves(recorded: Recorded) -> None:
    async def step() -> None:
        async with recorded.tracer.span("step s") as trace_id:
            error = ValueError("boom")
            recorded.tracer.log_error(trace_id, error)
            raise error

    with pytest.raises(ValueError, match="boom"):
        await step()

    assert len(recorded.span("step s").events) == 1
    assert recorded.span("step s").status.status_code is StatusCode.ERROR


async def test_a_cancelled_span_says_so_and_is_no_error(recorded: Recorded) -> None:
    opened = asyncio.Event()

    async def work() -> None:
        async with recorded.tracer.span("chat m"):
            opened.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await opened.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    span = recorded.span("chat m")
    assert span.status.status_code is StatusCode.UNSET
    assert span.attributes == {"fastroai.cancelled": True}
    assert span.events == ()


async def test_a_span_abandoned_in_a_generator_ends_when_the_generator_is_closed_elsewhere(
    recorded: Recorded,
) -> None:
    async def chunks() -> AsyncGenerator[str, None]:
        async with recorded.tracer.span("chat m"):
            yield "a"

    stream = chunks()

    async def first() -> str:
        return await anext(stream)

    assert await asyncio.create_task(first()) == "a"
    async with recorded.tracer.span("step s") as trace_id:
        await stream.aclose()
        recorded.tracer.log_metric(trace_id, "still", "here")
        async with recorded.tracer.span("chat n"):
            pass

    assert recorded.span("chat m").attributes == {"fastroai.cancelled": True}
    assert recorded.span("step s").attributes == {"still": "here"}
    assert recorded.parent_of("chat n") == "step s"


async def test_without_an_sdk_nothing_is_recorded_and_the_trace_id_is_empty() -> None:
    tracer = OpenTelemetryTracer(NoOpTracerProvider())
    async with tracer.span("pipeline p") as trace_id:
        tracer.log_metric(trace_id, "cost", 1.0)
        tracer.log_error(trace_id, ValueError("x"))

    assert trace_id == ""
