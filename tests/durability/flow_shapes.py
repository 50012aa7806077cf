"""Flows that are killed: calls in line and side by side, code, flows in each other, people."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from durability.shapes import agent, ran
from support.flow_functions import function_of

from fastroai import FastroAgent, PipelineConfig, StepContext, flow
from fastroai.functions import HumanReviewContext, await_human, parallel
from fastroai.functions.flow_runs.flows import Flow


@dataclass(frozen=True)
class FlowShape:
    """A flow, its arguments, and what people answer, by question."""

    flow: Flow[Any, Any]
    inputs: Mapping[str, Any]
    answers: Mapping[str, Any] = field(default_factory=dict)


FLOWS: Final[dict[str, Callable[[PipelineConfig], FlowShape]]] = {}


def shape(build: Callable[[PipelineConfig], FlowShape]) -> Callable[[PipelineConfig], FlowShape]:
    FLOWS[build.__name__] = build
    return build


def asking(name: str, one: FastroAgent[Any, Any]) -> Any:
    """A function that asks a model."""

    async def ask(context: StepContext[Any], text: str) -> str:
        ran(context)
        return str((await context.run(one, f"{name} {text}", name="attempt 1")).output)

    return function_of(name, "infer", ask)


def computing(name: str, does: Callable[[str], Any]) -> Any:
    """A function that is code, which may be async."""

    async def compute(context: StepContext[Any], text: str) -> str:
        ran(context)
        made = does(text)
        return str(await made if asyncio.iscoroutine(made) else made)

    return function_of(name, "compute", compute)


@shape
def flow_of_all(config: PipelineConfig) -> FlowShape:
    """Everything that a flow can do."""
    ask, shorten = asking("ask", agent("ask")), computing("shorten", lambda text: text.replace("echo: ", ""))

    async def wrong(context: StepContext[Any], text: str) -> str:
        ran(context)
        raise LookupError((await context.run(refusing, f"refuse {text}", name="attempt 1")).output)

    refusing = agent("refusing")
    refuse = function_of("refuse", "infer", wrong)

    async def both_ways(text: str) -> str:
        return f"{await ask(f'busy {text}')} and {await shorten(text)}"

    together = computing("together", both_ways)

    @flow
    async def inner(text: str) -> str:
        try:
            return str(await refuse(text))
        except LookupError as error:
            first, second = await asyncio.gather(ask("the same"), ask("the same"))
            return f"{error}, {first}, {second}"

    @flow(config=config)
    async def outer(text: str) -> list[str]:
        first = await shorten(await ask(text))
        found = await parallel(ask(f"one {first}"), together(first), inner(first), inner(f"other {first}"))
        decision = await await_human(HumanReviewContext("Send it?"), options=["yes", "no"])
        last = await ask(f"broken {decision.value} by {decision.reviewer}")
        return [first, *found, decision.value, last]

    return FlowShape(outer, {"text": "text"}, {"Send it?": "yes"})
