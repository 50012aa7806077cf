"""What a type checker knows of flows. Checked by mypy and pyright, never run."""

from __future__ import annotations

from collections.abc import Coroutine
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


assert_type(double, Flow[[int], int])  # type: ignore[assert-type]  # pyright: ignore[reportAssertTypeFailure]
assert_type(double(1, times=3), Coroutine[Any, Any, int])
assert_type(run(double(1)), int)

double("1")  # type: ignore[arg-type, unused-coroutine]  # pyright: ignore[reportArgumentType, reportUnusedCoroutine]
double(1, tiems=3)  # type: ignore[call-arg, unused-coroutine]  # pyright: ignore[reportCallIssue, reportUnusedCoroutine]


@flow  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType, reportUntypedFunctionDecorator]
def not_async(number: int) -> int:
    return number


async def awaited() -> None:
    assert_type(await double(1), int)
    assert_type(await triage("text"), list[str])
    assert_type(await triage.run("text", run_id="ticket-42"), list[str])
    assert_type(await triage.resume("ticket-42"), list[str])
    assert_type(await triage.execute({"text": "text"}), list[str])
    assert_type(triage.records, tuple[CallRecord, ...])
    async with triage.stream({"text": "text"}) as stream:
        assert_type(stream.result, list[str])
    Pipeline("p", {"triage": triage.as_step()})
    assert_type(await await_human(HumanReviewContext("Send it?"), bool), HumanDecision[bool])
    assert_type(await await_human(HumanReviewContext("Send it?")), HumanDecision[str])
    assert_type(await await_human(HumanReviewContext("Send it?"), Literal["yes", "no"]), HumanDecision[Any])
