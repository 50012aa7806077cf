"""What users of fastroai 0.6 type."""

from __future__ import annotations

import logging
from dataclasses import FrozenInstanceError, replace
from decimal import Decimal
from typing import Any, Final, TypedDict, get_args

import pytest
from pydantic import BaseModel
from pydantic_ai import RunContext
from pydantic_ai.models.test import TestModel
from support.agents import paid_agent
from support.migrating import Tried, here_it_is

import fastroai
from fastroai import (
    AgentConfig,
    BasePipeline,
    BaseStep,
    CostBudgetExceeded,
    CostCalculator,
    FastroAgent,
    Pipeline,
    PipelineConfig,
    SimpleTracer,
    StepConfig,
    StepContext,
    StepExecutionError,
    format_cost,
    safe_tool,
    step,
)
from fastroai.agent import AgentStep, AgentStepWrapper
from fastroai.errors import ConfigurationError, CostBudgetExceededError, UnknownModelError, UnpricedModelError
from fastroai.pipelines import StepUsage
from fastroai.records import NOT_GIVEN
from fastroai.tools import SafeToolset
from fastroai.tracing import TraceSpan

TRIED: Final = Tried()


class Ticket(TypedDict):
    text: str


@step
async def reply(ctx: StepContext[None]) -> str:
    response = await ctx.run(paid_agent(120), message=ctx.get_input("text", str))
    return str(response)


TICKET: Final[Ticket] = {"text": "one"}


def pipeline() -> Pipeline[None, Ticket, str]:
    return Pipeline[None, Ticket, str]("support", {"reply": reply})


class Router(BasePipeline[None, Ticket, str]):
    async def route(self, inputs: Ticket, deps: None) -> str:
        return "reply"


@TRIED("imports")
def imports() -> None:
    for name in ("NoOpTracer", "SafeToolset", "StepUsage"):
        exec(f"from fastroai import {name}", {})
        assert name not in fastroai.__all__


@TRIED("types")
async def types() -> None:
    router = Router("router")
    router.register_pipeline("reply", pipeline())
    assert (await router.execute(TICKET, None)).output == "answer to one"


@TRIED("calls")
async def calls() -> None:
    agent = paid_agent()
    assert (await agent.run(message="one")).output == (await agent.run("one", None)).output == "answer to one"
    assert (await pipeline().execute(TICKET, None)).output == "answer to one"


@TRIED("streams")
async def streams() -> None:
    async with FastroAgent(TestModel(custom_output_text="Hello.")).run_stream("one") as stream:
        assert [text async for text in stream.stream_text()][-1] == "Hello."


@TRIED("responses")
async def responses() -> None:
    async def search(query: str) -> str:
        return query

    response = await FastroAgent(TestModel(custom_output_text="Hello."), tools=[search]).run("one")
    assert str(response) == response.model_dump()["output"] == "Hello."
    assert response.tool_calls[0]["tool_name"] == "search"


@TRIED("results")
async def results() -> None:
    result = await pipeline().execute(TICKET)
    assert (result.status, result.was_resumed) == ("finished", False)
    assert result.model_dump()["output"] == "answer to one"
    router = Router("router")
    router.register_pipeline("reply", pipeline())
    assert router.replay((await router.execute(TICKET)).trace) is None


@TRIED("inputs")
async def inputs() -> None:
    assert (await pipeline().execute({"text": "two"})).output == "answer to two"


@TRIED("usage")
async def usage() -> None:
    one, two = [StepUsage.from_chat_response(await paid_agent(60).run(text)) for text in ("one", "two")]
    assert (one + two).cost_microcents == sum([one, two]).cost_microcents == 120  # type: ignore[union-attr]


@TRIED("costs")
async def costs() -> None:
    usage = (await pipeline().execute(TICKET)).usage
    assert usage.total_cost_usd == usage.cost_usd == Decimal("0.00012")
    assert usage.total_cost_microcents == usage.cost_microcents == 120
    assert usage.total_cost_dollars == usage.cost_dollars == pytest.approx(0.00012)


