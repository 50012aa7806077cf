"""Spend limits whose amounts functions say, and limits on what runs with a tag spend."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from support.agents import paid_agent

from fastroai import (
    Pipeline,
    PipelineConfig,
    SpendLimit,
    SpendLimitExceeded,
    StepContext,
    budget_scope,
    step,
)
from fastroai.errors import ConfigurationError
from fastroai.pipelines import BudgetWarning
from fastroai.records import usd_to_microcents
from fastroai.store import MemorySpendStore, SQLiteSpendStore
from fastroai.usage import SpendBook, SpendStore


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SpendStore:
    return MemorySpendStore() if request.param == "memory" else SQLiteSpendStore(tmp_path / "spend.db")


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> dict[str | None, str]:
    """The plans of customers, in dollars; limits ask for them before each request."""
    monkeypatch.setattr("fastroai.usage.shared.spend_limit.SAID_FOR", 0.0)
    return {"acme": "0.0001", "initech": "0.0002"}


Plan = Callable[[str, str | None], Any]


@pytest.fixture(params=["async", "plain"])
def plan(request: pytest.FixtureRequest, plans: dict[str | None, str]) -> Plan:
    def plain(key: str, tenant: str | None) -> str:
        return plans[tenant]

    async def asks_a_database(key: str, tenant: str | None) -> str:
        await asyncio.sleep(0)
        return plans[tenant]

    return plain if request.param == "plain" else asks_a_database


async def answers(asking: Callable[[], Awaitable[object]], times: int) -> int:
    """Return how many of these requests were answered before the first one that a limit refused."""
    for answered in range(times):
        try:
            await asking()
        except SpendLimitExceeded:
            return answered
    return times


async def spent(limit: SpendLimit, tenant: str | None = None) -> int:
    return usd_to_microcents((await limit.status(tenant=tenant)).spent_usd)


async def test_a_plan_holds_for_its_customer_and_a_changed_one_from_the_next_request_on(
    store: SpendStore, plan: Plan, plans: dict[str | None, str]
) -> None:
    limit = SpendLimit(usd=plan, key="tenant", store=store)
    agent = paid_agent(100, budget=limit)
    assert await answers(lambda: agent.run("?", tenant="acme"), 5) == 1
    assert await answers(lambda: agent.run("?", tenant="initech"), 5) == 2
    plans["acme"] = "0.0004"
    assert await answers(lambda: agent.run("?", tenant="acme"), 5) == 3
    plans["acme"] = "0.0001"
    with pytest.raises(SpendLimitExceeded, match=r"\$0\.0004 of \$0\.0001") as stop:
        await agent.run("?", tenant="acme")
    assert stop.value.budget_microcents == 100
    assert (await limit.status(tenant="acme")).limit_usd == (await limit.amount_for("tenant:acme", "acme"))


async def test_of_two_limits_on_one_account_the_lower_holds_whichever_it_is_by_then(
    store: SpendStore, plan: Plan, plans: dict[str | None, str]
) -> None:
    fixed = SpendLimit(microcents=200, key="tenant", store=store)
    agent = paid_agent(100, budget=[fixed, SpendLimit(usd=plan, key="tenant", store=store)])
    assert await answers(lambda: agent.run("?", tenant="acme"), 5) == 1
    plans["acme"] = "1"
    assert await answers(lambda: agent.run("?", tenant="acme"), 5) == 1
    assert await spent(fixed, "acme") == 200


async def test_nothing_is_sent_if_the_plan_cannot_be_asked_for(store: SpendStore, plan: Plan) -> None:
    limit = SpendLimit(usd=plan, key="tenant", store=store)
    with pytest.raises(ConfigurationError, match="tenant 'unknown': KeyError"):
        await paid_agent(100, budget=limit).run("?", tenant="unknown")
    assert await SpendBook(store).list() == ()


async def test_what_a_step_records_counts_against_the_plan(store: SpendStore, plan: Plan) -> None:
    begun: list[str] = []

    @step
    async def first(ctx: StepContext[None]) -> None:
        begun.append("first")
        ctx.record_usage(model="acme:search", cost_usd="0.0003")

    @step
    async def second(ctx: StepContext[None]) -> None:
        begun.append("second")

    limit = SpendLimit(usd=plan, key="tenant", store=store)
    steps, config = {"first": first, "second": second}, PipelineConfig(budget=limit)
    pipeline = Pipeline("plans", steps, {"second": ["first"]}, config=config)
    with pytest.raises(SpendLimitExceeded, match=r"\$0\.0003 of \$0\.0001"):
        await pipeline.execute({}, None, tenant="acme")
    assert begun == ["first"]
    assert await spent(limit, "acme") == 300


async def test_a_limit_by_tag_counts_only_what_runs_with_the_tag(store: SpendStore) -> None:
    limit = SpendLimit(microcents=200, tag="experiment", store=store)
    agent = paid_agent(100, budget=limit)
    assert await answers(lambda: agent.run("?"), 4) == 4
    assert await answers(lambda: agent.run("?", tags=["production"]), 4) == 4
    assert await answers(lambda: agent.run("?", tags=["night", "experiment"]), 4) == 2
    assert await spent(limit) == 200
    assert await answers(lambda: agent.run("?"), 1) == 1, "others go on"


async def test_a_limit_by_tag_finds_the_tag_wherever_it_is_set_inside(store: SpendStore) -> None:
    limit = SpendLimit(microcents=200, tag="experiment", store=store)
    everything = SpendLimit(microcents=1_000, key="everything", store=store)
    agent = paid_agent(100)

    @step
    async def try_out(ctx: StepContext[None]) -> None:
        await ctx.run(agent, "?")
        with budget_scope(tags=["experiment"]):
            await ctx.run(agent, "?")
        await agent.run("?", tags=["experiment"])

    config = PipelineConfig(budget=[limit, everything])
    pipeline = Pipeline("tags", {"try_out": try_out}, config=config)
    await pipeline.execute({}, None)
    assert (await spent(limit), await spent(everything)) == (200, 300)
    with pytest.raises(SpendLimitExceeded) as stop:
        await pipeline.execute({}, None)
    assert stop.value.key == "tag:experiment"
    assert (await spent(limit), await spent(everything)) == (200, 400)


async def test_each_tag_and_each_tenant_of_a_tag_can_have_an_account(store: SpendStore) -> None:
    by_tag = [SpendLimit(microcents=amount, tag=tag, store=store) for tag, amount in (("a", 300), ("b", 200))]
    of_tenants = SpendLimit(microcents=100, tag="a", key="tenant", store=store)
    agent = paid_agent(100, budget=[*by_tag, of_tenants])
    assert await answers(lambda: agent.run("?", tags=["a"], tenant="acme"), 4) == 1
    assert await answers(lambda: agent.run("?", tags=["b"], tenant="acme"), 4) == 2
    with pytest.raises(SpendLimitExceeded):
        await agent.run("?", tags=["a", "b"], tenant="initech")
    keys = {status.key: usd_to_microcents(status.spent_usd) for status in await SpendBook(store).list()}
    assert {key: cost for key, cost in keys.items() if cost} == {
        "tag:a": 100,
        "tag:a/tenant:acme": 100,
        "tag:b": 200,
    }


async def test_the_warning_of_a_limit_by_tag_is_given_once(store: SpendStore) -> None:
    told: list[BudgetWarning] = []
    limit = SpendLimit(microcents=200, tag="x", store=store, warn_at=0.5, on_warning=told.append)
    agent = paid_agent(100, budget=limit)
    async with budget_scope(limit):
        for _ in range(2):
            await agent.run("?", tags=["x"])
    assert [(warning.key, warning.threshold) for warning in told] == [("tag:x", 0.5)]
