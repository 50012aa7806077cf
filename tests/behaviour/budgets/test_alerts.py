"""Alerts: shares of a budget or a spend limit that are told once each, to a handler that breaks nothing."""

from __future__ import annotations

import asyncio
import logging
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from support.agents import paid_agent

from fastroai import (
    Budget,
    Pipeline,
    PipelineConfig,
    SpendLimit,
    SpendLimitExceeded,
    StepContext,
    budget_scope,
    step,
)
from fastroai.errors import ConfigurationError, StepExecutionError
from fastroai.pipelines import BudgetWarning
from fastroai.store import MemorySpendStore, SQLiteSpendStore
from fastroai.usage import SpendBook

SHARES = (0.95, 0.5, 0.8)


def shown(warning: BudgetWarning) -> tuple[float, Decimal]:
    return warning.threshold, warning.share


async def test_each_share_of_a_budget_is_told_once_in_the_run_that_has_it() -> None:
    told: list[BudgetWarning] = []
    budget = Budget(microcents=1_000, warn_at=SHARES, on_warning=told.append)

    @step
    async def ask(ctx: StepContext) -> None:
        for _ in range(10):
            await ctx.run(paid_agent(100), "?")

    for _ in range(2):
        await Pipeline("desk", {"ask": ask}, config=PipelineConfig(budget=budget)).execute()
        assert [shown(each) for each in told] == [
            (0.5, Decimal("0.5")),
            (0.8, Decimal("0.8")),
            (0.95, Decimal(1)),
        ]
        assert {each.scope_path for each in told} == {("desk",)}
        told.clear()


async def test_a_request_that_passes_several_shares_tells_of_each() -> None:
    told: list[BudgetWarning] = []
    async with budget_scope(Budget(microcents=100, warn_at=SHARES, on_warning=told.append)):
        await paid_agent(100).run("?")
    assert [each.threshold for each in told] == [0.5, 0.8, 0.95]


async def test_a_handler_hears_of_its_own_budget_alone() -> None:
    outer: list[BudgetWarning] = []
    inner: list[BudgetWarning] = []
    limited: list[BudgetWarning] = []
    limit = SpendLimit(
        microcents=300, key="team", store=MemorySpendStore(), warn_at=0.9, on_warning=limited.append
    )
    async with budget_scope([Budget(microcents=200, on_warning=outer.append), limit], name="outer"):
        async with budget_scope([Budget(microcents=100, on_warning=inner.append), limit], name="inner"):
            await paid_agent(100).run("?")
        assert (len(outer), len(inner), len(limited)) == (0, 1, 0)
        await paid_agent(100).run("?")
        assert (len(outer), len(inner), len(limited)) == (1, 1, 0)
        assert [each.scope_path for each in (*outer, *inner)] == [("outer",), ("outer", "inner")]
    await paid_agent(100, budget=limit).run("?")
    assert [(each.key, each.window, each.threshold) for each in limited] == [("team", "day", 0.9)]


async def test_what_a_step_records_is_warned_of_too() -> None:
    told: list[BudgetWarning] = []

    @step
    async def look_up(ctx: StepContext) -> None:
        ctx.record_usage(model="search", cost_usd="0.6")

    budget = Budget(usd=1, warn_at=0.5, on_warning=told.append)
    await Pipeline("desk", {"look_up": look_up}, config=PipelineConfig(budget=budget)).execute()
    assert [shown(each) for each in told] == [(0.5, Decimal("0.6"))]


async def test_each_share_of_a_spend_limit_is_told_once_among_all_that_share_it(tmp_path: Path) -> None:
    told: list[tuple[str, float]] = []

    def limit(name: str) -> SpendLimit:
        store = SQLiteSpendStore(tmp_path / "spend.db")
        stores.append(store)
        return SpendLimit(
            microcents=2_000,
            window="total",
            warn_at=SHARES,
            on_warning=lambda warning: told.append((name, warning.threshold)),
            store=store,
        )

    stores: list[SQLiteSpendStore] = []
    agents = [paid_agent(100, budget=limit(name)) for name in ("a", "b")]
    await asyncio.gather(*(agent.run("?") for agent in agents for _ in range(10)))
    assert sorted(threshold for _, threshold in told) == [0.5, 0.8, 0.95]
    for store in stores:
        await store.aclose()


async def test_a_budget_of_a_call_in_a_step_tells_once() -> None:
    told: list[BudgetWarning] = []
    budget = Budget(microcents=200, warn_at=SHARES, on_warning=told.append)

    @step
    async def ask(ctx: StepContext) -> None:
        await ctx.run(paid_agent(100), "?", budget=budget)

    events = [event async for event in Pipeline("desk", {"ask": ask}).stream()]
    assert [(each.threshold, each.scope_path) for each in told] == [(0.5, ("desk", "ask", "call"))]
    assert [event for event in events if isinstance(event, BudgetWarning)] == told


