"""What a type checker knows of steps, what runs them, and what they give. Checked by mypy, never run."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, assert_type

from pydantic_ai.messages import ModelMessage, ModelResponse

from fastroai import (
    BaseStep,
    ChatResponse,
    FastroAgent,
    Pipeline,
    PipelineConfig,
    PipelineResult,
    SplitPipeline,
    StepConfig,
    StepContext,
    step,
)
from fastroai.agent import ChatStream
from fastroai.human import Awaited, StepWait
from fastroai.pipelines import (
    ConversationState,
    ConversationStatus,
    FunctionStep,
    PipelineStream,
    RunEvent,
    Spend,
    StepFinished,
    StepStarted,
    StepTiming,
    StepUsage,
    TextChunk,
    WaitEnded,
)
from fastroai.records import RequestRecord
from fastroai.store import FollowedRun, RunSnapshot
from fastroai.tracing import Tracer


class Deps:
    tenant: str


class OtherDeps: ...


text_agent = FastroAgent("openai:gpt-5-mini")
number_agent = FastroAgent("openai:gpt-5-mini", output_type=int)


@step
async def no_deps(ctx: StepContext[object]) -> str:
    return "a"


@step
async def with_deps(ctx: StepContext[Deps]) -> int:
    assert_type(ctx.step_id, str)
    assert_type(ctx.attempt, int)
    assert_type(ctx.usage, StepUsage)
    assert_type(ctx.usage.cost_usd, Decimal)
    assert_type(ctx.tracer, Tracer)
    assert_type(ctx.inputs, Mapping[str, object])
    return 1


@step(timeout=5, retries=None)  # type: ignore[call-overload, untyped-decorator]  # None is no count
async def misconfigured(ctx: StepContext) -> None: ...


@step(retry=1)  # type: ignore[call-overload, untyped-decorator]  # a misspelt option
async def misspelt(ctx: StepContext) -> None: ...


@step(
    accepts={"text": str},
    returns=int,
    require=[lambda ctx: ctx.attempt > 0],
    ensure=[("few", lambda n: n < 9)],
)
async def with_a_contract(ctx: StepContext[Deps]) -> int:
    return len(ctx.get_input("text"))


@step()
def in_a_thread(ctx: StepContext[Deps]) -> list[str]:
    return [ctx.run_sync(text_agent, "hi", timeout=None, retries=0).output]


assert_type(no_deps, FunctionStep[object, str])
assert_type(with_deps, FunctionStep[Deps, int])
assert_type(with_a_contract, FunctionStep[Deps, int])
assert_type(in_a_thread, FunctionStep[Deps, list[str]])
with_deps.config = StepConfig(timeout=3)


@step
async def reads(ctx: StepContext[Deps]) -> str:
    assert_type(ctx.get_dependency("with_deps", int), int)
    assert_type(ctx.get_dependency("words", list[str]), list[str])
    assert_type(ctx.get_dependency_or_none("maybe", float), float | None)
    state = ctx.get_dependency("state", ConversationState[str])
    assert_type(state.data, str | None)
    return ctx.get_input("text", "default") or ""


@step
async def asks(ctx: StepContext[Deps]) -> int:
    response = await ctx.run(number_agent, "how many?", timeout=3, retries=2, cost_budget=1_000)
    assert_type(response, ChatResponse[int])
    stream = ctx.run_stream(text_agent, "hi")
    assert_type(stream, ChatStream[str])
    async for chunk in stream:
        assert_type(chunk.content, str)
    assert_type(stream.response, ChatResponse[str] | None)
    async with ctx.run_stream(number_agent, "how many?") as numbers:
        async for number in numbers.stream_output(debounce_by=None):
            assert_type(number, int)
        async for text in numbers.stream_text(delta=True, debounce_by=0.2):
            assert_type(text, str)
        async for answer in numbers.stream_response():
            assert_type(answer, ModelResponse)
        assert_type(await numbers.get_output(), int)
        assert_type(numbers.new_messages(), list[ModelMessage])
        await numbers.get_outptu()  # type: ignore[attr-defined]
    await ctx.run(number_agent, "how many?", retry=2)  # type: ignore[arg-type]
    assert_type(await ctx.map(number_agent, ["a"], concurrency=2), list[ChatResponse[int]])
    assert_type(await ctx.map(with_deps, range(3)), list[int])
    assert_type(await ctx.map(with_deps, range(3), on_error="continue"), list[int | Exception])
    answers = await ctx.map(number_agent, ["a"], on_error="continue")
    assert_type(answers, list[ChatResponse[int] | Exception])
    assert_type(ctx.record_usage(model="acme:x", cost_usd="0.1"), RequestRecord)
    assert_type(ctx.record_usage(model="acme:x", cost_usd=0.1), RequestRecord)
    ctx.record_usage(model="acme:x", cost_usd=b"0.1")  # type: ignore[arg-type]
    async with ctx.spend("0.1", model="acme:x") as purchase:
        assert_type(purchase, Spend)
        assert_type(purchase.settle("0.05"), RequestRecord)
    with ctx.spend(model="acme:x", units={"queries": 2}, price_usd="0.01") as purchase:
        assert_type(purchase.settle(units={"queries": 1}), RequestRecord)
    ctx.spend(["0.1"])  # type: ignore[arg-type]  # not an amount
    return response.output


@step
async def converses(ctx: StepContext) -> ConversationState[dict[str, str]]:
    return ConversationState(ConversationStatus.INCOMPLETE, data={"name": "Ada"})


class Custom(BaseStep[Deps, str]):
    config = StepConfig(retries=1)

    async def execute(self, context: StepContext[Deps]) -> str:
        return context.deps.tenant


class WrongOutput(BaseStep[Deps, str]):
    async def execute(self, context: StepContext[Deps]) -> int:  # type: ignore[override]
        return 1


pipeline = Pipeline[Deps, Any, str]("p", {"no": no_deps, "with": with_deps, "own": Custom(), "as": asks})
nested = pipeline.as_step(lambda ctx: {"tenant": ctx.deps.tenant})
assert_type(nested, BaseStep[Deps, str])
Pipeline[OtherDeps, Any, str]("p", {"with": with_deps})  # type: ignore[dict-item]  # needs other deps
Pipeline("p", {"no": no_deps}, configs=PipelineConfig())  # type: ignore[call-arg]
PipelineConfig(max_concurency=3)  # type: ignore[call-arg]
StepConfig(max_concurrency=3)  # type: ignore[call-arg]


async def runs() -> None:
    result = await pipeline.execute({"text": "x"}, Deps())
    assert_type(result, PipelineResult[str])
    assert_type(result.output, str | None)
    assert_type(result.errors, Mapping[str, BaseException])
    assert_type(result.timings["own"], StepTiming)
    assert_type(result.usage.steps["own"], StepUsage)
    assert_type(result.usage.cost_microcents, int)
    assert_type(pipeline.execute_sync({"text": "x"}, Deps(), run_id="r"), PipelineResult[str])
    assert_type(pipeline.resume_sync("r", deps=Deps()), PipelineResult[str])
    assert_type(pipeline.fork_sync("r", at="own", deps=Deps()), PipelineResult[str])
    pipeline.execute_sync({"text": "x"}, OtherDeps())  # type: ignore[call-overload]
    pipeline.execute_sync({"text": "x"}, Deps(), customer="a")  # type: ignore[call-overload]
    pipeline.resume_sync()  # type: ignore[call-arg]
    await pipeline.execute({"text": "x"}, OtherDeps())  # type: ignore[call-overload]
    assert_type(await pipeline.run({"text": "x"}, Deps()), PipelineResult[str])
    assert_type(pipeline.run_sync({"text": "x"}, Deps()), PipelineResult[str])
    assert_type(pipeline.resume_stream("r", deps=Deps()), PipelineStream[str])
    assert_type(await pipeline.get_state("r"), RunSnapshot)
    assert_type(pipeline.follow("r", after=3), FollowedRun)
    assert_type(
        await pipeline.recover(deps_for=lambda run: Deps()), Mapping[str, PipelineResult[str] | Exception]
    )
    await pipeline.recover(deps_for=lambda run: OtherDeps())  # type: ignore[arg-type, return-value]
    await pipeline.run({"text": "x"}, OtherDeps())  # type: ignore[call-overload]
    assert_type(await split.resume("r", deps=Deps()), PipelineResult[str])
    assert_type(split.stream({"text": "x"}, Deps()), PipelineStream[str])
    async with pipeline.stream({"text": "x"}, Deps()) as stream:
        assert_type(stream, PipelineStream[str])
        async for event in stream:
            assert_type(event, RunEvent)
            match event:
                case StepStarted(step_id=step_id, cause=cause):
                    assert_type((step_id, cause), tuple[str, str])
                case TextChunk(text=text):
                    assert_type(text, str)
                case StepFinished(output=output):
                    assert_type(output, Any)
                case _:
                    pass
    assert_type(stream.result, PipelineResult[str] | None)


split = SplitPipeline[Deps, Any, str]("s", key=lambda inputs, deps: deps.tenant)
split.add_variant("a", pipeline, weight=1)
split.add_variant("b", Pipeline[OtherDeps, Any, str]("o", {"no": no_deps}), weight=1)  # type: ignore[arg-type]


# --- waits ---


class Found(Awaited[Decimal]):
    what = "price"

    async def look(self, wait: StepWait) -> WaitEnded | None:
        return wait.over(Decimal(1))


async def waits(ctx: StepContext) -> None:
    assert_type(await ctx.wait_for(Found()), Decimal)
    assert_type(await ctx.wait_for(Found(), name="second"), Decimal)
    assert_type(ctx.wait_for_sync(Found()), Decimal)
