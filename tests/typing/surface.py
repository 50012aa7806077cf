"""What a type checker, and so an editor, knows of the public surface. Checked by mypy, never run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, assert_type

from pydantic import BaseModel
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage

from fastroai import (
    BasePipeline,
    BaseStep,
    ChatResponse,
    CostCalculator,
    FastroAgent,
    Pipeline,
    PipelineResult,
    StepConfig,
    StepContext,
    safe_tool,
    step,
)
from fastroai.agent import StreamChunk
from fastroai.pipelines import FunctionStep, PipelineUsage
from fastroai.tracing import Tracer, TraceSpan
from fastroai.usage import Quote


class Category(BaseModel):
    name: str


@dataclass
class Deps:
    tenant: str


text_agent = FastroAgent("openai:gpt-5-mini")
assert_type(text_agent, FastroAgent[object, str])
category_agent = FastroAgent("openai:gpt-5-mini", output_type=Category, deps_type=Deps)
assert_type(category_agent, FastroAgent[Deps, Category])
given_agent = FastroAgent(agent=Agent("openai:gpt-5-mini", output_type=Category))
assert_type(given_agent, FastroAgent[object, Category])

FastroAgent("openai:gpt-5-mini", temprature=0.2)  # type: ignore[call-arg]


async def runs() -> None:
    response = await text_agent.run("hi")
    assert_type(response, ChatResponse[str])
    assert_type(response.output, str)
    assert_type(response.cost_usd, Decimal)
    assert_type(response.failed_requests, int)
    assert_type(response.cost_microcents, int)
    typed = await category_agent.run("hi", deps=Deps("a"))
    assert_type(typed.output, Category)
    for_this_call = await text_agent.run("hi", output_type=Category)
    assert_type(for_this_call, ChatResponse[Category])
    assert_type(text_agent.run_sync("hi"), ChatResponse[str])
    assert_type(text_agent.run_sync("hi", output_type=Category), ChatResponse[Category])
    async for chunk in category_agent.run_stream("hi", deps=Deps("a")):
        assert_type(chunk, StreamChunk[Category])
        assert_type(chunk.usage_data, ChatResponse[Category] | None)
    await text_agent.run("hi", temprature=0.2)  # type: ignore[call-overload]


@step
async def classify(ctx: StepContext[Deps]) -> Category:
    response = await ctx.run(category_agent, "what is it?")
    assert_type(response, ChatResponse[Category])
    assert_type(ctx.deps, Deps)
    return response.output


@step(retries=2)
def count(ctx: StepContext[Deps]) -> int:
    category = ctx.get_dependency("classify", Category)
    assert_type(category, Category)
    assert_type(ctx.get_dependency_or_none("classify", Category), Category | None)
    assert_type(ctx.run_sync(text_agent, "hi").output, str)
    assert_type(ctx.run_sync(category_agent, "hi", retries=2), ChatResponse[Category])
    ctx.run_sync(text_agent, "hi", tries=2)  # type: ignore[call-arg]
    assert_type(ctx.once_sync("count", lambda: 1), int)
    return len(category.name)


class Reply(BaseStep[Deps, str]):
    config = StepConfig(timeout=10)

    async def execute(self, context: StepContext[Deps]) -> str:
        assert_type(await context.map(category_agent, ["a", "b"]), list[ChatResponse[Category]])
        assert_type(await context.map(classify, [1, 2]), list[Category])
        return "done"


assert_type(classify, FunctionStep[Deps, Category])
assert_type(count, FunctionStep[Deps, int])

# A step that needs no deps fits beside steps that do.
pipeline = Pipeline[Deps, Any, str](
    "p",
    {"classify": classify, "count": count, "hello": text_agent.as_step("hi"), "reply": Reply()},
    {"count": ["classify"], "reply": ["count", "hello"]},
)


async def executes() -> None:
    result = await pipeline.execute({"text": "x"}, deps=Deps("a"))
    assert_type(result, PipelineResult[str])
    assert_type(result.output, str | None)
    assert_type(result.usage.cost_usd, Decimal)
    assert_type((result.cost_usd, result.cost_complete, result.failed_requests), tuple[Decimal, bool, int])


class Router(BasePipeline[Deps, Any, str]):
    async def route(self, inputs: Mapping[str, Any], deps: Deps) -> str:
        return "p"


router = Router()
router.register_pipeline("p", pipeline)
assert_type(router.as_step(), BaseStep[Deps, str])


async def estimates() -> None:
    quote = await category_agent.estimate("hi", deps=Deps("a"))
    assert_type(quote, Quote)
    assert_type(quote.upper_usd, Decimal | None)
    assert_type(text_agent.estimate_sync("hi"), Quote)
    assert_type(await pipeline.estimate({"text": "x"}, Deps("a")), Quote)
    assert_type(router.estimate_sync({"text": "x"}, Deps("a")), Quote)
    assert_type(router.execute_sync({"text": "x"}, Deps("a")), PipelineResult[str])
    assert_type(quote + quote * 3, Quote)
    assert_type(sum([quote, quote]), Quote | Literal[0])


@safe_tool(timeout=5)
async def search(query: str, limit: int = 3) -> list[str]:
    return [query] * limit


async def tools() -> None:
    assert_type(await search("x", limit=1), list[str] | str)


calculator = CostCalculator(pricing_overrides={"gpt-4o": {"input_per_mtok": 2.0, "output_per_mtok": 8.0}})
assert_type(calculator.calculate_cost("gpt-4o", 1, 1), int)


# An agent without deps of its own fits into a step that has some, and its pipeline into a router without.
def prompt(ctx: StepContext[Deps]) -> str:
    return ctx.deps.tenant


asking = Pipeline[Deps, Any, str]("asking", {"ask": text_agent.as_step(prompt)})


class RouterWithoutDeps(BasePipeline[None, Any, str]):
    async def route(self, inputs: Mapping[str, Any], deps: None) -> str:
        return "hello"


RouterWithoutDeps().register_pipeline("hello", Pipeline("hello", {"hello": text_agent.as_step("hi")}))


# --- what the design of fastroai promises ---


class Analysis(BaseModel):
    mood: str


analyst = FastroAgent("openai:gpt-5-mini", output_type=Analysis, deps_type=Deps)
assert_type(analyst, FastroAgent[Deps, Analysis])


def takes_deps(agent: FastroAgent[Deps]) -> None:
    assert_type(agent, FastroAgent[Deps, str])


@analyst.tool
def tenant_of(ctx: RunContext[Deps], number: int) -> str:
    return ctx.deps.tenant


@analyst.tool_plain(retries=2)
async def look_up(query: str) -> list[int]:
    return [len(query)]


async def called(ctx: RunContext[Deps]) -> None:
    assert_type(tenant_of(ctx, 1), str)
    assert_type(await look_up("one"), list[int])


async def by_position(deps: Deps, history: list[ModelMessage], tracer: Tracer) -> None:
    response = await analyst.run("one", deps, history, tracer)
    assert_type(response.output, Analysis)
    assert_type(response.trace_span, TraceSpan | None)
    assert_type([call.cost_usd for call in response.agent_calls], list[Decimal])
    assert_type((await text_agent.run("one", None, history, tracer)).output, str)
    assert_type((await text_agent.run("one", message_history=history, tracer=tracer)).output, str)


def sums(one: PipelineUsage, other: PipelineUsage) -> None:
    assert_type(one + other, PipelineUsage)
    assert_type(one.pipeline_span, TraceSpan | None)