async def test_a_share_is_left_to_those_who_listen(tmp_path: Path) -> None:
    told: list[BudgetWarning] = []
    store = SQLiteSpendStore(tmp_path / "spend.db")
    deaf = SpendLimit(microcents=200, store=store, warn_at=0.5)
    await paid_agent(100, budget=deaf).run("?")
    hearing = SpendLimit(microcents=200, store=store, warn_at=0.5, on_warning=told.append)
    await paid_agent(0, budget=hearing).run("?")
    await paid_agent(0, budget=hearing).run("?")
    assert [shown(each) for each in told] == [(0.5, Decimal("0.5"))]
    await store.aclose()


async def test_what_a_step_records_reaches_the_shares_of_spend_limits() -> None:
    told: list[BudgetWarning] = []
    limit = SpendLimit(usd=1, store=MemorySpendStore(), warn_at=(0.5, 0.9), on_warning=told.append)

    @step
    async def look_up(ctx: StepContext) -> None:
        ctx.record_usage(model="search", cost_usd="0.55")
        if not told:
            raise RuntimeError("after it was paid for")

    pipeline = Pipeline("desk", {"look_up": look_up}, config=PipelineConfig(budget=limit))
    with pytest.raises(StepExecutionError, match="after it was paid for"):
        await pipeline.execute()
    assert [shown(each) for each in told] == [(0.5, Decimal("0.55"))]
    await pipeline.execute()  # it crosses the limit, and has finished
    assert [shown(each) for each in told] == [(0.5, Decimal("0.55")), (0.9, Decimal("1.1"))]


async def test_after_a_raise_the_handler_hears_of_the_limit_in_force(tmp_path: Path) -> None:
    told: list[BudgetWarning] = []
    store, other = (SQLiteSpendStore(tmp_path / "spend.db") for _ in range(2))
    agent = paid_agent(
        100, budget=SpendLimit(microcents=100, store=store, warn_at=0.5, on_warning=told.append)
    )
    await agent.run("?")
    with pytest.raises(SpendLimitExceeded):
        await agent.run("?")
    await SpendBook(other).set_limit("default", "0.0004", by="Mia", reason="a large order")
    await agent.run("?")
    limits = [(each.share, each.limit_usd, each.coded_usd) for each in told]
    in_code = Decimal("0.0001")
    assert limits == [(1, in_code, None), (Decimal("0.5"), Decimal("0.0004"), in_code)]
    with pytest.raises(SpendLimitExceeded) as caught:
        await paid_agent(300, budget=SpendLimit(microcents=100, store=store)).run("?")
    assert (caught.value.budget_microcents, caught.value.actual_microcents) == (400, 200)
    for each in (store, other):
        await each.aclose()


async def test_a_handler_may_be_async_and_its_errors_are_logged_and_break_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[BudgetWarning] = []

    async def handler(warning: BudgetWarning) -> None:
        await asyncio.sleep(0)
        told.append(warning)
        raise ConnectionError("the webhook is gone")

    with caplog.at_level(logging.ERROR, "fastroai.runtime"):
        response = await paid_agent(100, budget=Budget(microcents=100, on_warning=handler)).run("hello")
    assert response.output == "answer to hello"
    assert len(told) == 1
    assert "on_warning failed on BudgetWarning; the run is not affected" in caplog.text
    assert "the webhook is gone" in caplog.text


def test_a_handler_is_called_where_no_event_loop_runs() -> None:
    told: list[BudgetWarning] = []
    with budget_scope(Budget(microcents=100, on_warning=told.append)):
        paid_agent(100).run_sync("?")
    assert [each.threshold for each in told] == [0.8]


@pytest.mark.parametrize("warn_at", [None, ()])
async def test_nothing_is_told_where_no_share_is_to_be_warned_of(warn_at: Any) -> None:
    told: list[BudgetWarning] = []
    limit = SpendLimit(microcents=100, store=MemorySpendStore(), warn_at=warn_at, on_warning=told.append)
    budget = Budget(microcents=100, warn_at=warn_at, on_warning=told.append)
    await paid_agent(100, budget=[budget, limit]).run("?")
    assert told == []


@pytest.mark.parametrize("make", [Budget, SpendLimit])
@pytest.mark.parametrize("share", [0, 1.01, -0.5, True, "0.8", float("nan")])
def test_shares_and_handlers_that_are_none_are_refused(make: Any, share: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"warn_at=.*a share of the limit, above 0 and at most 1"):
        make(usd=1, warn_at=(0.5, share))
    with pytest.raises(ConfigurationError, match=r"on_warning=.*a function of one argument"):
        make(usd=1, on_warning="https://hooks.example")
