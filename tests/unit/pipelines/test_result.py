"""What a run gives back."""

import copy
import json
import pickle
from dataclasses import fields, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from support.agents import paid_agent

from fastroai import format_cost
from fastroai.pipelines import (
    ConversationState,
    ConversationStatus,
    Pipeline,
    PipelineResult,
    StepContext,
    step,
)
from fastroai.records import RequestRecord, Tokens, Usage
from fastroai.steps.context import scope_of
from fastroai.store import MemoryRunStore, RunHistory


@step
async def cheap(ctx: StepContext) -> str:
    ctx.record_usage(
        model="acme:writer",
        input_tokens=100,
        output_tokens=20,
        cache_read_tokens=30,
        cache_write_tokens=40,
        cost_usd="0.0000015",
    )
    return "cheap"


@step
async def dear(ctx: StepContext) -> str:
    await ctx.run(paid_agent(2_000), "hello")
    ctx.record_usage(model="acme:writer", input_tokens=1, cost_usd="0.0000010")
    return "dear"


async def test_every_kind_of_token_has_its_total() -> None:
    tokens = Tokens(
        input_tokens=100,
        output_tokens=90,
        cache_read_tokens=1,
        cache_write_tokens=2,
        input_audio_tokens=3,
        output_audio_tokens=4,
        reasoning_tokens=5,
    )

    @step
    async def spends(ctx: StepContext) -> None:
        now = datetime.now(UTC)
        scope_of(ctx).charge(
            RequestRecord(model="m", provider="p", outcome="settled", tokens=tokens, started_at=now)
        )

    usage = (await Pipeline[Any, Any]("p", {"a": spends, "b": spends}, output_step="a").execute()).usage
    for kind in ("input", "output", "cache_read", "cache_write", "input_audio", "output_audio", "reasoning"):
        assert getattr(usage, f"total_{kind}_tokens") == 2 * getattr(tokens, f"{kind}_tokens")
    assert usage.total_tokens == 380
    assert (usage.unpriced_requests, usage.cost_complete) == (2, False)


async def test_a_run_has_each_number_that_a_usage_has() -> None:
    @step
    async def unmeasured(ctx: StepContext) -> None:
        record = RequestRecord(model="m", provider="p", outcome="unmeasured", bound_usd=Decimal("0.5"))
        scope_of(ctx).charge(record)

    result = await Pipeline[Any, Any](
        "p", {"cheap": cheap, "unmeasured": unmeasured}, {"unmeasured": ["cheap"]}
    ).execute()
    usage = result.usage
    assert (usage.uncertain_usd, usage.committed_usd) == (Decimal("0.5"), Decimal("0.5000015"))
    properties = [name for name, one in vars(Usage).items() if isinstance(one, property)]
    for name in (*(one.name for one in fields(Usage)), *properties):
        assert getattr(usage, name) == getattr(usage.total, name), name
    assert result.committed_tokens == usage.committed_tokens == 120


@pytest.fixture
async def result() -> PipelineResult[Any]:
    return await Pipeline[Any, Any]("p", {"cheap": cheap, "dear": dear}, {"dear": ["cheap"]}).execute()


async def test_costs_are_exact_and_rounded_once(result: PipelineResult[Any]) -> None:
    usage = result.usage
    assert usage.cost_usd == Decimal("0.0020025")
    assert usage.cost_microcents == 2_002, "half to even; rounding each step would give 2,003"
    assert usage.cost_dollars == 0.0020025
    assert [step.cost_microcents for step in usage.steps.values()] == [2, 2_001]
    assert usage.cost_complete


async def test_costs_of_a_pipeline_have_their_former_names_too(result: PipelineResult[Any]) -> None:
    usage = result.usage
    former = (usage.total_cost_usd, usage.total_cost_microcents, usage.total_cost_dollars)
    assert former == (usage.cost_usd, usage.cost_microcents, usage.cost_dollars)


async def test_a_result_is_an_account_of_its_run(result: PipelineResult[Any]) -> None:
    assert (result.cost_usd, result.cost_complete, result.failed_requests) == (Decimal("0.0020025"), True, 0)
    assert format_cost(result) == format_cost(result.usage) == format_cost(result.usage.report()) == "$0.002"


async def test_failed_requests_have_one_name_everywhere() -> None:
    @step
    async def refused(ctx: StepContext) -> None:
        scope_of(ctx).charge(RequestRecord(model="m", provider="p", outcome="released", step_id="a"))

    store = MemoryRunStore()
    result = await Pipeline[Any, Any]("p", {"a": refused}).execute(run_id="r", store=store)
    accounts = (
        result,
        result.usage,
        result.usage.total,
        result.usage.steps["a"],
        result.usage.report(),
        result.usage.report().by_step["a"],
        await RunHistory(store).summary("r"),
    )
    assert [account.failed_requests for account in accounts] == [1] * len(accounts)


