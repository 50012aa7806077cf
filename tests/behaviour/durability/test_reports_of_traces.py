"""The report of a run on record tells what was thrown away, as that of its result does."""

from __future__ import annotations

from typing import Any

import pytest
from support.agents import paid_agent

from fastroai import MemoryRunStore, Pipeline, PipelineConfig, RunHistory, StepContext, step
from fastroai.errors import StepExecutionError
from fastroai.usage import UsageReport


def outcomes(report: UsageReport) -> dict[str, int]:
    return {name: row.request_count for name, row in report.by_outcome.items() if row.request_count}


def asking(*, failures: int, retries: int) -> Pipeline[Any, Any, Any]:
    left = [failures]

    @step(retries=retries)
    async def ask(ctx: StepContext) -> str:
        answer = (await ctx.run(paid_agent(100), "?")).output
        if left[0]:
            left[0] -= 1
            raise ConnectionError("no")
        return str(answer)

    return Pipeline("p", {"ask": ask}, config=PipelineConfig(retries=0))


async def test_answers_of_attempts_that_were_retried_count_as_retried() -> None:
    store = MemoryRunStore()
    result = await asking(failures=1, retries=1).execute(run_id="r", store=store)
    assert outcomes(result.usage.report()) == {"kept": 1, "retried": 1}
    assert outcomes(result.trace.report()) == {"kept": 1, "retried": 1}
    assert outcomes((await RunHistory(store).trace("r")).report()) == {"kept": 1, "retried": 1}


async def test_answers_of_an_attempt_that_failed_count_as_failed() -> None:
    store, pipeline = MemoryRunStore(), asking(failures=1, retries=0)
    with pytest.raises(StepExecutionError):
        await pipeline.execute(run_id="r", store=store)
    assert outcomes((await RunHistory(store).trace("r")).report()) == {"failed": 1}
    result = await pipeline.resume("r", store=store)
    assert outcomes(result.usage.report()) == {"kept": 1, "failed": 1}
    assert outcomes((await RunHistory(store).trace("r")).report()) == {"kept": 1, "failed": 1}
