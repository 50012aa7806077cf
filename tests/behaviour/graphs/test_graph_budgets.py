"""Budgets around graphs, in them and of their nodes: none is crossed, every request is accounted once."""

from __future__ import annotations

import asyncio
from contextvars import Context
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage
from support.accounting import assert_account_matches, listed_cost
from support.agents import paid_agent, request_costs
from support.virtual_time import in_virtual_time, now

from fastroai import (
    Budget,
    CostBudgetExceeded,
    FastroAgent,
    Pipeline,
    PipelineConfig,
    SpendLimit,
    StepConfig,
    StepContext,
    StepExecutionError,
    budget_scope,
    step,
)
from fastroai.graphs import Edge, Graph, GraphResult, Node
from fastroai.testing import Fault, ModelServer, Reply, Usage

WIDTH = 8


@step
async def begin(ctx: StepContext) -> str:
    ctx.write("begun", value=True)
    return "begun"


@step
async def end(ctx: StepContext) -> list[str]:
    return sorted(ctx.direct_outputs)


def fan(agent: FastroAgent[Any, Any], **options: Any) -> Graph[Any, Any]:
    """Eight branches that ask, two of them in a nested graph, and one that is asked again in the end."""
    inner = Graph[Any, Any](
        "inner",
        nodes={"one": agent.as_step("inner one"), "two": agent.as_step("inner two")},
        edges=[Edge("one", "two")],
    )
    asking = {f"ask{number}": agent.as_step(f"question {number}") for number in range(WIDTH)}
    branches = [*asking, "inner"]
    return Graph(
        "fan",
        nodes={"begin": begin, **asking, "inner": inner, "end": agent.as_step("the end")},
        edges=[
            *(Edge("begin", branch) for branch in branches),
            *(Edge(branch, "end") for branch in branches),
        ],
        **options,
    )


def assert_adds_up(result: GraphResult[Any]) -> None:
    """The visits together, and the nodes together, are the whole."""
    for parts in (result.usage.by_visit, result.usage.by_node):
        assert sum((part.cost_usd for part in parts.values()), Decimal(0)) == result.usage.cost_usd
        assert sum(part.request_count for part in parts.values()) == result.usage.request_count
        assert sum(part.unmeasured_requests for part in parts.values()) == result.usage.unmeasured_requests