async def test_totals_are_those_of_every_step(result: PipelineResult[Any]) -> None:
    usage = result.usage
    assert (usage.total_input_tokens, usage.total_output_tokens, usage.total_tokens) == (2_101, 20, 2_121)
    assert (usage.total_cache_read_tokens, usage.total_cache_write_tokens) == (30, 40)
    assert (usage.request_count, usage.agent_call_count) == (3, 1)
    assert (usage.unpriced_requests, usage.unmeasured_requests) == (0, 0)
    assert replace(usage.total, agent_call_count=0) == Usage.of(list(usage.records))
    assert [record.model for record in usage.records] == ["writer", "paid", "writer"]
    assert repr(usage) == "PipelineUsage(cost_usd=0.0020025, total_tokens=2121, requests=3)"


async def test_usage_is_there_by_step_and_by_model(result: PipelineResult[Any]) -> None:
    usage = result.usage
    assert usage.by_step == usage.steps
    assert list(usage.steps) == ["cheap", "dear"]
    assert {model: spent.cost_usd for model, spent in usage.by_model.items()} == {
        "acme:writer": Decimal("0.0000025"),
        "function:paid": Decimal("0.002"),
    }


async def test_a_model_is_one_row_with_and_without_the_provider_that_its_name_tells() -> None:
    @step
    async def spends(ctx: StepContext) -> None:
        ctx.record_usage(model="gpt-4o", cost_usd="0.01")
        ctx.record_usage(model="openai:gpt-4o", cost_usd="0.02")
        ctx.record_usage(model="search", cost_usd="0.04")
        async with ctx.spend("0.08", model="gpt-4o") as purchase:
            purchase.settle("0.08")

    usage = (await Pipeline[Any, Any]("p", {"spends": spends}).execute()).usage
    costs = {model: spent.cost_usd for model, spent in usage.by_model.items()}
    assert costs == {"openai:gpt-4o": Decimal("0.11"), "search": Decimal("0.04")}
    assert {model: row.cost_usd for model, row in usage.report().by_model.items()} == costs


async def test_times_are_there_by_step_and_for_the_run(result: PipelineResult[Any]) -> None:
    cheap_ran, dear_ran = result.timings["cheap"], result.timings["dear"]
    assert 0 <= cheap_ran.started_ms <= cheap_ran.finished_ms <= dear_ran.started_ms <= dear_ran.finished_ms
    assert result.usage.processing_time_ms == dear_ran.finished_ms
    assert result.usage.steps["dear"].processing_time_ms == dear_ran.duration_ms > 0
    assert result.critical_path == ("cheap", "dear")


async def test_outputs_are_there_by_step(result: PipelineResult[Any]) -> None:
    assert (result.output, result.output_step) == ("dear", "dear")
    assert result.step_outputs == {"cheap": "cheap", "dear": "dear"}
    assert result.ok
    assert result.run_id


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
async def test_a_result_can_be_copied_and_pickled(copied: Any, result: PipelineResult[Any]) -> None:
    again = copied(result)
    assert (again.output, again.step_outputs, again.run_id) == ("dear", result.step_outputs, result.run_id)
    assert again.usage.total == result.usage.total
    assert again.usage.steps == result.usage.steps
    assert again.usage.records == result.usage.records
    assert again.usage.by_model == result.usage.by_model
    assert again.usage.processing_time_ms == result.usage.processing_time_ms
    assert again.timings == result.timings


async def test_a_result_does_not_change_any_more() -> None:
    kept: list[StepContext] = []

    @step
    async def keeps(ctx: StepContext) -> None:
        kept.append(ctx)

    result = await Pipeline[Any, Any]("p", {"keeps": keeps}).execute()
    kept[0].record_usage(model="acme:late", input_tokens=5, cost_usd=1)
    assert result.usage.cost_usd == 0
    assert result.usage.steps["keeps"].cost_usd == 0
    assert result.usage.records == ()


async def test_a_result_is_dumped_as_json() -> None:
    @step(on_error="continue")
    async def fails(ctx: StepContext) -> str:
        raise ConnectionError("down")

    result = await Pipeline("p", {"cheap": cheap, "fails": fails}, output_step="cheap").execute()

    dumped = result.model_dump()

    assert json.loads(json.dumps(dumped)) == dumped
    assert dumped["output"] == "cheap"
    assert dumped["errors"] == {"fails": "ConnectionError: down"}
    assert dumped["usage"]["total"]["cost_usd"] == "0.0000015"
    assert dumped["usage"]["steps"]["cheap"]["input_tokens"] == 100
    assert "log" not in dumped
    assert "plan" not in dumped


async def test_usage_of_steps_is_summed() -> None:
    result = await Pipeline("p", {"cheap": cheap, "dear": dear}, output_step="dear").execute()

    assert sum(result.usage.steps.values()).cost_usd == result.usage.cost_usd


async def test_a_result_says_how_the_run_stands_and_whether_it_was_resumed() -> None:
    @step
    async def ask(ctx: StepContext) -> ConversationState[str]:
        order = ctx.get_input("order", None)
        return ConversationState(
            ConversationStatus.COMPLETE if order else ConversationStatus.INCOMPLETE, data=order
        )

    pipeline, store = Pipeline("p", {"ask": ask}), MemoryRunStore()
    first = await pipeline.execute({}, run_id="r", store=store)
    second = await pipeline.resume("r", store=store, inputs={"order": "1182"})

    assert (first.status, first.was_resumed) == ("paused", False)
    assert (second.status, second.was_resumed) == ("finished", True)