@TRIED("prices")
def prices() -> None:
    calculator = CostCalculator()
    calculator.add_pricing_override("our-model", 2.0, 8.0)
    assert calculator.calculate_cost("our-model", 1_000_000, 1_000_000) == 10_000_000


@TRIED("budgets")
async def budgets() -> None:
    with pytest.raises(CostBudgetExceededError) as stopped:
        await paid_agent(120, cost_budget=100).run("one")
    assert isinstance(stopped.value, CostBudgetExceeded)
    assert CostBudgetExceeded(budget=1_000, actual=900).budget_microcents == 1_000


@TRIED("spans")
async def spans() -> None:
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger, handler = logging.getLogger("fastroai.tracing"), Keep()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        traced = Pipeline("support", {"reply": reply}, config=PipelineConfig(trace=True))
        await traced.execute(TICKET)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert any("step reply: ok" in line for line in lines)


@TRIED("hooks")
async def hooks() -> None:
    told: list[object] = []

    @step
    async def fails(ctx: StepContext[None]) -> None:
        raise ValueError("no")

    def of_error(error: Exception) -> None:
        told.append(str(error))

    def of_nothing() -> None:
        told.append(None)

    for hook in (of_error, of_nothing):
        with pytest.raises(StepExecutionError):
            await Pipeline("p", {"fails": fails}, config=PipelineConfig(on_step_failure=hook)).execute()
    assert told == ["no", None]


@TRIED("tools")
async def tools() -> None:
    @safe_tool(max_retries=1, on_error="no luck: {error}")
    async def search(query: str) -> str:
        raise OSError("offline")

    assert await search("x") == "no luck: OSError: offline"
    assert SafeToolset[object](tools=[search], name="web").wrapped.id == "web"


# --- the design of fastroai ---


@TRIED("`response.trace_span`, `step_usage.step_span`, `pipeline_usage.pipeline_span`")
async def spans_of_results() -> None:
    responses = []

    @step
    async def asks(ctx: StepContext[None]) -> str:
        responses.append(await ctx.run(paid_agent(), "one"))
        return str(responses[-1])

    asking = Pipeline("p", {"asks": asks})
    usage = (await asking.execute(tracer=SimpleTracer())).usage
    of_response, of_step, of_run = responses[0].trace_span, usage.steps["asks"].step_span, usage.pipeline_span
    for span, name in ((of_response, "invoke_agent agent"), (of_step, "step asks"), (of_run, "pipeline p")):
        assert isinstance(span, TraceSpan)
        assert (span.name, span.trace_id) == (name, responses[0].trace_id)
        assert span.span_id
        assert span.ended_at is not None
        assert span.ended_at >= span.started_at
    assert len({span.span_id for span in (of_response, of_step, of_run) if span}) == 3
    usage = (await asking.execute()).usage
    assert responses[1].trace_span is usage.steps["asks"].step_span is usage.pipeline_span is None


@TRIED("`ctx.usage.agent_calls`")
async def list_of_agent_calls() -> None:
    @step
    async def asks(ctx: StepContext[None]) -> list[int]:
        for microcents in (120, 30):
            await ctx.run(paid_agent(microcents), "one")
        assert ctx.usage.agent_call_count == 2
        return [call.cost_microcents for call in ctx.usage.agent_calls]

    result = await Pipeline("p", {"asks": asks}).execute()
    assert result.output == [120, 30]
    assert [call.agent for call in result.usage.agent_calls] == ["agent", "agent"]


@TRIED("`usage + usage` and `sum(usages)` of pipelines")
async def sums_of_pipelines() -> None:
    one, two = [(await pipeline().execute(TICKET)).usage for _ in range(2)]
    for both in (one + two, sum([one, two])):
        assert not isinstance(both, int)
        assert (both.cost_microcents, both.steps["reply"].cost_microcents, both.agent_call_count) == (
            240,
            240,
            2,
        )
    assert one.cost_microcents == 120


