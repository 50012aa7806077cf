"""Agents, pipelines and routers as steps."""

import asyncio
from collections.abc import Mapping
from time import perf_counter
from typing import Any

import pytest
from support.agents import paid_agent
from support.patience import PATIENCE
from support.steps import failure_of, run_alone

from fastroai import Graph
from fastroai.errors import StepExecutionError
from fastroai.pipelines import (
    BasePipeline,
    BaseStep,
    Pipeline,
    PipelineConfig,
    StepConfig,
    StepContext,
    step,
)
from fastroai.store import MemoryRunStore


@step
async def shout(ctx: StepContext) -> str:
    return str(ctx.get_input("text")).upper()


@step
async def spends(ctx: StepContext) -> str:
    return (await ctx.run(paid_agent(100), "hello")).output


@step
async def fails(ctx: StepContext) -> None:
    raise ValueError("inside")


class Only(BasePipeline[Any, Any]):
    """A router with one way to go."""

    def __init__(self, pipeline: Pipeline[Any, Any]) -> None:
        super().__init__("only")
        self.register_pipeline("one", pipeline)

    async def route(self, inputs: Mapping[str, Any], deps: Any) -> str:
        return "one"


def as_pipeline(pipeline: Pipeline[Any, Any]) -> Pipeline[Any, Any]:
    return pipeline


NESTED = pytest.mark.parametrize("make", [as_pipeline, Only])


@NESTED
async def test_its_output_is_the_steps_output(make: Any) -> None:
    inner = make(Pipeline[Any, Any]("inner", {"shout": shout}))
    result = await run_alone(inner.as_step(), inputs={"text": "hello"})
    assert result.output == "HELLO"


@NESTED
async def test_it_gets_the_inputs_of_the_run_and_the_outputs_that_the_step_needs(make: Any) -> None:
    @step
    async def tell(ctx: StepContext) -> dict[str, Any]:
        return dict(ctx.inputs)

    inner = make(Pipeline[Any, Any]("inner", {"tell": tell}))
    outer = Pipeline[Any, Any](
        "outer",
        {"before": shout, "shout": shout, "beside": shout, "inner": inner.as_step()},
        {"shout": ["before"], "inner": ["shout"]},
        output_step="inner",
    )
    result = await outer.execute({"text": "hello", "shout": "an input of the same name"})
    assert result.output == {"text": "hello", "shout": "HELLO"}


@NESTED
async def test_its_inputs_can_be_made_from_the_context(make: Any) -> None:
    inner = make(Pipeline[Any, Any]("inner", {"shout": shout}))
    made = inner.as_step(lambda ctx: {"text": ctx.get_input("name") + "!"})
    assert (await run_alone(made, inputs={"name": "ada"})).output == "ADA!"


@NESTED
async def test_it_gets_the_deps_of_the_run(make: Any) -> None:
    @step
    async def deps(ctx: StepContext[str]) -> str:
        return ctx.deps

    inner = make(Pipeline[Any, Any]("inner", {"deps": deps}))
    assert (await run_alone(inner.as_step(), deps="the deps")).output == "the deps"


@NESTED
async def test_what_it_spends_is_the_steps_and_the_runs(make: Any) -> None:
    inner = make(Pipeline[Any, Any]("inner", {"a": spends, "b": spends}, {"b": ["a"]}))
    outer = Pipeline[Any, Any]("outer", {"nested": inner.as_step(), "more": spends}, {"more": ["nested"]})
    result = await outer.execute()
    assert result.usage.steps["nested"].cost_microcents == 200
    assert result.usage.cost_microcents == 300
    assert [record.step_id for record in result.usage.records] == ["a", "b", "more"]


@NESTED
async def test_a_failure_inside_names_every_step_on_the_way(make: Any) -> None:
    inner = make(Pipeline[Any, Any]("inner", {"works": spends, "fails": fails}, {"fails": ["works"]}))
    error = await failure_of(inner.as_step())
    assert isinstance(error, StepExecutionError)
    assert (error.step_id, str(error.original_error)) == ("fails", "inside")
    assert list(error.step_outputs) == ["works"]


@NESTED
async def test_the_run_has_one_id(make: Any) -> None:
    @step
    async def run_id(ctx: StepContext) -> str:
        return ctx.run_id

    result = await run_alone(make(Pipeline[Any, Any]("inner", {"id": run_id})).as_step())
    assert result.output == result.run_id


@NESTED
async def test_it_may_have_a_config_like_any_step(make: Any) -> None:
    nested: BaseStep[Any, Any] = make(Pipeline[Any, Any]("inner", {"fails": fails})).as_step(
        config=StepConfig(on_error="continue")
    )
    outer = Pipeline[Any, Any]("outer", {"nested": nested, "works": spends}, output_step="works")
    assert (await outer.execute()).output == "answer to hello"


