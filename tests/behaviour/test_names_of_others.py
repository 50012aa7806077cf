"""What users of PydanticAI and of earlier systems look for in pipelines, tools and prices.

For agents, see `agent/test_names_of_others.py`.
"""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Mapping
from decimal import Decimal
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
    PipelineConfig,
    StepContext,
    safe_tool,
    step,
)
from fastroai.errors import ConfigurationError, InputTypeError, StepExecutionError
from fastroai.graphs.result import GraphUsage
from fastroai.pipelines import StepUsage
from fastroai.store import MemoryRunStore
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


async def test_a_result_says_how_its_run_ended_and_whether_it_was_resumed() -> None:
    store = MemoryRunStore()
    fails = [True]

    @step
    async def once(ctx: StepContext) -> str:
        if fails.pop():
            raise ValueError("the first time")
        return "done"

    pipeline = Pipeline("p", {"once": once})
    with pytest.raises(StepExecutionError):
        await pipeline.execute(run_id="r", store=store)
    fails.append(False)
    result = await pipeline.resume("r", store=store)
    assert (result.status, result.was_resumed) == ("finished", True)
    fails.append(False)
    assert not (await pipeline.execute()).was_resumed


async def test_a_result_is_dumped_as_json() -> None:
    dumped = (await router().execute({"text": "one"}, Deps())).model_dump()
    assert json.loads(json.dumps(dumped)) == dumped
    assert (dumped["output"], dumped["routes"]) == ("answer to one, Mia", ["reply"])
    assert dumped["usage"]["total"]["cost_usd"] == "0.00012"


async def test_a_router_replays_its_runs() -> None:
    trace = (await router().execute({"text": "one"}, Deps())).trace
    assert router().replay(trace) is None
    other = Router("other")
    assert "a run of pipeline 'other'" in str(other.replay(trace))


async def test_a_tracer_is_made_where_a_pipeline_asks_for_spans(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fastroai.tracing")
    steps: Mapping[str, Any] = {"reply": Reply()}
    await Pipeline("p", steps, config=PipelineConfig(trace=True)).execute({"text": "one"}, Deps())
    assert any("pipeline p: started" in line for line in caplog.messages)
    assert any("step reply: ok" in line for line in caplog.messages)
    caplog.clear()
    await Pipeline("p", steps).execute({"text": "one"}, Deps())
    assert not caplog.messages


async def test_a_step_says_and_checks_the_type_of_an_input() -> None:
    async with step_context({"count": "many"}) as ctx:
        with pytest.raises(InputTypeError, match="count"):
            ctx.get_input("count", int)
        assert ctx.get_input("count", str) == "many"


async def test_a_step_is_tested_by_itself() -> None:
    async with step_context({"text": "one"}, Deps()) as ctx:
        assert await Reply().execute(ctx) == "answer to one, Mia"
        assert ctx.usage.cost_microcents == 120


@pytest.mark.parametrize("option", ["on_step_failure", "on_retry"])
async def test_hooks_take_nothing_the_event_or_the_exception(option: str) -> None:
    told: list[object] = []

    @step
    async def fails(ctx: StepContext) -> None:
        raise ConnectionRefusedError("not up")

    def of_error(error: Exception) -> None:
        told.append(str(error))

    for hook in (of_error, lambda event: told.append(event.step_id), lambda: told.append(None)):
        config = PipelineConfig(retries=1, retry_delay=0, **{option: hook})
        with pytest.raises(StepExecutionError):
            await Pipeline("p", {"fails": fails}, config=config).execute()
    assert told == ["not up", "fails", None]


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


def test_prices_may_be_positional() -> None:
    calculator = CostCalculator({})
    calculator.add_pricing_override("our-model", 2.0, Decimal(8))
    assert calculator.calculate_cost("our-model", 1_000, 200) == 3_600
    calculator.add_pricing_override("our-model", 2.0, 8.0, cache_read_per_mtok=1.0)
    assert calculator.calculate_cost("our-model", 1_000, 200, 1_000) == 2_600


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
