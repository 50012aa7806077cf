"""What an editor infers where nothing is annotated. Checked by mypy and pyright, never run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, assert_type

from pydantic_ai import Agent

from fastroai import BaseStep, ChatResponse, FastroAgent, Pipeline, StepContext, step
from fastroai.agent import ChatStream
from fastroai.pipelines import FunctionStep


@dataclass
class Deps:
    tenant: str


@dataclass
class MoreDeps(Deps):
    user: str


@dataclass
class Other: ...


# The defaults of PydanticAI's type variables hold.
agent = FastroAgent("openai:gpt-5-mini")
assert_type(agent, FastroAgent[object, str])
tenants_agent = FastroAgent("openai:gpt-5-mini", deps_type=Deps)
assert_type(tenants_agent, FastroAgent[Deps, str])
assert_type(FastroAgent(agent=Agent("openai:gpt-5-mini")), FastroAgent[object, str])


# `step` is known, with options and without.
@step
async def bare(ctx: StepContext[Deps]) -> str:
    return ctx.deps.tenant


@step(retries=2)
async def configured(ctx: StepContext[Deps]) -> int:
    return 1


assert_type(bare, FunctionStep[Deps, str])
assert_type(configured, FunctionStep[Deps, int])


# A union, a literal and annotated types are types too; a type checker knows no word for their values.
@step
async def unions(ctx: StepContext[Deps]) -> str:
    maybe: str | None = ctx.get_dependency("bare", str | None)
    several: str | list[int] = ctx.get_dependency("bare", str | list[int])
    kind: Literal["a", "b"] = ctx.get_dependency("bare", Literal["a", "b"])
    count: int | None = ctx.get_dependency_or_none("configured", Annotated[int, "at least one"])
    assert_type(ctx.get_dependency("bare", dict[str, int]), dict[str, int])
    ctx.get_dependency("bare", str, 3)  # type: ignore[call-overload]
    return f"{maybe} {several} {kind} {count}"


# So are those of inputs; anything else is a default.
@step
async def inputs(ctx: StepContext[Deps]) -> str:
    assert_type(ctx.get_input("text", str), str)
    assert_type(ctx.get_input("deps", Deps), Deps)
    maybe: str | None = ctx.get_input("text", str | None)
    default: str = ctx.get_input("text", "none")
    return f"{maybe} {default}"


# A lambda in a pipeline has the deps of the pipeline, else those of the agent.
def of_less(ctx: StepContext[Deps]) -> str:
    return ctx.deps.tenant


async def of_more(ctx: StepContext[MoreDeps]) -> str:
    return ctx.deps.user


pipeline = Pipeline[Deps, Any, str](
    "p",
    {
        "ask": agent.as_step(lambda ctx: f"Say {ctx.deps.tenant.upper()}"),
        "ask_in_turn": tenants_agent.as_step(lambda ctx: ctx.deps.tenant),
    },
)
Pipeline[Deps, Any, str]("p", {"ask": agent.as_step(lambda ctx: ctx.deps.tenat)})  # type: ignore[attr-defined]
inputs_only: BaseStep[Deps, str] = agent.as_step(lambda ctx: ctx.get_input("text"))
also: BaseStep[MoreDeps, str] = tenants_agent.as_step(of_more)
fits: BaseStep[MoreDeps, str] = agent.as_step(of_less)
agent.as_step(lambda ctx: 3)  # type: ignore[arg-type, return-value]


# Deps and options of the wrong type are noticed, wherever they stand. Missing deps are not, as in PydanticAI.
async def asks() -> None:
    assert_type(await tenants_agent.run("hi", deps=Deps("a")), ChatResponse[str])
    assert_type(await tenants_agent.run("hi", Deps("a")), ChatResponse[str])
    assert_type(await tenants_agent.run("hi", Deps("a"), output_type=int), ChatResponse[int])
    assert_type(await tenants_agent.run(message="hi", deps=MoreDeps("a", "b")), ChatResponse[str])
    assert_type(await agent.run("hi", timeout=3), ChatResponse[str])
    assert_type(await agent.run(message="hi", output_type=int), ChatResponse[int])
    assert_type(agent.run_sync("hi", request_retries=0), ChatResponse[str])
    assert_type(tenants_agent.run_sync("hi", deps=Deps("a"), output_type=int), ChatResponse[int])
    assert_type(tenants_agent.run_stream("hi", deps=Deps("a")), ChatStream[str])
    await tenants_agent.run("hi", deps=Other())  # type: ignore[call-overload]
    await tenants_agent.run("hi", Deps("a"), timeout="3")  # type: ignore[call-overload]
    tenants_agent.run_sync("hi", Other())  # type: ignore[call-overload]
    tenants_agent.run_stream("hi", deps=Other())  # type: ignore[call-overload]
    tenants_agent.run_stream_events("hi", deps=Other())  # type: ignore[call-overload]
    tenants_agent.run_stream("hi", event_stream_handler=None)  # type: ignore[call-overload]
    agent.run_sync("hi", output_type=int, timout=3)  # type: ignore[call-overload]
    await tenants_agent.estimate("hi", deps=Other())  # type: ignore[arg-type]
    await agent.estimate("hi", modle="gpt-5-mini")  # type: ignore[call-arg]
    agent.estimate_sync("hi", model=3)  # type: ignore[arg-type]


# A hook takes the event of its kind, its exception, or nothing.
def alarm(error: Exception) -> None: ...


@step(on_step_failure=alarm, on_retry=alarm)
async def watched(ctx: StepContext[Deps]) -> str:
    return "a"


@step(on_step_failure=lambda event: print(event.usage), on_retry=lambda event: print(event.used))
async def also_watched(ctx: StepContext[Deps]) -> str:
    return "a"


@step(on_step_success=alarm)  # type: ignore[arg-type]  # which has no exception
async def watched_in_vain(ctx: StepContext[Deps]) -> str:
    return "a"


@step(on_step_start=lambda: None, on_step_failure=lambda event: print(event.error.args))
async def hooked(ctx: StepContext[Deps]) -> str:
    return "a"
