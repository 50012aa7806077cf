"""Runs that reserve their quote begin only if they can be paid for, and give back what they do not need."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import Context
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from support.agents import paid_agent
from support.patience import PATIENCE
from support.spend_stores import KINDS, Kept, kept_in

from fastroai import (
    BasePipeline,
    BaseStep,
    Budget,
    ConfigurationError,
    CostBudgetExceeded,
    FastroAgent,
    Graph,
    Pipeline,
    PipelineConfig,
    SpendLimit,
    SpendLimitExceeded,
    StepContext,
    StepExecutionError,
    budget_scope,
    step,
)
from fastroai.pipelines import BudgetRefused, BudgetWaiting
from fastroai.records import usd_to_microcents
from fastroai.runtime import BudgetScope
from fastroai.store import MemoryRunStore, SQLiteSpendStore
from fastroai.testing import ModelServer
from fastroai.usage import Quote

MICROCENT = Decimal("0.000001")
PRICE = 100
"""Microcents of a request of `agent`, which is its bound too."""
RUN = 2 * PRICE
"""Microcents that a run of `two_steps` costs."""


@pytest.fixture
async def kept(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kept]:
    async with kept_in(request.param, request, tmp_path) as new:
        yield new


def agent(before: Callable[[str], Awaitable[object]] | None = None) -> FastroAgent[Any, str]:
    return paid_agent(PRICE, before=before, retries=0, request_retries=0)


def two_steps(asked: FastroAgent[Any, str], config: PipelineConfig | None = None) -> Pipeline[Any, Any, str]:
    """Two requests, one after the other."""
    steps = {"one": asked.as_step(lambda ctx: "one"), "two": asked.as_step(lambda ctx: "two")}
    return Pipeline("two", steps, {"two": ["one"]}, config=config)


def code_that(does: Callable[[StepContext[Any]], Awaitable[object]], microcents: int) -> Pipeline[Any, Any]:
    """Code whose run costs at most so much."""

    @step
    async def work(ctx: StepContext[Any]) -> str:
        await does(ctx)
        return "done"

    return Pipeline("code", {"work": work}, config=PipelineConfig(cost_budget=microcents))


def left(scope: BudgetScope) -> int | None:
    return scope.remaining.microcents


async def spent_and_reserved(limit: SpendLimit) -> tuple[int, int]:
    status = await limit.status()
    return usd_to_microcents(status.spent_usd), usd_to_microcents(status.reserved_usd)


async def thirteen(pipeline: Pipeline[Any, Any, str]) -> list[BaseException]:
    """The refusals of 13 runs at once, of which five are answered."""
    runs = (pipeline.execute(reserve="quote") for _ in range(13))
    results = await asyncio.gather(*runs, return_exceptions=True)
    refusals = [result for result in results if isinstance(result, BaseException)]
    assert len(results) - len(refusals) == 5
    return refusals


# --- who begins ---


async def test_a_budget_for_five_runs_admits_five_and_pays_nothing_for_the_others() -> None:
    prompts: list[str] = []

    async def note(prompt: str) -> None:
        prompts.append(prompt)

    events: list[object] = []
    async with budget_scope(Budget(microcents=5 * RUN), name="day", on_event=events.append) as scope:
        refusals = await thirteen(two_steps(agent(note)))
        assert left(scope) == 0
    assert sorted(prompts) == ["one"] * 5 + ["two"] * 5
    assert scope.usage.cost_microcents == 5 * RUN
    for refusal in refusals:
        assert isinstance(refusal, CostBudgetExceeded)
        assert refusal.stopped == "run"
        assert (refusal.scope_path, refusal.requested_microcents, refusal.limit) == (("day",), RUN, 5 * RUN)
        assert refusal.committed + refusal.reserved == 5 * RUN
    assert str(refusals[0]) == (
        "budget of 'day' has too little left: $0.00 of $0.001 is spent, $0.001 reserved, so $0.00 is left. "
        "By its quote, the run could cost $0.0002, so it was not started. "
        "Try again when the runs that reserved it have ended, or raise the budget"
    )
    assert [event.error for event in events if isinstance(event, BudgetRefused)] == refusals


@pytest.mark.parametrize("kept", KINDS, indirect=True)
async def test_a_spend_limit_for_five_runs_does_so_in_every_store(kept: Kept) -> None:
    limit = SpendLimit(microcents=5 * RUN, window="total", key="acme", store=kept.store)
    refusals = await thirteen(two_steps(agent(), PipelineConfig(budget=limit)))
    for refusal in refusals:
        assert isinstance(refusal, SpendLimitExceeded)
        assert (refusal.stopped, refusal.key, refusal.requested_microcents) == ("run", "acme", RUN)
        assert str(refusal).startswith("spend limit 'acme' (total) has too little left: $0")
    assert await spent_and_reserved(limit) == (5 * RUN, 0)


@pytest.mark.parametrize("kept", KINDS, indirect=True)
async def test_nobody_takes_the_money_of_a_run_in_the_midst_of_it(kept: Kept) -> None:
    limit = SpendLimit(microcents=RUN, window="total", key="acme", store=kept.store)
    elsewhere = SpendLimit(microcents=RUN, window="total", key="acme", store=kept.another())

    async def ask_elsewhere() -> None:
        with pytest.raises(SpendLimitExceeded):
            await two_steps(agent(), PipelineConfig(budget=elsewhere)).execute(reserve="quote")

    async def another_process() -> None:
        await asyncio.create_task(ask_elsewhere(), context=Context())

    async def work(ctx: StepContext[Any]) -> None:
        assert await spent_and_reserved(limit) == (0, RUN)
        await another_process()
        await ctx.run(agent(), "?")
        assert await spent_and_reserved(limit) == (PRICE, PRICE)
        await another_process()
        async with ctx.spend(MICROCENT * 60, model="acme:search") as purchase:
            assert await spent_and_reserved(limit) == (PRICE, PRICE)
            await another_process()
            purchase.settle(MICROCENT * 40)
        ctx.record_usage(model="acme:search", cost_usd=MICROCENT * 30)
        await another_process()

    pipeline = code_that(work, RUN)
    async with budget_scope(limit):
        await pipeline.execute(reserve="quote")
    assert await spent_and_reserved(limit) == (170, 0)


async def test_requests_outside_of_the_run_wait_for_its_end_and_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fastroai.runtime.budgets.in_line.TOLD_AFTER", 0.001)
    is_reserved, may_end, told = asyncio.Event(), asyncio.Event(), asyncio.Event()
    held_by: list[str] = []

    def hear(event: object) -> None:
        if isinstance(event, BudgetWaiting):
            held_by.extend(event.held_by)
            told.set()

    async def wait(ctx: StepContext[Any]) -> None:
        is_reserved.set()
        await may_end.wait()

    async with budget_scope(Budget(microcents=RUN), name="day", on_event=hear) as scope:
        run = asyncio.create_task(code_that(wait, RUN).execute(reserve="quote"))
        await is_reserved.wait()
        other = asyncio.create_task(agent().run("?"))
        await asyncio.wait_for(told.wait(), PATIENCE)
        assert not other.done()
        assert held_by == ["run day / code: $0.0002"]
        may_end.set()
        await run
        await other
    assert scope.usage.cost_microcents == PRICE


async def test_without_a_limit_around_nothing_is_reserved() -> None:
    result = await two_steps(agent()).execute(reserve="quote")
    assert result.usage.cost_microcents == RUN


async def test_a_refusal_says_whether_the_end_of_other_runs_or_of_the_day_makes_room() -> None:
    limit = SpendLimit(microcents=RUN + PRICE, window="day", key="acme")
    pipeline = two_steps(agent(), PipelineConfig(budget=limit))
    both = (pipeline.execute(reserve="quote") for _ in range(2))
    _, while_it_runs = await asyncio.gather(*both, return_exceptions=True)
    assert isinstance(while_it_runs, SpendLimitExceeded)
    assert (while_it_runs.committed, while_it_runs.reserved) == (0, RUN)
    assert "not started. Try again when the runs that reserved it have ended, or raise" in str(while_it_runs)
    with pytest.raises(SpendLimitExceeded, match="not started. Wait until .* UTC, or raise") as stopped:
        await pipeline.execute(reserve="quote")
    assert (stopped.value.committed, stopped.value.reserved) == (RUN, 0)


async def test_a_refused_run_tells_its_stream_why_and_never_that_it_has_started() -> None:
    heard: list[object] = []
    async with budget_scope(Budget(microcents=RUN - 1)):
        with pytest.raises(CostBudgetExceeded):
            async with two_steps(agent()).stream(reserve="quote") as stream:
                async for event in stream:
                    heard.append(event)
    assert [type(event) for event in heard] == [BudgetRefused]


async def test_a_refused_run_leaves_no_record() -> None:
    store = MemoryRunStore()
    pipeline = two_steps(agent(), PipelineConfig(store=store))
    async with budget_scope(Budget(microcents=RUN - 1)):
        with pytest.raises(CostBudgetExceeded):
            await pipeline.execute(run_id="r", reserve="quote")
    assert (await pipeline.execute(run_id="r", reserve="quote")).ok


# --- quotes that are not known, or not kept ---


async def test_a_run_whose_cost_nothing_bounds_cannot_reserve_it(model_server: ModelServer) -> None:
    unpriced_model = model_server.model("openai:our-model")

    @step
    async def anything(ctx: StepContext[Any]) -> str:
        raise AssertionError("it has begun")

    code = Pipeline("code", {"anything": anything})
    other: FastroAgent[Any, str] = FastroAgent(unpriced_model)
    unpriced = Pipeline("unpriced", {"ask": other.as_step(lambda ctx: "?")})
    graph: Graph[Any, Any, Any] = Graph("loop", nodes={"anything": anything}, entry="anything")
    for run, reason in (
        (code, "'code' has none: step 'anything': "),
        (unpriced, "no price is known"),
        (graph, "a graph, whose nodes run as often as its edges say"),
    ):
        with pytest.raises(ConfigurationError, match=r"Give it, or these steps, a budget") as refused:
            await run.execute(reserve="quote")
        assert reason in str(refused.value)


async def test_an_invalid_reserve_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="reserve='all': expected 'quote', or None"):
        await two_steps(agent()).execute(reserve="all")  # type: ignore[arg-type]


class Understated(BaseStep[Any, str]):
    """A step that says less than it costs."""

    async def execute(self, context: StepContext[Any]) -> str:
        for _ in range(3):
            await context.run(agent(), "?")
        return "done"

    async def estimate(self, context: StepContext[Any]) -> Quote:
        return Quote.exactly(MICROCENT * PRICE, "one request")


async def test_a_run_that_costs_more_than_its_quote_goes_on_under_the_ordinary_rules() -> None:
    pipeline = Pipeline("understated", {"more": Understated()})
    async with budget_scope(Budget(microcents=3 * PRICE)) as scope:
        await pipeline.execute(reserve="quote")
    assert scope.usage.cost_microcents == 3 * PRICE
    async with budget_scope(Budget(microcents=2 * PRICE)) as scope:
        with pytest.raises(CostBudgetExceeded) as stop:
            await pipeline.execute(reserve="quote")
        assert left(scope) == 0
    assert (stop.value.stopped, scope.usage.cost_microcents) == ("request", 2 * PRICE)


@pytest.mark.parametrize("limits", ["budget", "spend limit"])
async def test_two_runs_that_need_more_than_they_reserved_do_not_wait_for_each_other(limits: str) -> None:
    limit = SpendLimit(microcents=2 * PRICE, window="total", key=limits)
    together = asyncio.Barrier(2)

    class Meeting(Understated):
        async def execute(self, context: StepContext[Any]) -> str:
            await together.wait()
            return await super().execute(context)

    pipeline = Pipeline("understated", {"more": Meeting()})
    async with budget_scope(Budget(microcents=2 * PRICE) if limits == "budget" else limit) as scope:
        async with asyncio.timeout(PATIENCE):
            runs = (pipeline.execute(reserve="quote") for _ in range(2))
            results = await asyncio.gather(*runs, return_exceptions=True)
    assert [type(result) for result in results] == [
        CostBudgetExceeded if limits == "budget" else SpendLimitExceeded
    ] * 2
    assert scope.usage.cost_microcents == 2 * PRICE


# --- given back ---


@pytest.mark.parametrize("kept", KINDS, indirect=True)
async def test_however_a_run_ends_it_gives_back_what_it_did_not_spend(kept: Kept) -> None:
    limit = SpendLimit(microcents=10 * RUN, window="total", key="acme", store=kept.store)
    began = asyncio.Event()

    async def fail(ctx: StepContext[Any]) -> None:
        await ctx.run(agent(), "?")
        raise ValueError("no")

    async def hang(ctx: StepContext[Any]) -> None:
        began.set()
        await asyncio.Event().wait()

    async with budget_scope([Budget(microcents=10 * RUN), limit]) as scope:
        with pytest.raises(StepExecutionError):
            await code_that(fail, RUN).execute(reserve="quote")
        assert (left(scope), await spent_and_reserved(limit)) == (10 * RUN - PRICE, (PRICE, 0))
        run = asyncio.create_task(code_that(hang, RUN).execute(reserve="quote"))
        await began.wait()
        assert (left(scope), await spent_and_reserved(limit)) == (9 * RUN - PRICE, (PRICE, RUN))
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert left(scope) == 10 * RUN - PRICE
        # The store is told in the background; what is asked of it next comes after that.
        await two_steps(agent()).execute(reserve="quote")
        assert (await spent_and_reserved(limit))[0] == PRICE + RUN


DYING = """
import asyncio, os, sys
from fastroai import Pipeline, PipelineConfig, SpendLimit, StepContext, budget_scope, step
from fastroai.store import SQLiteSpendStore

