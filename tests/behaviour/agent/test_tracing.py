"""Spans: pipeline, step, agent, request, each under the one around it, with what it cost."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from support.accounting import Account, listed_cost
from support.tracing import RecordedSpan, RecordingTracer

from fastroai import FastroAgent, Metered, Pipeline, SimpleTracer, StepContext, step
from fastroai.testing import Fault, ModelServer, Reply, ToolCall, Usage


@pytest.fixture
def tracer() -> RecordingTracer:
    return RecordingTracer()


def spans(tracer: RecordingTracer, kind: str) -> list[RecordedSpan]:
    """The spans whose names begin so."""
    return [span for span in tracer.spans if span.name.startswith(kind)]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_request_has_a_span_under_its_agents_with_tokens_and_cost(
    server: ModelServer, model: Model, tracer: RecordingTracer, reference: str, streamed: bool
) -> None:
    server.script(Reply("Paris", usage=Usage(1_000, 100, cache_read_tokens=256)))
    agent = FastroAgent(model, name="geographer")
    if streamed:
        async for chunk in agent.run_stream("?", tracer=tracer):
            response = chunk.usage_data
    else:
        response = await agent.run("?", tracer=tracer)
    assert response is not None
    assert response.trace_id == "trace-1"
    name = reference.partition(":")[2]
    assert tracer.paths == {
        ("invoke_agent geographer",),
        ("invoke_agent geographer", f"chat {name}"),
    }
    outer, inner = (span.attributes for span in tracer.spans)
    [entry] = server.ledger.entries
    cost = listed_cost(entry)
    assert inner["gen_ai.operation.name"] == "chat"
    assert inner["gen_ai.request.model"] == name
    assert inner["gen_ai.response.id"] == entry.response_id
    assert inner["gen_ai.response.finish_reasons"] == ("stop",)
    assert inner["gen_ai.usage.input_tokens"] == 1_000
    assert inner["gen_ai.usage.output_tokens"] == 100
    assert inner["gen_ai.usage.cache_read.input_tokens"] == 256
    assert inner["operation.cost"] == float(cost)
    assert Decimal(str(inner["fastroai.cost.usd"])) == cost
    assert inner["fastroai.cost.complete"] is True
    assert inner["fastroai.request.outcome"] == "settled"
    assert inner["server.address"] == "127.0.0.1"
    assert inner.get("gen_ai.request.stream", False) is streamed
    assert outer["gen_ai.operation.name"] == "invoke_agent"
    assert outer["gen_ai.agent.name"] == "geographer"
    assert outer["gen_ai.request.model"] == name
    assert Decimal(str(outer["fastroai.cost.usd"])) == cost
    assert outer["fastroai.cost.microcents"] == response.cost_microcents
    assert outer["fastroai.requests"] == 1
    assert outer["gen_ai.aggregated_usage.input_tokens"] == 1_000
    assert "operation.cost" not in outer, "a backend that sums a trace must count nothing twice"
    assert all(span.ended for span in tracer.spans)


async def test_spans_nest_from_the_pipeline_to_the_request_also_side_by_side(
    server: ModelServer, tracer: RecordingTracer
) -> None:
    model = server.model("openai:gpt-5-mini")
    both = asyncio.Barrier(2)
    agents = {name: FastroAgent(model, name=f"{name}er") for name in ("read", "writ")}

    def asking(name: str) -> object:
        @step
        async def ask(context: StepContext[object]) -> str:
            await both.wait()
            return (await context.run(agents[name], "?")).output

        return ask

    pipeline = Pipeline("desk", {"read": asking("read"), "writ": asking("writ")}, output_step="writ")  # type: ignore[dict-item]
    await pipeline.execute({}, tracer=tracer)
    assert tracer.paths == {
        ("pipeline desk",),
        ("pipeline desk", "step read"),
        ("pipeline desk", "step writ"),
        ("pipeline desk", "step read", "invoke_agent reader"),
        ("pipeline desk", "step writ", "invoke_agent writer"),
        ("pipeline desk", "step read", "invoke_agent reader", "chat gpt-5-mini"),
        ("pipeline desk", "step writ", "invoke_agent writer", "chat gpt-5-mini"),
    }
    total = sum(map(listed_cost, server.ledger.entries), Decimal(0))
    [run] = spans(tracer, "pipeline")
    assert Decimal(str(run.attributes["fastroai.cost.usd"])) == total


async def test_an_agent_in_a_tool_is_traced_under_the_one_that_called_it(
    server: ModelServer, tracer: RecordingTracer
) -> None:
    model = server.model("openai:gpt-5-mini")
    inner = FastroAgent(model, name="inner")
    plain = Agent(model, capabilities=[Metered()])

    async def ask(question: str) -> str:
        """Ask."""
        return (await inner.run(question)).output + (await plain.run(question)).output

    server.script(
        Reply(tool_calls=[ToolCall("ask", {"question": "Who?"})]), Reply("a"), Reply("b"), Reply("done")
    )
    await FastroAgent(model, name="outer", tools=[ask]).run("?", tracer=tracer)
    assert [span.path for span in tracer.spans] == [
        ("invoke_agent outer",),
        ("invoke_agent outer", "chat gpt-5-mini"),
        ("invoke_agent outer", "invoke_agent inner"),
        ("invoke_agent outer", "invoke_agent inner", "chat gpt-5-mini"),
        ("invoke_agent outer", "chat gpt-5-mini"),
        ("invoke_agent outer", "chat gpt-5-mini"),
    ]


async def test_each_attempt_at_a_request_has_its_span(server: ModelServer, tracer: RecordingTracer) -> None:
    server.fail_next(1, Fault.status(503))
    await FastroAgent(server.model("openai:gpt-5-mini")).run("?", tracer=tracer)
    first, second = spans(tracer, "chat")
    assert (first.attributes["fastroai.attempt"], second.attributes["fastroai.attempt"]) == (1, 2)
    assert first.attributes["fastroai.request.outcome"] == "released"
    assert "fastroai.cost.usd" not in first.attributes
    assert isinstance(first.error, ModelHTTPError)
    assert second.error is None


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_request_that_got_lost_has_its_bound_on_its_span(
    server: ModelServer, tracer: RecordingTracer, account: Account, streamed: bool
) -> None:
    server.script(Reply("Once upon a time " * 9, usage=Usage(10, 40), fault=Fault.cut(after=1)))
    agent = FastroAgent(server.model("openai:gpt-5-mini"), max_tokens=100, request_retries=0)
    with pytest.raises(Exception, match=".") as caught:
        if streamed:
            async for _ in agent.run_stream("?", tracer=tracer):
                pass
        else:
            await agent.run("?", tracer=tracer)
    [request] = spans(tracer, "chat")
    [record] = account.records
    assert request.attributes["fastroai.request.outcome"] == "unmeasured"
    assert Decimal(str(request.attributes["fastroai.cost.bound_usd"])) == record.bound_usd
    assert request.attributes["fastroai.cost.complete"] is False
    assert "operation.cost" not in request.attributes
    assert request.error is not None
    [run] = spans(tracer, "invoke_agent")
    assert run.error is caught.value
    assert run.attributes["fastroai.cost.complete"] is False


async def test_each_candidate_of_a_fallback_has_its_span(
    server: ModelServer, tracer: RecordingTracer
) -> None:
    server.rule(lambda request: request.model == "gpt-5-mini", Reply(fault=Fault.status(400)))
    server.rule(None, Reply("ok"))
    fallback = FallbackModel(server.model("openai:gpt-5-mini"), server.model("anthropic:claude-haiku-4-5"))
    await FastroAgent(fallback).run("?", tracer=tracer)
    assert [span.name for span in spans(tracer, "chat")] == ["chat gpt-5-mini", "chat claude-haiku-4-5"]


async def test_the_tracer_of_a_call_goes_before_that_of_the_run_around_it(server: ModelServer) -> None:
    outer, inner = RecordingTracer(), RecordingTracer()
    agent = FastroAgent(server.model("openai:gpt-5-mini"))

    @step
    async def ask(context: StepContext[object]) -> str:
        return (await agent.run("?", tracer=inner)).output

    await Pipeline("p", {"ask": ask}).execute({}, tracer=outer)
    assert outer.paths == {("pipeline p",), ("pipeline p", "step ask")}
    assert inner.paths == {("invoke_agent agent",), ("invoke_agent agent", "chat gpt-5-mini")}


async def test_a_real_tracer_gives_a_trace_id(server: ModelServer, model: Model) -> None:
    response = await FastroAgent(model).run("?", tracer=SimpleTracer())
    assert response.trace_id is not None
    assert len(response.trace_id) == 32
    assert (await FastroAgent(model).run("?")).trace_id is None


async def test_a_steps_span_has_the_sums_of_everything_below_it(
    server: ModelServer, model: Model, tracer: RecordingTracer
) -> None:
    server.script(Reply("a", usage=Usage(100, 10)), Reply("b", usage=Usage(200, 20)))
    agent = FastroAgent(model)

    @step
    async def twice(ctx: StepContext) -> None:
        await ctx.run(agent, "one")
        await ctx.run(agent, "two")

    result = await Pipeline("p", {"twice": twice}).execute(tracer=tracer)
    [span] = spans(tracer, "step twice")
    assert span.attributes["gen_ai.aggregated_usage.input_tokens"] == 300
    assert Decimal(str(span.attributes["fastroai.cost.usd"])) == result.usage.cost_usd