@TRIED("`usage.total_tool_call_count`")
async def tool_calls_above_the_agent() -> None:
    def search(query: str) -> str:
        return query

    @step
    async def asks(ctx: StepContext[None]) -> int:
        agent = FastroAgent(TestModel(), tools=[search])
        response = await ctx.run(agent, "one")
        await ctx.run(agent, "two")
        assert response.total_tool_call_count == response.tool_call_count == 1
        return ctx.usage.total_tool_call_count

    result = await Pipeline("p", {"asks": asks}).execute()
    assert result.output == result.usage.total_tool_call_count == 2


@TRIED("`StepConfig().retries == 0`, `StepConfig().timeout is None`")
async def settings_that_are_not_given() -> None:
    assert StepConfig().retries is StepConfig().timeout is NOT_GIVEN

    @step
    async def reads(ctx: StepContext[None]) -> None:
        assert ctx.config.retries == 0
        assert ctx.config.timeout is None

    assert (await Pipeline("p", {"reads": reads}).execute()).ok


@TRIED("`StepConfig(30, 2)`")
def positional_settings() -> None:
    configs: tuple[tuple[Any, tuple[object, ...], str], ...] = (
        (StepConfig, (30, 2), "timeout=30, retries=2"),
        (PipelineConfig, (30,), "timeout=30"),
        (AgentConfig, ("openai:gpt-5-mini",), "model='openai:gpt-5-mini'"),
    )
    for config, values, meant in configs:
        with pytest.raises(TypeError) as refused:
            config(*values)
        assert f"{config.__name__}({meant})" in str(refused.value)
    assert StepConfig(timeout=30, retries=2).retries == 2


@TRIED("`config.timeout = 5`")
def settings_that_are_assigned() -> None:
    for config in (StepConfig(), PipelineConfig(), AgentConfig()):
        with pytest.raises(FrozenInstanceError, match=r"dataclasses\.replace\(config, timeout=5\)"):
            config.timeout = 5  # type: ignore[misc]
        assert replace(config, timeout=5).timeout == 5


class Analysis(BaseModel):
    mood: str


@TRIED("`FastroAgent[Analysis]` for the output type")
async def types_of_an_agent() -> None:
    assert get_args(FastroAgent[str, Analysis]) == (str, Analysis)
    assert get_args(FastroAgent[Analysis])[0] is Analysis, "the first type is that of the deps"
    model = TestModel(custom_output_args={"mood": "calm"})
    agent: FastroAgent[None, Analysis] = FastroAgent(model, output_type=Analysis)
    assert (await agent.run("one")).output == Analysis(mood="calm")


@TRIED("`AgentStepWrapper`")
async def old_name_of_agents_as_steps() -> None:
    assert AgentStepWrapper is AgentStep
    wrapped = AgentStepWrapper(paid_agent(), lambda ctx: ctx.get_input("text", str))
    assert (await Pipeline("p", {"asks": wrapped}).execute({"text": "one"})).output == "answer to one"
    assert isinstance(paid_agent().as_step("one"), AgentStepWrapper)


@TRIED("`self.last_usage = …` in a step")
async def usage_kept_on_a_step() -> None:
    class Asks(BaseStep[None, str]):
        async def execute(self, context: StepContext[None]) -> str:
            response = await paid_agent().run("one")
            self.last_usage = StepUsage.from_chat_response(response)
            return str(response)

    with pytest.raises(StepExecutionError, match=r"counted without it.*ctx\.record_usage"):
        await Pipeline("p", {"asks": Asks()}).execute()


@TRIED("`agent.run(message, deps, message_history, tracer)`")
async def positional_arguments() -> None:
    agent = paid_agent()
    history = (await agent.run("one")).all_messages()
    response = await agent.run("two", None, history, SimpleTracer())
    assert response.trace_span is not None
    assert len(response.all_messages()) == len(history) + 2
    async with FastroAgent(TestModel()).run_stream("two", None, history, SimpleTracer()) as stream:
        assert [chunk async for chunk in stream][-1].usage_data is not None
    assert stream.response is not None
    assert stream.response.trace_span is not None
    assert len(stream.response.all_messages()) == len(history) + 2