limit = SpendLimit(microcents=1000, window="total", key="acme", store=SQLiteSpendStore(sys.argv[1]))

@step
async def die(ctx: StepContext[object]) -> str:
    os._exit(9)

pipeline = Pipeline("dying", {"die": die}, config=PipelineConfig(cost_budget=1000))

async def main() -> None:
    async with budget_scope(limit):
        await pipeline.execute(reserve="quote")

asyncio.run(main())
"""


async def test_what_a_dead_process_had_reserved_is_given_back(tmp_path: Path) -> None:
    path = tmp_path / "spend.db"
    dying = await asyncio.create_subprocess_exec(sys.executable, "-c", DYING, str(path))
    assert await asyncio.wait_for(dying.wait(), PATIENCE) == 9
    limit = SpendLimit(microcents=1_000, window="total", key="acme", store=SQLiteSpendStore(path))
    assert await spent_and_reserved(limit) == (0, 1_000)
    async with budget_scope(limit):
        await code_that(lambda ctx: ctx.run(agent(), "?"), 1_000).execute(reserve="quote")
    assert await spent_and_reserved(limit) == (PRICE, 0)


async def test_a_request_that_outlives_its_run_stays_reserved_around_it() -> None:
    may_answer = asyncio.Event()
    slow = agent(lambda prompt: may_answer.wait())
    left_behind: list[asyncio.Task[Any]] = []

    async def leave_behind(ctx: StepContext[Any]) -> None:
        left_behind.append(asyncio.create_task(slow.run("?")))
        for _ in range(50):
            await asyncio.sleep(0)

    async with budget_scope(Budget(microcents=10 * RUN)) as scope:
        await code_that(leave_behind, RUN).execute(reserve="quote")
        assert left(scope) == 10 * RUN - PRICE
        may_answer.set()
        await left_behind[0]
        assert (left(scope), scope.usage.cost_microcents) == (10 * RUN - PRICE, PRICE)


async def test_a_paused_run_gives_it_back_and_reserves_the_rest_when_it_is_resumed() -> None:
    seen: list[int | None] = []

    async def work(ctx: StepContext[Any]) -> None:
        await ctx.once("first", lambda: ask(ctx))
        seen.append(ctx.budget.remaining.microcents)
        await ctx.ask("Go on?", bool)
        seen.append(left(scope))

    async def ask(ctx: StepContext[Any]) -> str:
        return (await ctx.run(agent(), "?")).output

    store = MemoryRunStore()
    pipeline = code_that(work, 10 * PRICE)
    async with budget_scope(Budget(microcents=20 * PRICE)) as scope:
        paused = await pipeline.execute(run_id="r", store=store, reserve="quote")
        assert paused.status == "paused"
        assert left(scope) == 19 * PRICE
        answers = {question.id: True for question in paused.questions}
        async with budget_scope(Budget(microcents=9 * PRICE - 1)):
            with pytest.raises(CostBudgetExceeded) as stop:
                await pipeline.resume("r", store=store, answers=answers, reserve="quote")
        assert stop.value.requested_microcents == 9 * PRICE
        await pipeline.resume("r", store=store, answers=answers, reserve="quote")
        assert seen[-1] == 10 * PRICE
        again = await pipeline.execute(run_id="r", store=store, on_existing="return", reserve="quote")
        assert again.ok


# --- inside of each other ---


@pytest.mark.parametrize("kept", KINDS, indirect=True)
async def test_a_run_inside_of_another_reserves_its_part_of_what_that_has_reserved(kept: Kept) -> None:
    limit = SpendLimit(microcents=2 * RUN, window="total", key="acme", store=kept.store)
    inner = two_steps(agent())

    async def work(ctx: StepContext[Any]) -> None:
        await inner.execute(reserve="quote")
        assert ctx.budget.remaining.microcents == RUN
        assert await spent_and_reserved(limit) == (RUN, RUN)

    async with budget_scope([Budget(microcents=2 * RUN), limit]) as scope:
        await code_that(work, 2 * RUN).execute(reserve="quote")
        assert left(scope) == RUN
    assert await spent_and_reserved(limit) == (RUN, 0)


async def test_routers_and_graphs_reserve_their_quotes_too() -> None:
    class Router(BasePipeline[Any, Any, str]):
        async def route(self, inputs: Any, deps: Any) -> str:
            return "two"

    router = Router("router")
    router.register_pipeline("two", two_steps(agent()))

    @step
    async def node(ctx: StepContext[Any]) -> str:
        assert ctx.budget.remaining.microcents == RUN
        return (await ctx.run(agent(), "?")).output

    graph: Graph[Any, Any, Any] = Graph(
        "graph", nodes={"node": node}, entry="node", config=PipelineConfig(cost_budget=RUN)
    )
    async with budget_scope(Budget(microcents=2 * RUN)) as scope:
        await router.execute(reserve="quote")
        await graph.execute(reserve="quote")
        assert left(scope) == PRICE
        for refused in (router, graph):
            with pytest.raises(CostBudgetExceeded, match="By its quote"):
                await refused.execute(reserve="quote")
    assert scope.usage.cost_microcents == RUN + PRICE


async def test_streams_reserve_too_and_sync_calls() -> None:
    pipeline = two_steps(agent())
    async with budget_scope(Budget(microcents=RUN)):
        async with pipeline.stream(reserve="quote") as stream:
            async for _ in stream:
                pass
        assert stream.result.ok
        with pytest.raises(CostBudgetExceeded, match="By its quote"):
            async with pipeline.stream(reserve="quote") as stream:
                async for _ in stream:
                    pass
    limit = SpendLimit(microcents=RUN, window="total", key="sync")
    limited = two_steps(agent(), PipelineConfig(budget=limit))
    assert (await asyncio.to_thread(lambda: limited.execute_sync(reserve="quote"))).ok


async def test_tokens_and_requests_are_limited_as_ever() -> None:
    async with budget_scope(Budget(microcents=10 * RUN, requests=1)) as scope:
        with pytest.raises(Exception, match="1 of 1 requests is used"):
            await two_steps(agent()).execute(reserve="quote")
    assert scope.usage.request_count == 1
