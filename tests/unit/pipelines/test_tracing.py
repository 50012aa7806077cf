"""Spans nest as pipeline, step, agent, request, also where steps run side by side."""

import asyncio
from typing import Any

import pytest
from pydantic_ai.models.test import TestModel
from support.agents import paid_agent, streaming_agent
from support.tracing import RecordedSpan, RecordingTracer

from fastroai.agent import FastroAgent
from fastroai.errors import MissingExtraError, StepExecutionError
from fastroai.pipelines import Pipeline, PipelineConfig, StepConfig, StepContext, StepUsage, step
from fastroai.tracing import NoOpTracer, SimpleTracer


@step
async def asks(ctx: StepContext) -> str:
    return (await ctx.run(paid_agent(100, name=f"agent of {ctx.step_id}"), "hello")).output


@step
async def plain(ctx: StepContext) -> None:
    await asyncio.sleep(0)


async def spans_of(pipeline: Pipeline[Any, Any]) -> list[RecordedSpan]:
    tracer = RecordingTracer()
    await pipeline.execute(tracer=tracer)
    assert all(span.ended for span in tracer.spans)
    return tracer.spans


async def test_spans_nest_also_across_parallel_steps() -> None:
    barrier = asyncio.Barrier(2)

    async def meet(prompt: str) -> None:
        await barrier.wait()

    @step
    async def side_by_side(ctx: StepContext) -> None:
        await ctx.run(paid_agent(before=meet, name=f"agent of {ctx.step_id}"), "hello")

    pipeline = Pipeline[Any, Any]("p", {"a": side_by_side, "b": side_by_side}, output_step="a")
    paths = {span.path for span in await spans_of(pipeline)}
    assert paths == {
        ("pipeline p",),
        ("pipeline p", "step a"),
        ("pipeline p", "step b"),
        ("pipeline p", "step a", "invoke_agent agent of a"),
        ("pipeline p", "step b", "invoke_agent agent of b"),
        ("pipeline p", "step a", "invoke_agent agent of a", "chat paid"),
        ("pipeline p", "step b", "invoke_agent agent of b", "chat paid"),
    }


async def test_results_say_where_they_are_in_a_trace() -> None:
    @step
    async def fails(ctx: StepContext) -> None:
        raise ValueError("x")

    steps = {"asks": asks, "plain": plain, "fails": fails}
    config = PipelineConfig(on_error="continue")
    pipeline = Pipeline[Any, Any]("p", steps, output_step="asks", config=config)
    usage = (await pipeline.execute(tracer=SimpleTracer())).usage
    spans = [usage.pipeline_span, *(usage.steps[step_id].step_span for step_id in steps)]
    assert [span and span.name for span in spans] == ["pipeline p", "step asks", "step plain", "step fails"]
    assert len({span.trace_id for span in spans if span}) == 1
    assert len({span.span_id for span in spans if span}) == 4
    assert all(span and span.ended_at and span.ended_at >= span.started_at for span in spans)


async def test_a_tracer_of_ones_own_tells_no_span_ids() -> None:
    span = (await Pipeline[Any, Any]("p", {"plain": plain}).execute(tracer=RecordingTracer())).usage.span
    assert span is not None
    assert (span.name, span.span_id) == ("pipeline p", None)


async def test_where_nothing_is_recorded_there_are_no_spans() -> None:
    for tracer in (None, NoOpTracer()):
        usage = (await Pipeline[Any, Any]("p", {"plain": plain}).execute(tracer=tracer)).usage
        assert usage.span is usage.steps["plain"].step_span is None
    one_step_less = {"plain": StepConfig(trace=False)}
    pipeline = Pipeline[Any, Any]("p", {"plain": plain}, step_configs=one_step_less)
    usage = (await pipeline.execute(tracer=SimpleTracer())).usage
    assert usage.span is not None
    assert usage.steps["plain"].step_span is None


async def test_a_response_has_the_span_of_its_call() -> None:
    response = await paid_agent(100).run("hello", tracer=SimpleTracer())
    assert response.trace_span is not None
    assert response.trace_span.name == "invoke_agent agent"
    assert response.trace_span.trace_id == response.trace_id
    assert response.model_dump()["trace_span"]["span_id"] == response.trace_span.span_id
    assert StepUsage.from_chat_response(response).step_span is None
    assert (await paid_agent(100).run("hello")).trace_span is None


async def test_steps_of_a_chain_are_beside_each_other_and_not_inside() -> None:
    pipeline = Pipeline[Any, Any]("p", dict.fromkeys("abc", plain), {"b": ["a"], "c": ["b"]})
    assert [span.around for span in await spans_of(pipeline)] == [(), *[("pipeline p",)] * 3]


async def test_a_nested_pipeline_is_inside_its_step() -> None:
    inner = Pipeline[Any, Any]("inner", {"asks": asks})
    spans = await spans_of(Pipeline[Any, Any]("outer", {"nested": inner.as_step()}))
    assert spans[-1].path == (
        "pipeline outer",
        "step nested",
        "pipeline inner",
        "step asks",
        "invoke_agent agent of asks",
        "chat paid",
    )


