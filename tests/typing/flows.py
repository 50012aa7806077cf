"""What a type checker knows of flows. Checked by mypy and pyright, never run."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Literal, assert_type

from fastroai import Budget, Pipeline, PipelineConfig, flow, opaque
from fastroai.functions import Flow, HumanDecision, HumanReviewContext, await_human, run
from fastroai.records import CallRecord


@flow
async def double(number: int, *, times: int = 2) -> int:
    return number * times


@flow(budget=Budget(usd="0.05"), config=PipelineConfig())
async def triage(text: opaque[str]) -> list[str]:
    return [text]


@flow()
async def thrice(number: int) -> int:
    return 3 * number


called: Coroutine[Any, Any, int] = double(1, times=3)
other: Flow[[str], int] = double  # type: ignore[assignment]
assert_type(run(double(1)), int)

double("1")  # type: ignore[arg-type, unused-coroutine]
double(1, tiems=3)  # type: ignore[call-arg, unused-coroutine]


@flow  # type: ignore[arg-type]
def not_async(number: int) -> int:
    return number


async def awaited() -> None:
    assert_type(await double(1), int)
    assert_type(await triage("text"), list[str])
    assert_type(await thrice(1), int)
    assert_type(await triage.run("text", run_id="ticket-42"), list[str])
    assert_type(await triage.run("text", reserve="quote"), list[str])
    assert_type(await triage.resume("ticket-42"), list[str])
    assert_type(await triage.execute({"text": "text"}), list[str])
    assert_type(triage.records, tuple[CallRecord, ...])
    assert_type(await triage.run("text", store="runs.db", on_event=print), list[str])
    async with triage.stream("text", run_id="ticket-42", store=Path("runs.db")) as stream:
        assert_type(stream.result, list[str] | None)
    async with triage.execute_stream({"text": "text"}) as stream:
        assert_type(stream.result, list[str] | None)
    Pipeline("p", {"triage": triage.as_step()})
    assert_type(await await_human(HumanReviewContext("Send it?"), bool), HumanDecision[bool])
    assert_type(await await_human(HumanReviewContext("Send it?")), HumanDecision[str])
    assert_type(await await_human(HumanReviewContext("Send it?"), Literal["yes", "no"]), HumanDecision[Any])
