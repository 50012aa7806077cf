"""What users do by mistake, and what they then read."""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from support.agents import paid_agent

from fastroai import BasePipeline, ConfigurationError, Pipeline, StepContext, StepExecutionError, step
from fastroai.errors import UnknownPipelineError


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
@pytest.mark.parametrize("steps", [1, 2])
def test_an_exit_in_a_step_leaves_a_sync_run_at_once(error: BaseException, steps: int) -> None:
    @step
    async def leaves(ctx: StepContext) -> None:
        await asyncio.sleep(0)
        raise error

    @step
    async def stays(ctx: StepContext) -> None:
        await asyncio.Event().wait()

    pipeline = Pipeline(
        "p", dict(list({"leaves": leaves, "stays": stays}.items())[:steps]), output_step="leaves"
    )
    with pytest.raises(type(error)):
        pipeline.execute_sync()
    # the shared background loop is still there for others
    assert paid_agent(1).run_sync("hello").cost_microcents == 1


async def test_a_forgotten_await_is_an_error_and_not_an_output() -> None:
    @step
    async def forgets(ctx: StepContext) -> Any:
        return ctx.run(paid_agent(1), "hi")

    with pytest.raises(StepExecutionError, match="await the coroutine"):
        await Pipeline("p", {"forgets": forgets}).execute()


def test_a_generator_is_not_a_step() -> None:
    async def chunks(ctx: StepContext) -> AsyncIterator[str]:
        yield "a"

    with pytest.raises(ConfigurationError, match=r"without `yield`; ctx\.run_stream streams"):
        step(chunks)


async def test_a_result_can_be_pickled_and_copied() -> None:
    agent = paid_agent(7)
    result = await Pipeline("p", {"ask": agent.as_step("hi")}).execute()
    for twin in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert twin.output == result.output
        assert twin.usage.cost_usd == result.usage.cost_usd
        assert twin.usage.steps == result.usage.steps
        assert twin.usage.by_model == result.usage.by_model
        assert twin.usage.records == result.usage.records


class Choice(BasePipeline[Any, Any, str]):
    async def route(self, inputs: Mapping[str, Any], deps: Any) -> str:
        return "first"


@step
async def fails(ctx: StepContext) -> str:
    raise ValueError("the real reason")


async def test_a_misspelt_fallback_is_found_before_anything_runs() -> None:
    ran = []

    @step
    async def notes(ctx: StepContext) -> str:
        ran.append(1)
        return "x"

    router = Choice("r")
    router.register_pipeline("first", Pipeline("first", {"notes": notes}), fallback="secnd")
    router.register_pipeline("second", Pipeline("second", {"notes": notes}))
    with pytest.raises(UnknownPipelineError, match="Did you mean 'second'"):
        await router.execute()
    assert not ran


async def test_a_fallback_is_told_in_the_log_and_on_the_result(caplog: pytest.LogCaptureFixture) -> None:
    router = Choice("r")
    router.register_pipeline("first", Pipeline("first", {"fails": fails}), fallback="second")
    router.register_pipeline("second", Pipeline("second", {"ask": paid_agent(1).as_step("hi")}))
    with caplog.at_level(logging.WARNING, "fastroai.pipelines"):
        result = await router.execute()
    assert result.routes == ("first", "second")
    assert "'first' failed, trying 'second': step 'fails' failed: ValueError: the real reason" in caplog.text


def test_a_pipeline_is_not_its_own_fallback() -> None:
    with pytest.raises(ConfigurationError, match="the name of another pipeline"):
        Choice("r").register_pipeline("first", Pipeline("first", {"fails": fails}), fallback="first")


def test_a_cost_budget_in_dollars_is_told_of_microcents() -> None:
    with pytest.raises(ConfigurationError, match=r"microcents .* for dollars: budget=Budget\(usd="):
        step(cost_budget=0.5)  # type: ignore[call-overload]