async def test_an_agent_that_a_tool_calls_is_inside_the_agent_that_called_it() -> None:
    async def ask_another() -> str:
        return (await paid_agent(name="inner").run("hello")).output

    outer: FastroAgent[Any, str] = FastroAgent(TestModel(), tools=[ask_another], name="outer")

    @step
    async def calls(ctx: StepContext) -> None:
        await ctx.run(outer, "hello")

    paths = {span.path for span in await spans_of(Pipeline[Any, Any]("p", {"calls": calls}))}
    assert ("pipeline p", "step calls", "invoke_agent outer", "invoke_agent inner", "chat paid") in paths


async def test_a_streamed_answer_is_inside_its_step() -> None:
    async def words(prompt: str) -> Any:
        yield "one"

    @step
    async def reads(ctx: StepContext) -> None:
        async for _ in ctx.run_stream(streaming_agent(words), "hello"):
            pass

    paths = {span.path for span in await spans_of(Pipeline[Any, Any]("p", {"reads": reads}))}
    assert ("pipeline p", "step reads", "invoke_agent agent", "chat paid") in paths


async def test_a_thread_of_a_step_is_inside_its_step() -> None:
    @step
    def in_a_thread(ctx: StepContext) -> None:
        ctx.run_sync(paid_agent(), "hello")

    paths = {span.path for span in await spans_of(Pipeline[Any, Any]("p", {"thread": in_a_thread}))}
    assert ("pipeline p", "step thread", "invoke_agent agent", "chat paid") in paths


async def test_spans_of_the_users_own_are_where_they_are_opened() -> None:
    @step
    async def opens(ctx: StepContext) -> None:
        async with ctx.tracer.span("my span", number=1):
            await ctx.run(paid_agent(), "hello")

    spans = await spans_of(Pipeline[Any, Any]("p", {"opens": opens}))
    assert spans[2].path == ("pipeline p", "step opens", "my span")
    assert spans[2].attributes == {"number": 1}
    assert spans[3].around == spans[2].path


async def test_spans_say_what_they_are_of_and_what_was_spent() -> None:
    tracer = RecordingTracer()
    result = await Pipeline[Any, Any]("p", {"asks": asks}).execute(tracer=tracer)
    pipeline, step_span, *_ = tracer.spans
    assert pipeline.attributes["fastroai.pipeline.name"] == "p"
    assert pipeline.attributes["fastroai.run.id"] == result.run_id
    assert pipeline.attributes["fastroai.cost.microcents"] == 100
    assert pipeline.attributes["fastroai.cost.complete"] is True
    assert step_span.attributes["fastroai.step.id"] == "asks"
    assert step_span.attributes["fastroai.cost.microcents"] == 100


async def test_a_failure_is_on_every_span_that_it_left() -> None:
    @step
    async def fails(ctx: StepContext) -> None:
        raise ValueError("x")

    tracer = RecordingTracer()
    with pytest.raises(StepExecutionError):
        await Pipeline[Any, Any]("p", {"fails": fails}).execute(tracer=tracer)
    pipeline, failed = tracer.spans
    assert isinstance(pipeline.error, StepExecutionError)
    assert isinstance(failed.error, ValueError)


@pytest.mark.parametrize("where", ["step config", "own config"])
async def test_a_step_that_is_not_traced_has_no_spans_and_those_beside_it_do(where: str) -> None:
    quiet = step(trace=False)(asks.function) if where == "own config" else asks
    named = {"quiet": StepConfig(trace=False)} if where == "step config" else None
    pipeline = Pipeline[Any, Any]("p", {"quiet": quiet, "loud": asks}, output_step="loud", step_configs=named)
    names = [span.name for span in await spans_of(pipeline)]
    assert names == ["pipeline p", "step loud", "invoke_agent agent of loud", "chat paid"]


async def test_a_pipeline_that_is_not_traced_has_no_spans_and_nothing_below_it() -> None:
    pipeline = Pipeline[Any, Any]("p", {"a": asks}, config=PipelineConfig(trace=False))
    assert await spans_of(pipeline) == []


async def test_a_step_can_be_traced_in_a_pipeline_that_is_not() -> None:
    pipeline = Pipeline[Any, Any](
        "p",
        {"quiet": plain, "loud": asks},
        output_step="loud",
        config=PipelineConfig(trace=False),
        step_configs={"loud": StepConfig(trace=True)},
    )
    assert [span.path for span in await spans_of(pipeline)][0] == ("step loud",)


async def test_mapped_steps_have_spans_of_their_own() -> None:
    @step
    async def fans_out(ctx: StepContext) -> None:
        await ctx.map(plain, [1, 2])

    spans = await spans_of(Pipeline[Any, Any]("p", {"f": fans_out}))
    assert [span.path for span in spans[2:]] == [
        ("pipeline p", "step f", "step f[0]"),
        ("pipeline p", "step f", "step f[1]"),
    ]


async def test_a_tracer_that_cannot_start_stops_the_run_before_anything_happens() -> None:
    class Broken(RecordingTracer):
        def span(self, name: str, **attributes: Any) -> Any:
            raise MissingExtraError("LogfireTracer", "logfire", "logfire")

    ran = False

    @step
    async def runs(ctx: StepContext) -> None:
        nonlocal ran
        ran = True

    with pytest.raises(MissingExtraError) as caught:
        await Pipeline[Any, Any]("p", {"a": runs}).execute(tracer=Broken())
    assert not ran
    assert dict(caught.value.step_outputs) == {}


async def test_without_a_tracer_nothing_is_traced() -> None:
    assert (await Pipeline[Any, Any]("p", {"a": asks}).execute()).ok
