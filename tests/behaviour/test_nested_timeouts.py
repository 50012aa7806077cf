"""`timeout` bounds an attempt at a step's own code: what is nested in it has limits of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.virtual_time import in_virtual_time, now

from fastroai import BasePipeline, Pipeline, PipelineConfig, StepConfig, StepContext, StepExecutionError, step
from fastroai.errors import TimeLimitExceeded
from fastroai.graphs import Edge, Graph

TIMEOUT = PipelineConfig(timeout=2, retries=0)


@step
async def work(ctx: StepContext) -> str:
    await asyncio.sleep(1)
    return "done"


class Only(BasePipeline[Any, Any]):
    """A router that takes its time."""

    async def route(self, inputs: Any, deps: Any) -> str:
        await asyncio.sleep(3)
        return "only"


def pipeline() -> Pipeline[Any, Any]:
    return Pipeline("inner", {"a": work, "b": work, "c": work}, {"b": ["a"], "c": ["b"]})


def router() -> Only:
    only = Only("router")
    only.register_pipeline("only", pipeline())
    return only


def graph() -> Graph[Any, Any]:
    return Graph("inner", nodes={"a": work, "b": work, "c": work}, edges=[Edge("a", "b"), Edge("b", "c")])


@step
async def runs_them(ctx: StepContext) -> str:
    await pipeline().execute()
    await router().execute()
    await graph().run()
    return "done"


NESTED: list[Any] = [pipeline().as_step(), router().as_step(), graph().as_step(), runs_them]


@in_virtual_time
@pytest.mark.parametrize("nested", NESTED, ids=["pipeline", "router", "graph", "by hand"])
async def test_an_inherited_timeout_is_no_total_one_of_what_is_nested(nested: Any) -> None:
    around = Pipeline[Any, Any]("around", {"nested": nested}, config=TIMEOUT)
    assert (await around.execute()).output == "done"
    node = Graph("around", nodes={"nested": nested}, config=TIMEOUT)
    assert (await node.run()).output == "done"


@in_virtual_time
@pytest.mark.parametrize("nested", NESTED, ids=["pipeline", "router", "graph", "by hand"])
async def test_a_total_timeout_is(nested: Any) -> None:
    around = Pipeline[Any, Any](
        "around", {"nested": nested}, step_configs={"nested": StepConfig(total_timeout=2)}
    )
    with pytest.raises(StepExecutionError) as caught:
        await around.execute()
    assert isinstance(caught.value.original_error, TimeLimitExceeded)
    assert now() == 2


@in_virtual_time
async def test_the_rest_of_the_code_of_the_step_has_its_time() -> None:
    @step(timeout=2)
    async def mixed(ctx: StepContext) -> None:
        await asyncio.sleep(1.5)
        await pipeline().execute()
        await asyncio.sleep(1)

    with pytest.raises(StepExecutionError, match="step 'mixed' took longer than 2 s"):
        await Pipeline[Any, Any]("around", {"mixed": mixed}).execute()
    assert now() == 1.5 + 3 + 0.5
