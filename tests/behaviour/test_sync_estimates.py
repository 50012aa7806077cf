"""What has a sync method that runs it has one that estimates it, too."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai.models.test import TestModel

from fastroai import Budget, Graph, Pipeline, StepContext, infer, step
from fastroai.errors import RunningLoopError
from fastroai.functions import flow
from fastroai.workflows import Workflow


@step
async def one(ctx: StepContext[Any]) -> str:
    return "one"


@infer(intent="Name the topic.", model=TestModel(custom_output_text="billing"), budget=Budget(usd="0.25"))
async def classify(text: str) -> str:
    """Name the topic."""


@flow(budget=Budget(usd="0.5"))
async def triage(text: str) -> str:
    return await classify(text)


def test_a_typed_function_estimates_a_call_and_rows_without_await() -> None:
    assert classify.estimate_sync("text") == asyncio.run(classify.estimate("text"))
    rows = ["a", "b"]
    assert classify.estimate_sync(rows=rows, sample=1) == asyncio.run(classify.estimate(rows=rows, sample=1))
    with pytest.raises(TypeError, match=r"classify\.estimate\(\) of rows takes no simple="):
        classify.estimate_sync(rows=rows, simple=1)  # type: ignore[call-overload]


def test_graphs_flows_and_workflows_estimate_without_await() -> None:
    spec = '{version: "0.2", flows: {main: {input: {}, steps: [{id: a, intent: Look}]}}}'
    workflow = Workflow.load(spec).bind(model=TestModel())
    graph = Graph[Any, Any, Any]("graph", nodes={"one": one}, budget=Budget(usd="0.75"))
    assert str(graph.estimate_sync().upper_usd) == "0.75"
    assert str(triage.estimate_sync({"text": "a"}).upper_usd) == "0.5"
    assert workflow.estimate_sync() == asyncio.run(workflow.estimate())
    assert Pipeline("pipeline", {"one": one}).estimate_sync().lower_usd == 0


async def test_on_an_event_loop_they_say_what_to_await() -> None:
    with pytest.raises(RunningLoopError, match=r"await classify\.estimate\("):
        classify.estimate_sync("text")
    with pytest.raises(RunningLoopError, match=r"await triage\.estimate\("):
        triage.estimate_sync()
