"""What a run has spent is the sum of its parts, at every depth and whatever failed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.agents import paid_agent
from support.examples import examples

from fastroai.pipelines import BaseStep, Pipeline, PipelineConfig, PipelineResult, StepContext
from fastroai.records import Usage
from fastroai.steps import StepUsage


@dataclass
class Spends(BaseStep[Any, None]):
    """Asks agents, pays elsewhere, and may fail after that."""

    asks: list[int]
    pays: list[Decimal]
    fails: bool

    async def execute(self, context: StepContext[Any]) -> None:
        for microcents in self.asks:
            await context.run(paid_agent(microcents), "hello")
        for cost in self.pays:
            context.record_usage(model="acme:search", cost_usd=cost)
        if self.fails:
            raise ValueError("after spending")

    @property
    def cost(self) -> Decimal:
        return Decimal(sum(self.asks)) / 1_000_000 + sum(self.pays, Decimal(0))


@dataclass
class Nests(BaseStep[Any, Any]):
    """Runs a pipeline of its own, and keeps its result to be looked at."""

    children: list[Spends | Nests]
    results: list[PipelineResult[Any]] = field(default_factory=list)

    def pipeline(self) -> Pipeline[Any, Any]:
        names = [f"child{number}" for number in range(len(self.children))]
        return Pipeline(
            "nested",
            dict(zip(names, self.children, strict=True)),
            output_step=names[0],
            config=PipelineConfig(on_error="continue"),
        )

    async def execute(self, context: StepContext[Any]) -> None:
        self.results.append(await self.pipeline().execute())

    @property
    def cost(self) -> Decimal:
        return sum((child.cost for child in self.children), Decimal(0))


spending = st.builds(
    Spends,
    st.lists(st.integers(1, 10**6), max_size=2),
    st.lists(st.decimals(0, 1, places=9), max_size=2),
    st.booleans(),
)
trees = st.builds(
    Nests,
    st.lists(
        st.recursive(
            spending, lambda inner: st.builds(Nests, st.lists(inner, min_size=1, max_size=3)), max_leaves=6
        ),
        min_size=1,
        max_size=3,
    ),
)


def assert_adds_up(result: PipelineResult[Any], node: Nests) -> None:
    usage, steps = result.usage, list(result.usage.steps.values())
    assert usage.cost_usd == node.cost == sum((one.cost_usd for one in steps), Decimal(0))
    for name in COUNTS:
        assert getattr(usage.total, name) == sum(getattr(one, name) for one in steps)
    assert sorted(map(id, usage.records)) == sorted(id(record) for one in steps for record in one.records)
    again = Usage.of(list(usage.records))
    assert (again.cost_usd, again.total_tokens) == (usage.cost_usd, usage.total_tokens)
    for child, spent in zip(node.children, steps, strict=True):
        assert spent.cost_usd == child.cost
        if isinstance(child, Nests):
            [inner] = child.results
            assert_adds_up(inner, child)
            assert spent.cost_usd == inner.usage.cost_usd
            assert spent.agent_call_count == inner.usage.agent_call_count


COUNTS = [
    name
    for name in StepUsage.__dataclass_fields__
    if name in Usage.__dataclass_fields__ and name.endswith(("tokens", "count", "requests", "calls"))
]


# Every example runs a few agents, so a quarter of the usual number has to do.
@settings(max_examples=examples(13))
@given(trees)
def test_a_run_has_spent_what_its_steps_have_spent(tree: Nests) -> None:
    assert_adds_up(asyncio.run(tree.pipeline().execute()), tree)
