"""Runs of every kind for the page of a run, with all that can be on it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from fastroai import FastroAgent, Graph, Pipeline, StepConfig, StepContext, Workflow, step
from fastroai.errors import StepExecutionError
from fastroai.functions import compute, flow, parallel
from fastroai.graphs import Edge
from fastroai.store import RunStore
from support.agents import paid_agent
from support.viewing import HOSTILE, LABEL


@step
async def quick(ctx: StepContext[Any]) -> str:
    return "quick"


@step
async def echo(ctx: StepContext[Any]) -> str:
    return f"{ctx.get_dependency('first')}, {ctx.get_input('word')}"


@step(retries=1, retry_delay=0.001)
async def flaky(ctx: StepContext[Any]) -> str:
    if ctx.attempt == 1:
        raise ConnectionError("not yet")
    return "done"


@step
async def asks(ctx: StepContext[Any]) -> bool:
    return await ctx.ask("May it go out?", bool)


@step(retries=0)
async def hostile(ctx: StepContext[Any]) -> str:
    raise ValueError(HOSTILE)


@compute()
async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


@flow()
async def sums(number: int) -> int:
    one, other = await parallel(double(number), double(number + 1))
    return await double(one + other)


def sayer(name: str = "sayer") -> FastroAgent[Any, str]:
    return paid_agent(3, name=name, answer=lambda prompt: f"{HOSTILE} {prompt}")


def desk() -> Pipeline[Any, Any, str]:
    """A pipeline with a nested one, a flow, an agent, and a retry."""
    inner = Pipeline[Any, Any, str](
        "inner", {"flaky": flaky, "say": sayer().as_step("hello")}, {"say": ["flaky"]}
    )
    return Pipeline[Any, Any, str](
        "desk",
        {
            "first": quick,
            "sums": sums.as_step(lambda ctx: {"number": 1}),
            "review": inner.as_step(),
            "echo": echo,
        },
        {"review": ["first", "sums"], "echo": ["review", "first"]},
    )


def strange() -> Pipeline[Any, Any, str]:
    """A pipeline whose names, values and failure are hostile, with a large output."""

    @step
    async def large(ctx: StepContext[Any]) -> dict[str, str]:
        return {HOSTILE: HOSTILE, "large": "x" * 1_000_000}

    return Pipeline[Any, Any, str](
        LABEL,
        {LABEL: large, "say": sayer(LABEL).as_step(lambda ctx: HOSTILE), "fails": hostile},
        {"say": [LABEL], "fails": ["say"]},
        step_configs={"fails": StepConfig(retries=0)},
    )


def essay() -> Graph[Any, Any]:
    @step
    async def draft(ctx: StepContext[Any]) -> dict[str, int]:
        return {"n": ctx.visit}

    return Graph(
        "essay",
        nodes={"draft": draft, "review": desk().as_step(), "asks": asks},
        edges=[
            Edge("draft", "draft", when="conditional", condition="draft.n < 2"),
            Edge("draft", "review", when="conditional", condition="draft.n >= 2"),
            Edge("review", "asks"),
        ],
        entry="draft",
    )


SPEC = """
version: "0.3"
contracts: {Count: {words: {type: integer}}}
functions:
  count: {mode: compute, intent: Count the words, input: {text: {type: string}}, output: Count}
  publish: {mode: gate, intent: May it be published?}
flows:
  gated:
    input: {text: {type: string}}
    output: Count
    steps:
      - {id: words, function: count, inputs: {text: $.input.text}}
      - {id: approval, function: publish, on_approve: again, on_revise: words, on_kill: null}
      - {id: again, function: count, inputs: {text: $.input.text}}
"""


async def make_runs(store: RunStore) -> None:
    """Runs `desk`, `sums`, `essay`, `gated` and `strange`."""
    await desk().execute({"word": "one"}, run_id="desk", store=store)
    await sums.run(1, run_id="sums", store=store)
    await essay().execute({"word": "one"}, run_id="essay", store=store)
    workflow = Workflow.load(SPEC).bind(functions={"count": lambda text: {"words": len(text.split())}})
    await workflow.execute({"text": "a b"}, run_id="gated", store=store)
    with suppress(StepExecutionError):
        await strange().execute({"word": HOSTILE}, run_id=LABEL, store=store, tags=[LABEL[:60]])