async def test_a_nested_run_whose_output_step_could_not_run_fails_with_the_reason() -> None:
    inner = Pipeline[Any, Any](
        "inner",
        {"fails": fails, "end": spends},
        {"end": ["fails"]},
        config=PipelineConfig(on_error="continue"),
    )
    error = await failure_of(inner.as_step())
    assert isinstance(error, StepExecutionError)
    assert (error.step_id, str(error.original_error)) == ("fails", "inside")
    assert error.__cause__ is error.original_error


async def test_a_nested_run_whose_output_is_none_has_an_output() -> None:
    @step
    async def saves(ctx: StepContext) -> None: ...

    inner = Pipeline[Any, Any](
        "inner",
        {"optional": fails, "saves": saves},
        output_step="saves",
        config=PipelineConfig(on_error="continue"),
    )
    result = await run_alone(inner.as_step())
    assert result.ok
    assert result.step_outputs == {"alone": None}


async def test_pipelines_nest_to_any_depth() -> None:
    pipeline = Pipeline[Any, Any]("p0", {"s": spends})
    for depth in range(1, 20):
        pipeline = Pipeline[Any, Any](f"p{depth}", {"s": pipeline.as_step()})
    result = await pipeline.execute()
    assert result.output == "answer to hello"
    assert result.usage.cost_microcents == 100


async def test_a_pipeline_that_a_step_executes_itself_is_inside_that_step() -> None:
    inner = Pipeline[Any, Any]("inner", {"spends": spends})

    async def executes(ctx: StepContext) -> Any:
        inside = await inner.execute()
        assert inside.run_id == ctx.run_id
        return inside.usage.cost_microcents

    result = await run_alone(executes)
    assert result.output == result.usage.steps["alone"].cost_microcents == 100


def test_nested_steps_can_be_told_apart() -> None:
    inner = Pipeline[Any, Any]("inner", {"s": spends})
    assert repr(inner.as_step()) == "<step of Pipeline('inner', 1 steps)>"
    assert repr(Only(inner).as_step()) == "<step of Only('only', pipelines=['one'])>"


# --- agents ---


@pytest.mark.parametrize("store", [None, MemoryRunStore()], ids=["no store", "a store"])
async def test_times_of_a_run_in_the_code_of_a_step_are_since_its_own_start(
    store: MemoryRunStore | None,
) -> None:
    @step
    async def quick(ctx: StepContext) -> None: ...

    inner = Pipeline[Any, Any]("p", {"quick": quick}), Graph[Any, Any]("g", nodes={"quick": quick})

    @step
    async def runs(ctx: StepContext) -> None:
        await asyncio.sleep(0.1)
        for one in inner:
            began = perf_counter()
            usage = (await one.execute()).usage
            assert usage.processing_time_ms <= (perf_counter() - began) * 1000

    await Pipeline[Any, Any]("outer", {"runs": runs}).execute(store=store)


async def test_an_agent_is_a_step_with_a_prompt() -> None:
    result = await run_alone(paid_agent(100).as_step("hello"))
    assert result.output == "answer to hello"
    assert result.usage.steps["alone"].cost_microcents == 100


async def test_the_step_of_an_agent_may_have_a_config() -> None:
    attempts = 0

    async def fails_once(prompt: str) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ValueError("once")

    made = paid_agent(before=fails_once).as_step("hello", config=StepConfig(retries=1, retry_delay=0))
    assert (await run_alone(made)).output == "answer to hello"
    assert repr(made) == "<step of FastroAgent(name='agent')>"


async def test_cancelling_through_a_nested_pipeline_cancels_the_run_that_has_the_id() -> None:
    arrived = asyncio.Event()

    @step
    async def waits(ctx: StepContext) -> None:
        arrived.set()
        await asyncio.Event().wait()

    inner = Pipeline[Any, Any]("inner", {"waits": waits})
    outer = Pipeline[Any, Any]("outer", {"inner": inner.as_step()})
    run = asyncio.create_task(outer.execute(run_id="r"))
    await asyncio.wait_for(arrived.wait(), PATIENCE)
    await inner.cancel("r")
    result = await run
    assert (result.status, result.output, result.errors) == ("cancelled", None, {})


async def test_a_pipeline_that_is_asked_to_pause_halts_before_the_next_step_of_a_nested_one() -> None:
    @step
    async def quick(ctx: StepContext) -> str:
        await outer.pause(ctx.run_id)
        return "quick"

    inner = Pipeline[Any, Any]("inner", {"one": quick, "two": quick}, {"two": ["one"]})
    outer = Pipeline[Any, Any]("outer", {"inner": inner.as_step(), "after": quick}, {"after": ["inner"]})
    result = await outer.execute()
    assert (result.status, result.resume_at) == ("paused", ("inner",))
    assert result.step_outputs == {}