@pytest.mark.parametrize("places", [1, 3, None])
@pytest.mark.parametrize("reference", ["openai:gpt-5-mini", "anthropic:claude-haiku-4-5"], indirect=True)
async def test_a_budget_holds_in_the_middle_of_a_fan_out_and_what_was_done_is_in_the_result(
    server: ModelServer, reference: str, places: int | None
) -> None:
    server.rule(answer=lambda request: Reply("word " * 20, usage=Usage(30, 30)))
    agent = FastroAgent(server.model(reference), max_tokens=40)
    whole = await fan(agent, max_concurrency=places).run()
    assert whole.status == "finished"
    assert whole.usage.request_count == WIDTH + 3
    assert_account_matches(server.ledger, whole.usage.records, whole.usage.total)
    refused = await fan(agent, budget=Budget(microcents=1)).run()
    assert isinstance(refused.error, CostBudgetExceeded)
    assert refused.error.requested is not None
    server.ledger.clear()
    budget = Budget(microcents=whole.usage.cost_microcents // 2 + refused.error.requested)
    result = await fan(agent, max_concurrency=places, budget=budget).run()
    assert result.status == "budget_exceeded"
    assert isinstance(result.error, CostBudgetExceeded)
    assert result.error.scope_path == ("fan",)
    assert sum(map(listed_cost, server.ledger.billed), Decimal(0)) <= budget.usd
    assert result.usage.total.committed_usd <= budget.usd
    assert result.memory["begun"] is True
    assert 0 < result.usage.request_count < WIDTH + 3
    billed = {entry.response_id: listed_cost(entry) for entry in server.ledger.billed}
    settled = [record for record in result.usage.records if record.outcome == "settled"]
    assert [record.cost_usd for record in settled] == [billed.get(record.response_id) for record in settled]
    # What was cancelled on its way may not have reached the server.
    assert len(settled) <= len(billed) <= result.usage.request_count
    assert_adds_up(result)


async def test_every_attempt_is_in_the_usage_of_its_visit(server: ModelServer) -> None:
    server.rule(answer=lambda request: Reply("yes"))
    server.script(Reply(fault=Fault.status(503)), Reply("yes"), Reply(fault=Fault.status(400)))
    agent = FastroAgent(server.model("openai:gpt-5-mini"))
    graph = Graph(
        "g",
        nodes={"a": agent.as_step("a"), "b": agent.as_step("b"), "c": agent.as_step("c")},
        edges=[Edge("a", "b"), Edge("b", "c", when="on_failure")],
    )
    result = await graph.run()
    assert result.path == ["a", "b", "c"]
    assert (result.status, result.quality) == ("finished", "degraded")
    assert len(server.ledger.entries) == 4
    assert [usage.failed_requests for usage in result.usage.by_visit.values()] == [1, 1, 0]
    assert_account_matches(server.ledger, result.usage.records, result.usage.total)
    assert_adds_up(result)


@pytest.mark.parametrize(
    ("options", "paid"),
    [
        ({"budget": Budget(microcents=450)}, 4),
        ({"budget": Budget(requests=3)}, 3),
        ({"budget": SpendLimit(microcents=250, key="a graph")}, 2),
        ({"config": PipelineConfig(cost_budget=250)}, 2),
        ({"config": PipelineConfig(cost_budget=100), "budget": Budget(microcents=250)}, 1),
    ],
)
async def test_each_kind_of_budget_ends_the_run(options: dict[str, Any], paid: int) -> None:
    result = await fan(paid_agent(100), max_concurrency=1, **options).run()
    assert result.status == "budget_exceeded"
    assert result.usage.request_count == paid
    assert_adds_up(result)


@in_virtual_time
async def test_the_time_of_a_graph_ends_it_and_that_of_a_node_is_the_nodes_own() -> None:
    async def sleep_long(ctx: StepContext) -> None:
        await asyncio.sleep(10)

    edges = [Edge("begin", "slow"), Edge("slow", "end", when="on_failure")]
    nodes: dict[str, Any] = {"begin": begin, "slow": step(sleep_long), "end": end}
    result = await Graph("g", nodes=nodes, edges=edges, budget=Budget(ms=2000)).run()
    assert (result.status, now()) == ("budget_exceeded", 2)
    assert result.outputs == {"begin": "begun"}
    nodes["slow"] = step(budget=Budget(ms=3000))(sleep_long)
    result = await Graph("g", nodes=nodes, edges=edges).run()
    assert (result.status, result.path, now()) == ("finished", ["begin", "slow", "end"], 5)


# --- whose budget it is ---


@pytest.mark.parametrize("where", ["config", "call", "agent"])
async def test_a_nodes_own_budget_is_a_failure_that_its_edges_handle(where: str) -> None:
    agent = paid_agent(100, cost_budget=50) if where == "agent" else paid_agent(100)

    @step
    async def call(ctx: StepContext) -> str:
        return (await ctx.run(agent, "?", cost_budget=50)).output

    node = (
        call
        if where == "call"
        else agent.as_step("?", config=StepConfig(cost_budget=50) if where == "config" else None)
    )
    graph = Graph("g", nodes={"a": node, "end": end}, edges=[Edge("a", "end", when="on_failure")])
    result = await graph.run()
    assert (result.status, result.path) == ("finished", ["a", "end"])
    assert isinstance(result.errors["a"], CostBudgetExceeded)


async def test_a_budget_of_a_run_elsewhere_is_an_ordinary_failure() -> None:
    agent = paid_agent(100)

    @step
    async def elsewhere(ctx: StepContext) -> object:
        return await asyncio.create_task(agent.run("?", cost_budget=50), context=Context())

    graph = Graph("g", nodes={"a": elsewhere, "end": end}, edges=[Edge("a", "end", when="on_failure")])
    assert (await graph.run()).path == ["a", "end"]
    around: Pipeline[Any, Any] = Pipeline("p", {"a": elsewhere})
    with pytest.raises(StepExecutionError):
        await around.execute()


async def test_a_budget_around_a_graph_is_its_result_outermost_and_is_raised_inside_of_another_run() -> None:
    async with budget_scope(Budget(microcents=250)) as around:
        result = await fan(paid_agent(100), max_concurrency=1).run()
    assert (result.status, around.usage.cost_microcents) == ("budget_exceeded", 200)
    assert set(result.outputs) == {"begin", "ask0", "ask1"}
    pipeline: Pipeline[Any, Any] = Pipeline(
        "p", {"fan": fan(paid_agent(100)).as_step()}, config=PipelineConfig(cost_budget=250)
    )
    with pytest.raises(CostBudgetExceeded) as caught:
        await pipeline.execute()
    assert caught.value.scope_path == ("p",)


async def test_the_budget_of_a_nested_graph_is_a_failure_of_its_node() -> None:
    inner = fan(paid_agent(100), budget=Budget(microcents=250), max_concurrency=1)
    graph = Graph("g", nodes={"inner": inner, "end": end}, edges=[Edge("inner", "end", when="on_failure")])
    result = await graph.run()
    assert result.path == ["inner", "end"]
    assert result.usage.by_visit["inner", 1].cost_microcents == 200
    assert_adds_up(result)
    result = await Graph("g", nodes=graph.nodes, edges=graph.edges, budget=Budget(microcents=150)).run()
    assert (result.status, result.path) == ("budget_exceeded", ["inner"])


async def test_swallowing_the_refusal_of_an_outer_budget_gets_a_node_nothing() -> None:
    agent = paid_agent(100)

    @step
    async def swallow(ctx: StepContext) -> str:
        try:
            return (await ctx.run(agent, "?")).output
        except CostBudgetExceeded:
            return "went on"

    graph = Graph(
        "g",
        nodes={"a": swallow, "b": agent.as_step("?")},
        edges=[Edge("a", "b")],
        budget=Budget(microcents=50),
    )
    result = await graph.run()
    assert (result.status, result.outputs) == ("budget_exceeded", {"a": "went on"})
    assert result.usage.request_count == 0


# --- decisions ---


def decider(target: str, microcents: int = 10, seconds: float = 0) -> FastroAgent[Any, Any]:
    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        await asyncio.sleep(seconds)
        choice = ToolCallPart(info.output_tools[0].name, {"reasoning": "so", "target": target})
        return ModelResponse(parts=[choice], usage=RequestUsage(input_tokens=1))

    return FastroAgent(FunctionModel(respond, model_name="paid"), cost_calculator=request_costs(microcents))


def deciding(by: FastroAgent[Any, Any], **options: Any) -> Graph[Any, Any]:
    return Graph(
        "g",
        nodes={"a": paid_agent(100).as_step("?"), "left": begin, "right": begin},
        edges=[
            Edge("a", "left", when="llm_decide"),
            Edge("a", "right", when="llm_decide", fallback=True),
        ],
        decider=by,
        **options,
    )


async def test_a_decision_is_paid_by_the_visit_that_it_comes_after() -> None:
    result = await deciding(decider("left")).run()
    assert result.path == ["a", "left"]
    assert result.usage.by_visit["a", 1].cost_microcents == 110
    assert_adds_up(result)


async def test_a_budget_that_a_decision_would_cross_ends_the_run_and_is_no_reason_for_the_fallback() -> None:
    result = await deciding(decider("left"), budget=Budget(microcents=105)).run()
    assert (result.status, result.path) == ("budget_exceeded", ["a"])
    assert result.outputs == {"a": "answer to ?"}
    assert_adds_up(result)


@in_virtual_time
async def test_a_decision_that_is_cancelled_is_paid_and_takes_no_edge() -> None:
    graph = deciding(decider("left", seconds=9))
    run = asyncio.create_task(graph.run(run_id="r"))
    await asyncio.sleep(1)
    await graph.cancel("r")
    result = await run
    assert (result.status, result.path, now()) == ("cancelled", ["a"], 1)
    assert result.usage.unmeasured_requests == 1
    assert_adds_up(result)


def loop(usd: str, *, reserves: bool) -> Graph[Any, Any]:
    """A node that spends so much, up to 25 times."""

    @step
    async def search(ctx: StepContext) -> dict[str, int]:
        if reserves:
            async with ctx.spend(usd, model="search-api") as purchase:
                purchase.settle()
        else:
            ctx.record_usage(model="search-api", cost_usd=usd)
        return {"n": ctx.visit}

    return Graph(
        "loop",
        nodes={"search": Node(search, writes=["n"]), "end": end},
        edges=[Edge("search", "search", "conditional", condition="n < 25"), Edge("search", "end", "always")],
        entry="search",
        budget=Budget(usd="0.10"),
    )


@pytest.mark.parametrize(("reserves", "visits", "spent"), [(False, 4, "0.12"), (True, 3, "0.08")])
async def test_spending_outside_of_model_requests_ends_a_graph(
    reserves: bool, visits: int, spent: str
) -> None:
    result = await loop("0.04", reserves=reserves).run()
    assert (result.status, result.quality) == ("budget_exceeded", "failed")
    assert (result.visits["search"], result.usage.cost_usd) == (visits, Decimal(spent))
    assert isinstance(result.error, CostBudgetExceeded)
    assert result.error.stopped == ("spend" if reserves else "step")


async def test_a_node_s_own_budget_is_its_own_failure_whatever_it_spends_on() -> None:
    @step(budget=Budget(usd="0.01"))
    async def search(ctx: StepContext) -> None:
        ctx.record_usage(model="search-api", cost_usd="0.04")
        ctx.record_usage(model="search-api", cost_usd="0.04")

    @step
    async def other(ctx: StepContext) -> str:
        return "did without"

    graph: Graph[Any, Any] = Graph(
        "g", nodes={"search": search, "other": other}, edges=[Edge("search", "other", "on_failure")]
    )
    result = await graph.run()
    assert (result.status, result.output) == ("finished", "did without")
    assert result.usage.cost_usd == Decimal("0.08")
