"""One call of a typed function: its place, its record, and what a resumed run does with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.interruptions import RUN, DyingStore, nth

from fastroai import Pipeline, StepContext, step
from fastroai.errors import RunStoreUnavailable
from fastroai.functions.calling import perform
from fastroai.functions.kept_calls import CallDraft, FunctionCall, kept_records
from fastroai.runtime.facts import CallEnded
from fastroai.steps import PipelineConfig, StepConfig
from fastroai.steps.config import resolve
from fastroai.store import MemoryRunStore, RunHistory

PLAIN = resolve(StepConfig(), pipeline=PipelineConfig())
Body = Callable[[StepContext[Any], CallDraft], Awaitable[Any]]


def call(name: str, key: str = "0123456789ab", returns: Any = int) -> FunctionCall[Any]:
    return FunctionCall(
        signature=None, name=name, kind="compute", inputs={"key": key}, key=key, returns=returns, config=PLAIN
    )


def giving(value: object, made: list[object] | None = None) -> Body:
    async def body(context: StepContext[Any], draft: CallDraft) -> object:
        if made is not None:
            made.append(value)
        return value

    return body


async def test_outside_of_runs_a_call_runs_and_is_on_a_record_in_memory() -> None:
    assert await perform(call("classify"), giving(3)) == 3
    record = kept_records()[-1]
    assert (record.function, record.outcome, record.output) == ("classify", "success", 3)
    assert (record.inputs, record.flow_id) == ({"key": "0123456789ab"}, "")


async def test_equal_calls_are_told_apart_by_their_ordinal_and_others_by_their_inputs() -> None:
    @step
    async def work(ctx: StepContext[None]) -> list[int]:
        keys = ["a" * 12, "b" * 12, "a" * 12]
        return list(await asyncio.gather(*(perform(call("classify", key), giving(1)) for key in keys)))

    store = MemoryRunStore()
    result = await Pipeline("p", {"work": work}).execute(store=store)
    ended = [one for one in result.trace.entries if isinstance(one, CallEnded)]
    assert [one.place for one in ended] == [
        f"work@1/classify#{'a' * 12}",
        f"work@1/classify#{'b' * 12}",
        f"work@1/classify#{'a' * 12}.2",
    ]
    assert [one.output for one in ended] == [1, 1, 1]


async def test_a_call_that_is_on_record_is_not_made_again() -> None:
    made: list[object] = []
    store = MemoryRunStore()

    @step
    async def work(ctx: StepContext[None]) -> int:
        one: int = await perform(call("one"), giving(1, made))
        two: int = await perform(call("two"), giving(2, made))
        return one + two

    pipeline = Pipeline("p", {"work": work})
    dying = DyingStore(store, nth(CallEnded, 2), written=True)
    with pytest.raises(RunStoreUnavailable):
        await pipeline.execute(run_id=RUN, store=dying)
    assert made == [1, 2]
    made[:] = []
    assert (await pipeline.resume(RUN, store=store)).output == 3
    assert made == []
    explained = (await RunHistory(store).trace(RUN)).explain()
    assert "work@1/one#0123456789ab: the call, attempt 1, returned" in explained
