"""A run of any kind, whose only work is a function of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastroai import (
    BasePipeline,
    Graph,
    Pipeline,
    PipelineConfig,
    StepConfig,
    StepContext,
    compute,
    flow,
    step,
)
from fastroai.workflows import Workflow

Body = Callable[["StepContext[Any] | None", str], Awaitable[object]]
"""The work: a function of the context, which flows do not have, and of the input `text`."""

SPEC = """\
version: "0.3"
contracts: {Done: {said: {type: string}}}
functions: {works: {mode: compute, intent: Do the work, output: Done}}
flows:
  w:
    input: {text: {type: string, default: ""}}
    steps:
      - {id: works, function: works, inputs: {text: $.input.text}}
"""


class Choice(BasePipeline[Any, Any, Any]):
    """A router with one pipeline, which takes long to choose it if its config limits the time for that."""

    async def route(self, inputs: Any, deps: Any) -> str:
        if self.config.timeout:
            await asyncio.sleep(100)
        return "only"


def door(kind: str, body: Body, settings: Mapping[str, Any]) -> Any:
    """A pipeline, graph, router, flow or workflow with these settings, whose only work is `body`.

    "graph as step" and its like are pipelines whose only step is this graph; "step of graph" is the same,
    with the settings in the config of the step.
    """
    if kind.startswith("step of "):
        inner = door(kind.removeprefix("step of "), body, {})
        return Pipeline("outer", {"inner": inner.as_step(config=StepConfig(**settings))})
    if kind.endswith(" as step"):
        return Pipeline("outer", {"inner": door(kind.removesuffix(" as step"), body, settings).as_step()})

    @step
    async def works(ctx: StepContext[Any]) -> Any:
        return await body(ctx, ctx.get_input("text", ""))

    if kind == "step":
        return Pipeline("p", {"works": works}, step_configs={"works": StepConfig(**settings)})
    if kind == "function":

        @compute
        async def works_alone(text: str = "") -> str:
            return str(await body(None, text))

        return works_alone
    config = PipelineConfig(**settings)
    if kind == "pipeline":
        return Pipeline("p", {"works": works}, config=config)
    if kind == "graph":
        return Graph("g", nodes={"works": works}, config=config)
    if kind == "flow":

        @flow(config=config)
        async def works_too(text: str = "") -> str:
            return str(await body(None, text))

        return works_too
    if kind == "workflow":

        async def works_as_well(ctx: StepContext[Any], text: str) -> dict[str, str]:
            return {"said": str(await body(ctx, text))}

        return Workflow.load(SPEC).bind(functions={"works": works_as_well}, config=config)
    router = Choice("r", config=config)
    router.register_pipeline("only", Pipeline("p", {"works": works}))
    return router
