"""Exceptions know the trace of the run that they ended."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Mapping
from typing import Any

import pytest

from fastroai import FastroAgent, Graph, MemoryRunStore, Pipeline, StepContext, step
from fastroai.errors import (
    ConfigurationError,
    FastroAIError,
    StepExecutionError,
    records_of,
    usage_of,
)
from fastroai.graphs import Edge
from fastroai.graphs.errors import GraphStopped
from fastroai.pipelines import BasePipeline
from fastroai.store import RunTrace, trace_of

STORES = pytest.mark.parametrize("is_stored", [False, True], ids=["no store", "store"])


def store(is_stored: bool) -> MemoryRunStore | None:
    return MemoryRunStore() if is_stored else None


@step
async def good(ctx: StepContext) -> str:
    return "good"


@step(retries=0)
async def bad(ctx: StepContext) -> str:
    raise ValueError("no")


def pipeline(name: str, last: Any) -> Pipeline[Any, Any]:
    return Pipeline(name, {"good": good, "last": last}, {"last": ["good"]})


@STORES
async def test_an_error_has_the_trace_of_the_run_that_it_ended(is_stored: bool) -> None:
    with pytest.raises(StepExecutionError) as caught:
        await pipeline("shop", bad).execute(store=store(is_stored))
    trace = trace_of(caught.value)
    assert trace is not None
    assert caught.value.trace is trace
    assert (trace.run_id, trace.pipeline, trace.status) == (caught.value.run_id, "shop", "failed")
    assert [attempt.failure.message for attempt in trace.failures() if attempt.failure] == ["no"]


@STORES
@pytest.mark.parametrize("kind", ["pipeline", "graph"])
async def test_so_has_a_foreign_exception(kind: str, is_stored: bool) -> None:
    started = asyncio.Event()

    @step
    async def waits(ctx: StepContext) -> None:
        started.set()
        await asyncio.Event().wait()

    if kind == "pipeline":
        task = asyncio.ensure_future(pipeline("shop", waits).execute(store=store(is_stored)))
    else:
        graph: Graph[Any, Any] = Graph(
            "shop", nodes={"good": good, "last": waits}, edges=[Edge("good", "last")]
        )
        task = asyncio.ensure_future(graph.run(store=store(is_stored)))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    trace = trace_of(caught.value)
    assert trace is not None
    assert (trace.pipeline, trace.status) == ("shop", "cancelled")
    assert [s.place for s in trace.steps if s.status == "succeeded"] == ["good"]


@STORES
async def test_so_has_the_error_of_a_graph(is_stored: bool) -> None:
    graph: Graph[Any, Any] = Graph("tour", nodes={"good": good, "last": bad}, edges=[Edge("good", "last")])
    result = await graph.run(store=store(is_stored))
    assert isinstance(result.error, FastroAIError)
    assert trace_of(result.error) == result.trace
    assert result.error.trace == result.trace


async def test_nested_in_another_run_it_is_the_trace_of_that_one() -> None:
    with pytest.raises(StepExecutionError) as caught:
        await pipeline("outer", pipeline("inner", bad).as_step()).execute()
    trace = trace_of(caught.value)
    assert trace is not None
    assert trace.pipeline == "outer"
    assert [attempt.place for attempt in trace.failures()] == ["last", "last@1/inner/last"]


async def test_what_is_raised_from_such_an_error_has_it_too() -> None:
    try:
        try:
            await pipeline("shop", bad).execute()
        except StepExecutionError as error:
            raise LookupError("not today") from error
    except LookupError as later:
        trace = trace_of(later)
    assert trace is not None
    assert trace.pipeline == "shop"


async def test_a_router_passes_it_on() -> None:
    class Desk(BasePipeline[None, Any]):
        async def route(self, inputs: Mapping[str, Any], deps: None) -> str:
            return "shop"

    desk = Desk()
    desk.register_pipeline("shop", pipeline("shop", bad))
    with pytest.raises(StepExecutionError) as caught:
        await desk.execute({})
    trace = trace_of(caught.value)
    assert trace is not None
    assert trace.pipeline == "Desk"


async def test_it_survives_pickling() -> None:
    with pytest.raises(StepExecutionError) as caught:
        await pipeline("shop", bad).execute()
    trace = trace_of(pickle.loads(pickle.dumps(caught.value)))
    assert trace == trace_of(caught.value)
    assert isinstance(trace, RunTrace)


async def test_what_is_no_exception_is_refused() -> None:
    result: Any = await pipeline("shop", good).execute()
    for value in ("x", None, result):
        for ask in (trace_of, usage_of, records_of):
            with pytest.raises(ConfigurationError, match=r"error=.*expected an exception;.* result\.trace"):
                ask(value)


async def test_a_run_is_replayed_by_what_it_is_a_run_of() -> None:
    shop = pipeline("shop", good)
    trace = (await shop.execute()).trace
    assert trace.replay(shop) is None
    wrong: list[Any] = ["pp", None, FastroAgent("test"), trace, Pipeline]
    for value in wrong:
        with pytest.raises(
            ConfigurationError, match="expected the pipeline, graph or workflow .* a run of, 'shop'"
        ):
            trace.replay(value)


def test_an_error_that_ended_no_run_has_none() -> None:
    error = GraphStopped("tour", "failed", "no terminal")
    assert (error.trace, trace_of(error), trace_of(ValueError("x"))) == (None, None, None)
