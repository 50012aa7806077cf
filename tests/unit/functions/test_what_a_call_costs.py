"""What calls of typed functions take, and runs of agents: function calls, and what they leave in memory."""

import gc
from collections.abc import Awaitable, Callable
from typing import Literal

import pytest
from pydantic import BaseModel
from pydantic_ai.models.test import TestModel
from support.calls_made import python_calls

from fastroai import FastroAgent, compute, contract, infer
from fastroai.functions import configured
from fastroai.store import MemoryRunStore
from fastroai.usage.money import ExactUsd

MOST_OF_A_HIT = 120
MOST_ADDED_TO_AN_AGENT = 275
MOST_OF_A_COMPUTATION = 80


@contract
class Sentiment(BaseModel):
    label: Literal["positive", "negative", "neutral"]
    confidence: float


def model() -> TestModel:
    return TestModel(call_tools=[], custom_output_args={"label": "positive", "confidence": 0.9})


@infer(intent="Classify", ensure=lambda r: r.confidence > 0.7, model=model())
async def classify(text: str) -> Sentiment:
    raise NotImplementedError


@infer(intent="Classify", ensure=lambda r: r.confidence > 0.7, model=model(), cache="global")
async def classify_once(text: str) -> Sentiment:
    raise NotImplementedError


@compute
async def length(text: str) -> int:
    return len(text)


pytestmark = pytest.mark.usefixtures("unwatched")


async def test_an_answer_that_is_kept_costs_few_function_calls() -> None:
    with configured(cache_store=MemoryRunStore()):
        assert await python_calls(lambda: classify_once("It is fine")) <= MOST_OF_A_HIT


async def test_a_function_adds_few_function_calls_to_the_run_of_its_agent() -> None:
    agent = FastroAgent(model(), output_type=Sentiment)
    bare = await python_calls(lambda: agent.run('Classify\n\nInputs:\n- text: "It is fine"'))
    assert await python_calls(lambda: classify("It is fine")) - bare <= MOST_ADDED_TO_AN_AGENT


async def test_a_function_with_a_body_costs_few_function_calls() -> None:
    assert await python_calls(lambda: length("It is fine")) <= MOST_OF_A_COMPUTATION


async def circles_of(run: Callable[[], Awaitable[object]]) -> list[str]:
    """Types of ours that only the collector of circles takes from memory after a run."""
    await run()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        await run()
        gc.collect()
        kinds = [type(one) for one in gc.garbage if type(one).__module__.startswith("fastroai")]
        # A cost hangs on the usage in PydanticAI's own circles, and is part of none.
        return [kind.__qualname__ for kind in kinds if kind is not ExactUsd]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def test_runs_and_calls_leave_nothing_to_the_collector_of_circles() -> None:
    agent = FastroAgent(model(), output_type=Sentiment)
    assert await circles_of(lambda: agent.run("Classify")) == []
    assert await circles_of(lambda: classify("It is fine")) == []
    with configured(cache_store=MemoryRunStore()):
        assert await circles_of(lambda: classify_once("It is fine")) == []
    assert await circles_of(lambda: length("It is fine")) == []
