"""The trace of a run that no store keeps says what that of a stored run says."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from support.durable import DIAMOND, Counted

from fastroai.errors import FastroAIError
from fastroai.pipelines import (
    BasePipeline,
    ConversationState,
    ConversationStatus,
    Pipeline,
    PipelineConfig,
    StepContext,
    step,
)
from fastroai.runtime.facts import StepFailed, StepSkipped, StepStarted
from fastroai.store import MemoryRunStore, trace_of
from fastroai.store.reading.trace import RunTrace


def failing(*names: str, **options: Any) -> Pipeline[Any, Any]:
    counted = Counted()
    counted.failing = set(names)
    return counted.pipeline("p", DIAMOND, **options)


def retried() -> Pipeline[Any, Any]:
    @step(retries=2, retry_delay=0)
    async def shaky(ctx: StepContext[Any]) -> int:
        ctx.record_usage(model="search", cost_usd="0.1")
        if ctx.attempt < 2:
            raise ValueError("not yet")
        return 1

    return Pipeline("p", {"shaky": shaky})


def nested(*names: str) -> Pipeline[Any, Any]:
    counted = Counted()
    counted.failing = set(names)
    inner = counted.pipeline("inner", DIAMOND)
    return Pipeline("p", {"x": counted.step("x"), "in": inner.as_step()}, {"in": ["x"]})


class Router(BasePipeline[Any, Any]):
    async def route(self, inputs: Mapping[str, Any], deps: Any) -> str:
        return "only"


def routed() -> Pipeline[Any, Any]:
    router = Router("router")
    router.register_pipeline("only", Counted().pipeline("inner", DIAMOND))
    return Pipeline("p", {"in": router.as_step()})


def out_of_time() -> Pipeline[Any, Any]:
    @step
    async def slow(ctx: StepContext[Any]) -> None:
        await asyncio.Event().wait()

    return Pipeline("p", {"slow": slow}, config=PipelineConfig(total_timeout=0.3))


def waiting() -> Pipeline[Any, Any]:
    @step
    async def ask(ctx: StepContext[Any]) -> ConversationState[list[str]]:
        return ConversationState(ConversationStatus.INCOMPLETE, ["more"])

    return Pipeline("p", {"ask": ask, "b": Counted().step("b")}, {"b": ["ask"]})


SHAPES: dict[str, Callable[[], Pipeline[Any, Any]]] = {
    "diamond": failing,
    "one at a time": lambda: failing(config=PipelineConfig(max_concurrency=1)),
    "fails": lambda: failing("c"),
    "fails before others begin": lambda: failing("b"),
    "fails and goes on": lambda: failing("b", config=PipelineConfig(on_error="continue")),
    "retries": retried,
    "nested": nested,
    "nested fails": lambda: nested("inner.b"),
    "router": routed,
    "out of time": out_of_time,
    "waits": waiting,
}


async def traced(pipeline: Pipeline[Any, Any], store: MemoryRunStore | None) -> RunTrace:
    try:
        return (await pipeline.execute({"x": 1}, store=store)).trace
    except FastroAIError as error:
        trace = trace_of(error)
    assert trace is not None
    return trace


@pytest.mark.parametrize("shape", SHAPES)
async def test_it_agrees_with_that_of_a_stored_run_and_can_be_replayed(shape: str) -> None:
    store = MemoryRunStore()
    live, stored = await traced(SHAPES[shape](), None), await traced(SHAPES[shape](), store)
    assert (await store.trace(stored.run_id)).entries == stored.entries
    assert live.diff(stored) == ()
    assert (live.status, live.inputs, live.usage.cost_usd) == (
        stored.status,
        stored.inputs,
        stored.usage.cost_usd,
    )
    assert live.replay(SHAPES[shape]()) is None
    assert stored.replay(SHAPES[shape]()) is None
    assert RunTrace.from_json(live.to_json()).diff(live) == ()


async def test_what_was_caused_comes_after_its_cause() -> None:
    trace = await traced(failing("b", config=PipelineConfig(on_error="continue")), None)
    kinds = [
        (type(entry), entry.place) for entry in trace.entries if isinstance(entry, StepFailed | StepSkipped)
    ]
    assert kinds == [(StepFailed, "b"), (StepSkipped, "d")]


async def test_a_step_that_was_never_begun_was_started_all_the_same() -> None:
    trace = await traced(failing("b"), None)
    assert {entry.place for entry in trace.entries if isinstance(entry, StepStarted)} == {"a", "b", "c"}
    assert {attempt.step: attempt.status for attempt in trace.attempts} == {
        "a": "succeeded",
        "b": "failed",
        "c": "cancelled",
    }