@TRIED("`@agent.tool`, `@agent.tool_plain`")
async def decorated_tools() -> None:
    agent = FastroAgent(TestModel(), deps_type=str)

    @agent.tool
    def greet(ctx: RunContext[str]) -> str:
        return ctx.deps

    @agent.tool_plain(name="seek", retries=2)
    def search(query: str) -> str:
        return query

    response = await agent.run("one", "Mia")
    assert [call["tool_name"] for call in response.tool_calls] == ["greet", "seek"]


@TRIED("`calculate_cost(…)` of an unknown model is 0")
def costs_of_unknown_models() -> None:
    calculator = CostCalculator()
    for model, error in (("our-model", UnknownModelError), ("openai:gpt-none", UnpricedModelError)):
        with pytest.raises(error):
            calculator.calculate_cost(model, 1_000, 200)
        assert calculator.calculate_cost(model, 1_000, 200, on_unknown="zero") == 0
    known = calculator.calculate_cost("openai:gpt-5-mini", 1_000, 200)
    assert calculator.calculate_cost("openai:gpt-5-mini", 1_000, 200, on_unknown="zero") == known > 0


@TRIED("`agent.as_step(input_transformer=…)`")
async def prompts_of_steps() -> None:
    agent: Any = FastroAgent(TestModel(custom_output_text="Hello."))
    with pytest.raises(TypeError, match=here_it_is("prompt=")):
        agent.as_step(input_transformer=lambda ctx: ctx.get_input("text"))
    greets = agent.as_step(lambda ctx: ctx.get_input("text"))
    assert (await Pipeline("p", {"greets": greets}).run({"text": "one"})).output == "Hello."


@TRIED("`calculator.format_cost(…)`")
def formatted_costs() -> None:
    calculator: Any = CostCalculator()
    with pytest.raises(AttributeError, match=here_it_is("fastroai.format_cost(cost)")):
        calculator.format_cost(Decimal("0.0036"))
    assert format_cost(Decimal("0.0036")) == "$0.0036"


@TRIED("`AgentConfig(timeout_seconds=…, max_retries=…)`")
def settings_of_agents() -> None:
    made: dict[Any, dict[str, str]] = {
        AgentConfig: {"timeout_seconds": "timeout=", "max_retries": "FastroAgent(retries=…)"},
        FastroAgent: {"timeout_seconds": "timeout=", "max_retries": "retries="},
        StepConfig: {"timeout_seconds": "timeout=", "max_retries": "retries="},
        PipelineConfig: {"timeout_ms": "timeout=, in seconds", "max_retries": "retries="},
    }
    for kind, names in made.items():
        for name, here in names.items():
            with pytest.raises(TypeError, match=here_it_is(here)):
                kind(**{name: 3})


@TRIED("`FastroAgent(AgentConfig(…))`")
async def config_by_position() -> None:
    config = AgentConfig(model=TestModel(custom_output_text="Hello."))
    untyped: Any = FastroAgent
    with pytest.raises(ConfigurationError, match=r"^model=.*settings go into config="):
        untyped(config)
    assert (await FastroAgent(config=config).run("one")).output == "Hello."


@TRIED("`response.text`, `response.cost`, `response.messages`")
async def parts_of_responses() -> None:
    response: Any = await paid_agent(120).run("one")
    names = {"text": "str(response)", "cost": "response.cost_usd", "messages": "response.all_messages()"}
    for name, here in names.items():
        with pytest.raises(AttributeError, match=here_it_is(here)):
            getattr(response, name)
    assert (str(response), response.cost_usd) == ("answer to one", Decimal("0.00012"))
    assert len(response.all_messages()) == 2
