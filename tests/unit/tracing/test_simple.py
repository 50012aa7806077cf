import asyncio
import logging
import re

import pytest

from fastroai.tracing import SimpleTracer


@pytest.fixture
def tracer(caplog: pytest.LogCaptureFixture) -> SimpleTracer:
    caplog.set_level(logging.INFO, "test.spans")
    return SimpleTracer(logging.getLogger("test.spans"))


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The log, with trace ids and durations left out."""
    return [
        re.sub(r"\d+(\.\d+)? (ms|s)\b", "TIME", re.sub(r"^\[[0-9a-f]{8}\] ", "", record.getMessage()))
        for record in caplog.records
    ]


async def test_spans_are_indented_lines_with_status_duration_and_values(
    tracer: SimpleTracer, caplog: pytest.LogCaptureFixture
) -> None:
    async with tracer.span("pipeline p", **{"fastroai.run.id": "r1"}) as trace_id, tracer.span("step s"):
        tracer.log_metric(trace_id, "operation.cost", 0.25)

    assert lines(caplog) == [
        "pipeline p: started fastroai.run.id='r1'",
        "  step s: started",
        "  step s: ok after TIME operation.cost=0.25",
        "pipeline p: ok after TIME",
    ]
    assert all(record.levelno == logging.INFO for record in caplog.records)
    assert {record.getMessage()[1:9] for record in caplog.records} == {trace_id[:8]}


async def test_an_error_is_one_line_at_level_error_where_it_happened(
    tracer: SimpleTracer, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ValueError, match="bad"):
        async with tracer.span("pipeline p"), tracer.span("step s"):
            raise ValueError("bad\nvalue")

    assert lines(caplog)[2:] == [
        "  step s: error after TIME: ValueError: bad\\nvalue",
        "pipeline p: error after TIME: ValueError",
    ]
    assert [record.levelname for record in caplog.records[2:]] == ["ERROR", "INFO"]


async def test_a_handled_error_is_noted_with_its_context(
    tracer: SimpleTracer, caplog: pytest.LogCaptureFixture
) -> None:
    async with tracer.span("step s") as trace_id:
        tracer.log_error(trace_id, ValueError("first try"), {"fastroai.attempt": 1})

    assert lines(caplog)[1:] == [
        "step s: error: ValueError: first try fastroai.attempt=1",
        "step s: ok after TIME",
    ]


async def test_a_cancelled_span_says_so(tracer: SimpleTracer, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0), tracer.span("chat m"):
            await asyncio.Event().wait()

    assert lines(caplog)[-1] == "chat m: cancelled after TIME"


async def test_tasks_and_threads_nest_and_separate_runs_have_separate_traces(
    tracer: SimpleTracer, caplog: pytest.LogCaptureFixture
) -> None:
    async def step(name: str) -> str:
        async with tracer.span(f"step {name}") as trace_id:
            await asyncio.sleep(0)
            return trace_id

    async with tracer.span("pipeline p") as trace_id:
        inside = await asyncio.gather(step("a"), step("b"), asyncio.to_thread(asyncio.run, step("c")))
    outside = await step("d")

    assert set(inside) == {trace_id}
    assert outside != trace_id
    assert {line for line in lines(caplog) if line.endswith("started")} == {
        "pipeline p: started",
        "  step a: started",
        "  step b: started",
        "  step c: started",
        "step d: started",
    }


async def test_long_values_are_cut_and_long_times_are_in_seconds(
    tracer: SimpleTracer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([10.0, 12.5])
    monkeypatch.setattr("fastroai.tracing.simple.time.perf_counter", lambda: next(clock))
    async with tracer.span("step s", prompt="x" * 5_000):
        pass

    started, ended = [record.getMessage() for record in caplog.records]
    assert started.endswith("xxx...")
    assert len(started) < 300
    assert ended.endswith("ok after 2.50 s")


async def test_nothing_is_written_below_the_level_of_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "fastroai.tracing")
    async with SimpleTracer().span("step s"):
        pass
    async with SimpleTracer(level=logging.WARNING).span("step t"):
        pass

    assert lines(caplog) == ["step t: started", "step t: ok after TIME"]
