"""What users of PydanticAI and of earlier systems look for in pipelines, tools and prices.

For agents, see `agent/test_names_of_others.py`.
"""

from __future__ import annotations

import json
import pickle
from typing import Any, TypedDict

import pydantic_ai
import pytest
from pydantic_ai.models.test import TestModel
from support.agents import paid_agent

import fastroai
from fastroai import (
    BasePipeline,
    BaseStep,
    CostCalculator,
    FastroAgent,
    Graph,
    Pipeline,
    StepContext,
    safe_tool,
    step,
)
from fastroai.errors import ConfigurationError, InputTypeError
from fastroai.graphs.result import GraphUsage
from fastroai.pipelines import StepUsage
from fastroai.testing import step_context
from fastroai.tools import SafeToolset


class Ticket(TypedDict):
    text: str


class Deps:
    clerk = "Mia"


class Reply(BaseStep[Deps, str]):
    async def execute(self, context: StepContext[Deps]) -> str:
        response = await context.run(paid_agent(120), context.get_input("text", str))
        return f"{response.output}, {context.deps.clerk}"


class Router(BasePipeline[Deps, Ticket, str]):
    async def route(self, inputs: Ticket, deps: Deps) -> str:
        return "reply"


def router() -> Router:
    made = Router("support")
    made.register_pipeline("reply", Pipeline[Deps, Ticket, str]("reply", {"reply": Reply()}))
    return made


# --- pipelines ---


async def test_pipelines_have_types_for_deps_inputs_and_output() -> None:
    pipeline = Pipeline[Deps, Ticket, str]("support", {"reply": Reply()}, accepts=Ticket)
    assert (await pipeline.execute({"text": "one"}, Deps())).output == "answer to one, Mia"
    assert (await router().execute({"text": "one"}, Deps())).output == "answer to one, Mia"


async def test_types_may_be_left_out_from_the_right() -> None:
    for kind in (Pipeline[Deps], Pipeline[Deps, Ticket], Pipeline):
        assert (await kind("p", {"reply": Reply()}).execute({"text": "one"}, Deps())).ok


async def test_a_result_is_dumped_as_json() -> None:
    dumped = (await router().execute({"text": "one"}, Deps())).model_dump()
    assert json.loads(json.dumps(dumped)) == dumped
    assert (dumped["output"], dumped["routes"]) == ("answer to one, Mia", ["reply"])
    assert dumped["usage"]["total"]["cost_usd"] == "0.00012"


async def test_a_step_says_and_checks_the_type_of_an_input() -> None:
    async with step_context({"count": "many"}) as ctx:
        with pytest.raises(InputTypeError, match="count"):
            ctx.get_input("count", int)
        assert ctx.get_input("count", str) == "many"


# --- usage and prices ---


async def test_the_usage_of_agent_calls_adds_up_as_that_of_steps() -> None:
    calls = [await paid_agent(120).run("one"), await paid_agent(30).run("two")]
    one, two = map(StepUsage.from_chat_response, calls)
    assert (one.cost_usd, one.input_tokens, one.request_count, one.agent_call_count) == (
        calls[0].cost_usd,
        calls[0].input_tokens,
        1,
        1,
    )
    together = sum([one, two])
    assert isinstance(together, StepUsage)
    assert (together.cost_microcents, together.records) == (150, calls[0].records + calls[1].records)
    assert together.processing_time_ms == sum(call.processing_time_ms for call in calls)


async def test_the_usage_of_runs_adds_up() -> None:
    @step
    async def asks(ctx: StepContext) -> str:
        return (await ctx.run(paid_agent(60), "one")).output

    @step
    async def waits(ctx: StepContext) -> None:
        pass

    pipelines = (
        Pipeline("p", {"asks": asks}),
        Pipeline("q", {"asks": asks, "waits": waits}, output_step="asks"),
    )
    one, two = [(await pipeline.execute()).usage for pipeline in pipelines]
    both = one + two
    assert (both.cost_microcents, both.records) == (120, one.records + two.records)
    assert {step_id: usage.cost_microcents for step_id, usage in both.steps.items()} == {
        "asks": 120,
        "waits": 0,
    }
    assert both.by_model["function:paid"].request_count == 2
    assert both.processing_time_ms == one.processing_time_ms + two.processing_time_ms
    assert both.agent_calls == one.agent_calls + two.agent_calls
    assert both.timings == {}
    assert both.model_dump()["steps"] == both.steps
    assert (one.cost_microcents, len(one.by_model)) == (60, 1)
    pickled = pickle.loads(pickle.dumps(both))
    assert (pickled.cost_usd, pickled.steps, pickled.agent_calls) == (
        both.cost_usd,
        both.steps,
        both.agent_calls,
    )


async def test_the_usage_of_graphs_adds_up() -> None:
    @step
    async def asks(ctx: StepContext) -> str:
        return (await ctx.run(paid_agent(60), "one")).output

    graph = Graph[None]("g", nodes={"asks": asks}, edges=[])
    both = sum([(await graph.run()).usage for _ in range(2)])
    assert isinstance(both, GraphUsage)
    assert (both.cost_microcents, both.by_node["asks"].cost_microcents) == (120, 120)
    assert both.by_visit["asks", 1].request_count == 2


@pytest.mark.parametrize(
    ("positional", "named"), [([2.0], {}), ([1, 2, 3], {}), ([1, 2], {"input_per_mtok": 3})]
)
def test_positional_prices_are_those_of_input_and_output(
    positional: list[Any], named: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationError, match="add_pricing_override="):
        CostCalculator({}).add_pricing_override("our-model", *positional, **named)


# --- tools ---


async def test_tools_take_the_options_of_earlier_versions() -> None:
    attempts: list[str] = []

    @safe_tool(max_retries=1, on_error="no luck: {error}")
    async def search(query: str) -> str:
        attempts.append(query)
        raise OSError("offline")

    assert await search("x") == "no luck: OSError: offline"
    assert attempts == ["x", "x"]
    toolset = SafeToolset[object](tools=[search], name="web")
    assert toolset.wrapped.id == "web"
    agent = FastroAgent(TestModel(), toolsets=[toolset])
    (call,) = (await agent.run("look")).tool_calls
    assert call["tool_name"] == "search"


# --- names ---


def test_no_name_of_ours_hides_one_of_pydantic_ai_of_another_meaning() -> None:
    ours = {name for name in fastroai.__all__ if name in pydantic_ai.__all__}
    assert ours <= {"__version__"}
