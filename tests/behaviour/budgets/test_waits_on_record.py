"""Waits in line and refusals are on record: who waited, for how long and for what, and who was refused."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.agents import paid_agent
from typer.testing import CliRunner

from fastroai import (
    Budget,
    CostBudgetExceeded,
    Pipeline,
    PipelineConfig,
    RunHistory,
    SpendLimit,
    SQLiteRunStore,
    StepContext,
    step,
)
from fastroai.cli.app import app
from fastroai.pipelines import BudgetRefused, BudgetWaiting, Fact, RequestWaited
from fastroai.runtime import ProviderLimit
from fastroai.store import MemoryRunStore, MemorySpendStore, trace_of

TOLD_OF = (BudgetWaiting, RequestWaited, BudgetRefused)


def two_at_once(before: Callable[[str], Any], **config: Any) -> Pipeline[Any, Any, Any]:
    """Two steps that ask at the same time, where there is room for one request only."""
    agent = paid_agent(100, before=before, provider_limits=config.pop("provider_limits", None))

    def asking(prompt: str) -> Any:
        @step
        async def ask(ctx: StepContext) -> str:
            return (await ctx.run(agent, prompt)).output

        return ask

    steps = {name: asking(name) for name in "ab"}
    return Pipeline("two", steps, output_step="b", config=PipelineConfig(**config))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every wait in line is told of, however short."""
    for module in ("budgets.at_limits", "providers.permits", "budgets.in_line"):
        monkeypatch.setattr(f"fastroai.runtime.{module}.TOLD_AFTER", 0.0)


def told(entries: Any) -> list[Fact]:
    return [fact for fact in entries if isinstance(fact, TOLD_OF)]


async def think(prompt: str) -> None:
    for _ in range(30):
        await asyncio.sleep(0)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("config", "waits_for"),
    [
        (
            {"budget": [Budget(microcents=150)]},
            "$0.0001 of a budget of $0.00015, of which $0.00005 is neither spent nor reserved",
        ),
        (
            {"budget": [SpendLimit(microcents=150, key="team", store=MemorySpendStore())]},
            "$0.0001 of spend limit 'team' of $0.00015, of which $0.00005 is neither spent nor reserved",
        ),
    ],
    ids=["budget", "spend limit"],
)
async def test_a_request_that_waits_for_money_and_is_refused_then_is_on_record_with_both(
    config: dict[str, Any], waits_for: str
) -> None:
    store, heard = MemoryRunStore(), list[Any]()
    with pytest.raises(CostBudgetExceeded):
        await two_at_once(think, **config).execute(run_id="r", store=store, on_event=heard.append)
    trace = await RunHistory(store).trace("r")
    waiting, waited, refused = told(trace.entries)
    assert isinstance(waiting, BudgetWaiting)
    assert isinstance(waited, RequestWaited)
    assert isinstance(refused, BudgetRefused)
    assert waiting.waits_for == waited.waits_for == waits_for
    assert (waiting.place, waited.place, refused.place) == ("b@1", "b@1", "b@1")
    assert waited.seconds > 0
    assert [type(event) for event in told(heard)] == list(TOLD_OF), "listeners hear of the same"
    assert isinstance(refused.error, Exception)
    explained = trace.explain()
    assert f"b@1: a request waits for {waits_for}" in explained
    assert f"b@1: a request has waited {waited.seconds:.1f} s for {waits_for}" in explained
    assert "b@1: refused: fastroai.errors." in explained


@pytest.mark.usefixtures("at_once")
async def test_a_request_that_waits_for_its_provider_is_on_record_with_how_long_it_waited() -> None:
    store, limit = MemoryRunStore(), {"*": ProviderLimit(max_concurrency=1)}
    result = await two_at_once(think, provider_limits=limit).execute(run_id="r", store=store)
    (waited,) = told(result.trace.entries)
    assert isinstance(waited, RequestWaited)
    assert waited.waits_for == "its turn under the provider limit of function"
    record = next(one for one in result.usage.records if one.step_id == "b")
    assert waited.seconds * 1000 == pytest.approx(record.waited_ms, rel=0.5, abs=20)


async def test_nothing_is_on_record_of_a_request_that_waits_for_nothing_or_not_for_long() -> None:
    store = MemoryRunStore()
    config = {"budget": [Budget(microcents=250), SpendLimit(microcents=250, store=MemorySpendStore())]}
    result = await two_at_once(think, **config).execute(run_id="r", store=store)
    assert result.status == "finished"
    assert told(result.trace.entries) == []


@pytest.mark.usefixtures("at_once")
async def test_a_run_that_no_store_keeps_only_tells_its_listeners() -> None:
    heard = list[Any]()
    with pytest.raises(CostBudgetExceeded) as caught:
        await two_at_once(think, budget=[Budget(microcents=150)]).execute(on_event=heard.append)
    trace = trace_of(caught.value)
    assert trace is not None
    assert told(trace.entries) == []
    assert {type(event) for event in told(heard)} == set(TOLD_OF)


async def test_a_refusal_that_a_step_survives_is_on_record_at_its_place_and_the_run_can_be_resumed() -> None:
    store, agent = MemoryRunStore(), paid_agent(100)

    @step
    async def ask(ctx: StepContext) -> str:
        try:
            await ctx.run(agent, "?", budget=Budget(microcents=50))
        except CostBudgetExceeded as stop:
            return type(stop).__name__
        raise AssertionError("it was paid for")

    pipeline = Pipeline("one", {"ask": ask})
    result = await pipeline.execute(run_id="r", store=store)
    (refused,) = told(result.trace.entries)
    assert isinstance(refused, BudgetRefused)
    assert (refused.place, refused.failure.error_type) == ("ask@1", "fastroai.errors.CostBudgetExceeded")
    assert "its limit is $0.00005" in refused.failure.message
    assert (await pipeline.resume("r", store=store)).output == result.output
    assert result.trace.replay(pipeline) is None


class Codec:
    def encode(self, payload: bytes) -> bytes:
        return base64.b85encode(payload)

    def decode(self, payload: bytes) -> bytes:
        return base64.b85decode(payload)


async def test_the_texts_of_waits_and_refusals_go_through_the_codec() -> None:
    store = MemoryRunStore()
    secret = SpendLimit(microcents=50, key="zebra", store=MemorySpendStore())
    pipeline = two_at_once(think, budget=[secret], codec=Codec())
    with pytest.raises(CostBudgetExceeded):
        await pipeline.execute(run_id="r", store=store)
    for found in await store.list("log:"):
        assert b"zebra" not in b"".join((await store.read(found.key)).values), found.key


def test_the_command_line_tells_of_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    path = tmp_path / "runs.db"

    async def fail() -> None:
        store = SQLiteRunStore(path)
        with pytest.raises(CostBudgetExceeded):
            await two_at_once(think, budget=[Budget(microcents=50)]).execute(run_id="r", store=store)
        await store.aclose()

    asyncio.run(fail())
    result = CliRunner().invoke(app, ["runs", "trace", "r", "--store", str(path)], prog_name="fastroai")
    assert result.exit_code == 0, result.output
    assert "a@1: refused: fastroai.errors.CostBudgetExceeded: budget of 'two' is too small" in result.stdout
