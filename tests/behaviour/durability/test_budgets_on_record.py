"""Budgets, limits and totals go on from what was spent; what is on record is not paid for twice."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support.interruptions import Desk, assert_the_sum_of_the_log, entries_of, go_on, interrupt, nth
from support.tracing import RecordingTracer

from fastroai import (
    FastroAgent,
    Pipeline,
    PipelineConfig,
    StepConfig,
    StepContext,
    budget_scope,
    spend,
    step,
)
from fastroai.errors import BudgetExceeded, StepExecutionError
from fastroai.runtime.facts import (
    RequestEnded,
    RequestSent,
    SpendingRecorded,
    StepFinished,
    StepRetried,
    ToolEnded,
)
from fastroai.store import MemoryRunStore, SQLiteRunStore
from fastroai.testing import ModelServer, Reply, ToolCall, Usage
from fastroai.usage import Budget, SpendLimit
from fastroai.usage.shared.memory_spend_store import MemorySpendStore

MODEL = "openai:gpt-5-mini"
PRICE = Decimal("0.000225")  # of each request: 100 tokens at $0.25 and 100 at $2 per million


def pays(server: ModelServer) -> None:
    """Every answer costs the same; "Go" is a loop of four requests."""
    usage = Usage(100, 100)
    server.rule(
        lambda request: request.messages[0].text == "Go" and len(request.tool_results) < 3,
        lambda request: Reply(
            tool_calls=[ToolCall("look_up", {"page": len(request.tool_results)})], usage=usage
        ),
    )
    server.rule(None, Reply("done", usage=usage))


def looped(desk: Desk, **options: Any) -> Any:
    async def look_up(page: int) -> str:
        """Read a page."""
        desk.done[f"page {page}"] += 1
        return f"page {page}"

    return FastroAgent(desk.model(MODEL), tools=[look_up], max_tokens=100, **options)


def pipeline_of(
    desk: Desk, budget: Budget | None, level: str, limit: list[SpendLimit] | None = None
) -> Pipeline[Any, Any]:
    """The loop, with a budget at this level."""
    agent = looped(desk, budget=budget if level == "agent" else None)

    @step
    async def work(ctx: StepContext[None]) -> str:
        response = await ctx.run(agent, "Go", budget=budget if level == "call" else None)
        desk.responses.append(response)
        return response.output

    config = PipelineConfig(budget=limit or (budget if level == "pipeline" else None))
    configs = {"work": StepConfig(budget=budget if level == "step" else None)}
    return Pipeline("p", {"work": work}, config=config, step_configs=configs)


@pytest.mark.parametrize("level", ["pipeline", "step", "agent", "call"])
@pytest.mark.parametrize(
    ("small", "large"),
    [(Budget(requests=2), Budget(requests=4)), (Budget(usd="0.0017"), Budget(usd="0.01"))],
    ids=["requests", "usd"],
)
async def test_a_run_that_a_budget_stopped_goes_on_with_a_larger_one_and_pays_for_nothing_twice(
    server: ModelServer, level: str, small: Budget, large: Budget
) -> None:
    pays(server)
    desk, store = Desk(server, lambda desk: None), MemoryRunStore()
    with pytest.raises((BudgetExceeded, StepExecutionError)):
        await pipeline_of(desk, small, level).execute(run_id="r1", store=store)
    before = len(server.ledger.entries)
    assert 1 <= before <= 3
    result = await go_on(pipeline_of(desk, large, level), store)
    assert result.output == "done"
    assert len(server.ledger.entries) == 4
    assert result.usage.cost_usd == desk.responses[0].cost_usd == 4 * PRICE
    assert result.usage.total.agent_call_count == 1
    assert set(desk.done.values()) == {1}
    await assert_the_sum_of_the_log(result, store)


@pytest.mark.parametrize("level", ["pipeline", "step", "agent", "call"])
@pytest.mark.parametrize(("kind", "number"), [(RequestSent, 2), (RequestEnded, 1), (RequestEnded, 3)])
async def test_a_budget_holds_across_interruptions(
    server: ModelServer, level: str, number: int, kind: Any
) -> None:
    pays(server)
    desk, store = Desk(server, lambda desk: None), MemoryRunStore()
    budget = Budget(requests=3)
    await interrupt(pipeline_of(desk, budget, level), store, nth(kind, number), written=True)
    with pytest.raises((BudgetExceeded, StepExecutionError)):
        await go_on(pipeline_of(desk, budget, level), store)
    # A request that was put on record as sent counts, although this one never was.
    assert len(server.ledger.entries) == 3 - (kind is RequestSent)


@pytest.mark.parametrize(
    ("level", "dies_at"),
    [
        *product(["pipeline", "step", "agent", "call"], [(SpendingRecorded, 1), (SpendingRecorded, 2)]),
        *product(["pipeline", "step", "agent", "call"], [(ToolEnded, 1)]),
        # Each attempt at a call has the budget of its agent for itself.
        *product(["pipeline", "step", "call"], [(StepRetried, 1)]),
    ],
)
async def test_what_tools_have_bought_counts_in_the_budgets_around_them_after_an_interruption(
    server: ModelServer, level: str, dies_at: tuple[Any, int]
) -> None:
    pays(server)
    bought: list[int] = []

    async def look_up(page: int) -> str:
        """Buy a page."""
        async with spend("0.6") as purchase:
            bought.append(page)
            purchase.settle()
        if dies_at[0] is StepRetried:
            raise OSError
        return f"page {page}"

    budget, store = Budget(usd=1), MemoryRunStore()
    agent = FastroAgent(
        server.model(MODEL), tools=[look_up], max_tokens=100, budget=budget if level == "agent" else None
    )

    @step
    async def work(ctx: StepContext[None]) -> str:
        return (await ctx.run(agent, "Go", budget=budget if level == "call" else None)).output

    pipeline = Pipeline(
        "p",
        {"work": work},
        config=PipelineConfig(budget=budget if level == "pipeline" else None, retries=1),
        step_configs={"work": StepConfig(budget=budget if level == "step" else None)},
    )
    await interrupt(pipeline, store, nth(*dies_at), written=True)
    with pytest.raises((BudgetExceeded, StepExecutionError)) as caught:
        await go_on(pipeline, store)
    assert isinstance(caught.value if level == "pipeline" else caught.value.__cause__, BudgetExceeded)
    assert len(bought) <= 1


@pytest.mark.parametrize("how", ["spend", "ctx.spend"])
async def test_what_a_tool_has_bought_is_paid_by_its_agent_call_in_every_process(
    server: ModelServer, how: str
) -> None:
    pays(server)
    costs: list[Decimal] = []

    @step
    async def work(ctx: StepContext[None]) -> str:
        async def look_up(page: int) -> str:
            """Buy a page."""
            async with ctx.spend("0.6") if how == "ctx.spend" else spend("0.6") as purchase:
                purchase.settle()
            return f"page {page}"

        response = await ctx.run(FastroAgent(server.model(MODEL), tools=[look_up]), "Go")
        costs.append(response.cost_usd)
        return response.output

    pipeline, store = Pipeline("p", {"work": work}), MemoryRunStore()
    await interrupt(pipeline, store, nth(StepFinished))
    result = await go_on(pipeline, store)
    assert costs == [4 * PRICE + Decimal("1.8")] * 2
    assert result.usage.cost_usd == 4 * PRICE + Decimal("1.8")


@pytest.mark.parametrize("level", ["pipeline", "step", "agent", "call"])
@pytest.mark.parametrize("number", [1, 2, 3])
async def test_each_share_of_a_budget_is_told_once_in_a_run_that_is_resumed(
    server: ModelServer, level: str, number: int
) -> None:
    pays(server)
    desk, store = Desk(server, lambda desk: None), MemoryRunStore()
    told: list[float] = []
    budget = Budget(
        requests=4, warn_at=(0.25, 0.5, 0.75, 1), on_warning=lambda warning: told.append(warning.threshold)
    )
    await interrupt(pipeline_of(desk, budget, level), store, nth(RequestEnded, number), written=True)
    await go_on(pipeline_of(desk, budget, level), store)
    assert len(server.ledger.entries) == 4
    assert len(told) == len(set(told))
    assert told[-1] == 1
    assert set(told) >= {share / 4 for share in range(number + 1, 5)}


async def test_what_was_sent_and_never_answered_counts_at_its_bound(server: ModelServer) -> None:
    pays(server)
    desk, store = Desk(server, lambda desk: None), MemoryRunStore()
    budget = Budget(usd="0.0025")
    await interrupt(pipeline_of(desk, budget, "pipeline"), store, nth(RequestEnded, 3))
    with pytest.raises(BudgetExceeded) as caught:
        await go_on(pipeline_of(desk, budget, "pipeline"), store)
    usage = caught.value.usage
    assert usage is not None
    assert usage.unmeasured_requests == 1
    assert usage.uncertain_usd > 0
    assert usage.committed_usd <= Decimal("0.0025")
    assert len(server.ledger.entries) * PRICE <= Decimal("0.0025")


@pytest.mark.slow
async def test_the_result_of_a_finished_run_is_read_again_within_less_time_than_the_run_took() -> None:
    @step
    async def long(ctx: StepContext) -> str:
        await asyncio.sleep(1.5)
        return "done"

    pipeline, store = Pipeline("long", {"long": long}), MemoryRunStore()
    await pipeline.execute(run_id="r", store=store)
    result = await pipeline.resume("r", store=store, budget=Budget(ms=1_400))
    assert result.output == "done"


async def test_a_spend_limit_is_charged_once(server: ModelServer) -> None:
    pays(server)
    spend, store = MemorySpendStore(), MemoryRunStore()
    desk = Desk(server, lambda desk: None)

    def limit() -> list[SpendLimit]:
        return [SpendLimit(usd="1", key="all", window="day", store=spend)]

    await interrupt(pipeline_of(desk, None, "none", limit()), store, nth(RequestEnded, 2), written=True)
    result = await go_on(pipeline_of(desk, None, "none", limit()), store)
    assert result.usage.cost_usd == 4 * PRICE
    status = await limit()[0].status()
    assert (status.spent_usd, status.reserved_usd) == (4 * PRICE, Decimal(0))


async def test_what_is_replayed_has_no_span_and_no_spending_in_one(server: ModelServer) -> None:
    pays(server)
    desk, store, tracer = Desk(server, lambda desk: None), MemoryRunStore(), RecordingTracer()
    await interrupt(pipeline_of(desk, None, "none"), store, nth(RequestEnded, 2), written=True)
    result = await go_on(pipeline_of(desk, None, "none"), store, tracer=tracer)
    assert result.usage.request_count == 4
    assert sum(span.name.startswith("chat ") for span in tracer.spans) == 2


async def test_what_steps_spend_without_agents_goes_on_too(server: ModelServer) -> None:
    pays(server)

    @step
    async def first(ctx: StepContext[None]) -> str:
        ctx.record_usage(model="search", cost_usd="0.01")
        return "found"

    def second(desk: Desk) -> Any:
        @step
        def second(ctx: StepContext[None]) -> str:
            ctx.record_usage(model="search", cost_usd="0.02")
            return str(ctx.run_sync(looped(desk), "Other").output)

        return second

    def pipeline(desk: Desk) -> Pipeline[Any, Any]:
        return Pipeline("p", {"first": first, "second": second(desk)}, {"second": ["first"]})

    desk, store = Desk(server, lambda desk: None), MemoryRunStore()
    await interrupt(pipeline(desk), store, nth(RequestSent))
    result = await go_on(pipeline(desk), store)
    assert result.usage.steps["first"].cost_usd == Decimal("0.01")
    # The step has done it again, so it has spent it again.
    assert result.usage.cost_usd in (Decimal("0.03") + PRICE, Decimal("0.05") + PRICE)


class Reversed:
    """Not an encryption; but nothing can be read."""

    def encode(self, payload: bytes) -> bytes:
        return bytes(byte ^ 0x5A for byte in payload)

    def decode(self, payload: bytes) -> bytes:
        return bytes(byte ^ 0x5A for byte in payload)


def written_in(folder: Path) -> bytes:
    """All bytes of all files."""
    return b"".join(file.read_bytes() for file in folder.iterdir())


async def test_with_a_codec_nothing_of_it_can_be_read_in_the_store(
    server: ModelServer, tmp_path: Path
) -> None:
    secret = "xyzzy-secret"
    calls = [ToolCall("look_up", {"what": f"{secret} {number}"}) for number in range(2)]
    server.rule(
        lambda request: not request.tool_results,
        Reply(f"thinking of {secret}", tool_calls=calls, usage=Usage(10, 10)),
    )
    server.rule(None, Reply(f"the {secret}", usage=Usage(10, 10)))

    def pipeline(done: list[str]) -> Pipeline[Any, Any]:
        async def look_up(what: str) -> str:
            """Look it up."""
            from pydantic_ai import ModelRetry

            done.append(what)
            if what.endswith("1"):
                raise ModelRetry(f"not {secret}")
            return f"found {what}"

        agent = FastroAgent(server.model(MODEL), tools=[look_up])

        @step
        async def work(ctx: StepContext[None]) -> str:
            answer = (await ctx.run(agent, f"Find {ctx.get_input('text')}")).output
            return answer + await ctx.once("tell", lambda: f"told {secret}")

        @step
        async def last(ctx: StepContext[None]) -> str:
            return str(ctx.get_dependency("work"))

        config = PipelineConfig(codec=Reversed())
        return Pipeline("p", {"work": work, "last": last}, {"last": ["work"]}, config=config)

    path = tmp_path / "runs.db"
    done: list[str] = []
    await interrupt(
        pipeline(done), SQLiteRunStore(path), nth(RequestEnded, 2), written=True, inputs={"text": secret}
    )
    result = await go_on(pipeline(done), SQLiteRunStore(path))
    assert result.output == f"the {secret}told {secret}"
    assert len(server.ledger.entries) == 2
    assert len(done) == 2
    stored = written_in(tmp_path)
    assert b"work" in stored
    assert secret.encode() not in stored
    assert len(await entries_of(SQLiteRunStore(path))) > 8


WAYS = {
    "run": lambda ctx, agent: ctx.run(agent, "hello"),
    "run with a budget": lambda ctx, agent: ctx.run(agent, "hello", budget=Budget(usd=1)),
    "agent": lambda ctx, agent: agent.run("hello"),
    "map": lambda ctx, agent: ctx.map(agent, ["hello"]),
    "map of a step": lambda ctx, agent: ctx.map(agent.as_step("hello"), [1]),
    "map of a pipeline": lambda ctx, agent: ctx.map(
        Pipeline("in", {"ask": agent.as_step("hi")}).as_step(), [1]
    ),
    "pipeline": lambda ctx, agent: Pipeline("inner", {"ask": agent.as_step("hello")}).execute(),
    "rows": lambda ctx, agent: agent.map(["hello"]),
}
"""Ways to spend in a step."""


@pytest.mark.parametrize("way", WAYS)
async def test_whatever_a_step_spends_counts_in_a_budget_scope_inside_of_it_in_every_process(
    server: ModelServer, way: str
) -> None:
    pays(server)
    agent = FastroAgent(server.model(MODEL), max_tokens=100, retries=0)
    spent: list[Decimal] = []

    @step
    async def work(ctx: StepContext[None]) -> str:
        async with budget_scope(Budget(usd=1)) as scope:
            await WAYS[way](ctx, agent)
        spent.append(scope.usage.cost_usd)
        return "done"

    pipeline, store = Pipeline("p", {"work": work}), MemoryRunStore()
    await interrupt(pipeline, store, nth(StepFinished, 1 + way.count("pipeline")))
    result = await go_on(pipeline, store)
    assert spent == [PRICE, PRICE]
    assert (result.usage.cost_usd, len(server.ledger.entries)) == (PRICE, 1)


async def buy(ctx: StepContext[None], agent: FastroAgent[None, str]) -> None:
    async with ctx.spend(PRICE) as purchase:
        purchase.settle()


async def buy_from_anywhere(ctx: StepContext[None], agent: FastroAgent[None, str]) -> None:
    async with spend(PRICE) as purchase:
        purchase.settle()


async def record(ctx: StepContext[None], agent: FastroAgent[None, str]) -> None:
    ctx.record_usage(model="gpt-5-mini", provider="openai", input_tokens=100, output_tokens=100)


async def buy_in_an_effect(ctx: StepContext[None], agent: FastroAgent[None, str]) -> None:
    await ctx.once("inner", lambda: buy(ctx, agent))


PURCHASES: dict[str, Any] = {
    **WAYS,
    "ctx.spend": buy,
    "spend": buy_from_anywhere,
    "record_usage": record,
    "effect": buy_in_an_effect,
}
"""Ways to spend in an effect of a step."""


@pytest.mark.parametrize("way", PURCHASES)
async def test_what_an_effect_has_bought_counts_in_a_budget_scope_around_it_in_every_process(
    server: ModelServer, way: str
) -> None:
    pays(server)
    agent = FastroAgent(server.model(MODEL), max_tokens=100, retries=0)
    spent: list[Decimal] = []

    @step
    async def work(ctx: StepContext[None]) -> str:
        async def effect() -> None:
            await PURCHASES[way](ctx, agent)

        async with budget_scope(Budget(usd=1)) as other:
            await ctx.once("nothing", lambda: None)
        async with budget_scope(Budget(usd=1)) as scope:
            await ctx.once("buy", effect)
        spent.extend((other.usage.cost_usd, scope.usage.cost_usd))
        return "done"

    pipeline, store = Pipeline("p", {"work": work}), MemoryRunStore()
    await interrupt(pipeline, store, nth(StepFinished, 1 + way.count("pipeline")))
    result = await go_on(pipeline, store)
    assert spent == [0, PRICE, 0, PRICE]
    assert result.usage.cost_usd == PRICE
