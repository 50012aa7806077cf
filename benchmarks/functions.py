"""What a typed function adds to the call of its agent, and what an answer takes that is kept.

The row for magentic needs magentic, which is not among the dependencies: `pip install magentic` first, best
in an environment of its own, since it may change versions of others.
"""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from benchmarks.measure import Row, function_calls, medians
from fastroai import FastroAgent, contract, infer
from fastroai.functions import configured
from fastroai.store import MemoryRunStore

MOST_ADDED = 100e-6
"""Seconds."""
MOST_OF_A_HIT = 50e-6
"""Seconds."""
CALLS = 100
"""Calls in a row."""
ANSWER = {"label": "positive", "confidence": 0.9}
PROMPT = 'Classify\n\nInputs:\n- text: "It is fine"'


@contract
class Sentiment(BaseModel):
    """An output."""

    label: Literal["positive", "negative", "neutral"]
    confidence: float


def model() -> TestModel:
    return TestModel(call_tools=[], custom_output_args=ANSWER)


@infer(intent="Classify", ensure=lambda r: r.confidence > 0.7, model=model())
async def classify(text: str) -> Sentiment:
    raise NotImplementedError


@infer(intent="Classify", ensure=lambda r: r.confidence > 0.7, model=model(), cache="global")
async def classify_once(text: str) -> Sentiment:
    raise NotImplementedError


async def function_call() -> AsyncIterator[Row]:
    """A call of a function, beside a run of an agent with the same prompt and output."""
    bare = Agent(model(), output_type=Sentiment)
    ours = FastroAgent(model(), output_type=Sentiment)
    runs: dict[str, Callable[[], Awaitable[object]]] = {
        "bare": lambda: bare.run(PROMPT),
        "agent": lambda: ours.run(PROMPT),
        "infer": lambda: classify("It is fine"),
    }
    if importlib.util.find_spec("magentic") is not None:
        runs["magentic"] = magentic_function()
    took = await medians(runs, rounds=20, warm_up=2, in_a_row=CALLS)
    added = took["infer"] - took["agent"]
    yield Row(
        "what @infer adds to FastroAgent.run: bind, compile, scope, read, ensure, record",
        f"{took['infer'] * 1e6:.0f} µs",
        f"{took['agent'] * 1e6:.0f} µs",
        took["infer"] / took["agent"],
        f"≤ {MOST_ADDED * 1e6:.0f} µs more",
        added <= MOST_ADDED,
    )
    yield Row(
        "  … beside pydantic_ai.Agent.run",
        f"{took['infer'] * 1e6:.0f} µs",
        f"{took['bare'] * 1e6:.0f} µs",
        took["infer"] / took["bare"],
    )
    if "magentic" in took:
        yield Row(
            "  … beside a function of magentic, whose model answers at once",
            f"{took['infer'] * 1e6:.0f} µs",
            f"{took['magentic'] * 1e6:.0f} µs",
            took["infer"] / took["magentic"],
        )
    else:
        yield Row("  … beside a function of magentic", "pip install magentic, for this row")


async def cache_hit() -> AsyncIterator[Row]:
    """A call whose answer is kept in memory: everything but the model."""
    with configured(cache_store=MemoryRunStore()):
        await classify_once("It is fine")
        took = await medians(
            {"hit": lambda: classify_once("It is fine"), "asked": lambda: classify("It is fine")},
            rounds=20,
            warm_up=2,
            in_a_row=CALLS,
        )
    yield Row(
        "a call of a function whose answer is kept, beside one that asks",
        f"{took['hit'] * 1e6:.0f} µs",
        f"{took['asked'] * 1e6:.0f} µs",
        took["hit"] / took["asked"],
        f"≤ {MOST_OF_A_HIT * 1e6:.0f} µs",
        took["hit"] <= MOST_OF_A_HIT,
    )


async def calls_made() -> AsyncIterator[Row]:
    """The same as counts, which do not depend on what else the machine does."""
    ours = FastroAgent(model(), output_type=Sentiment)
    agent = await function_calls(lambda: ours.run(PROMPT))
    asked = await function_calls(lambda: classify("It is fine"))
    with configured(cache_store=MemoryRunStore()):
        hit = await function_calls(lambda: classify_once("It is fine"))
    yield Row(
        "function calls of an @infer, beside FastroAgent.run",
        f"{asked:.0f}",
        f"{agent:.0f}",
        asked / agent,
    )
    yield Row("  … of a call whose answer is kept", f"{hit:.0f}")


def magentic_function() -> Callable[[], Awaitable[object]]:
    """A function of magentic with a model that answers at once; magentic is no dependency of ours."""
    from magentic import AssistantMessage, prompt  # type: ignore[import-not-found, unused-ignore]
    from magentic.chat_model.base import ChatModel  # type: ignore[import-not-found, unused-ignore]

    class AnswersAtOnce(ChatModel):  # type: ignore[misc, unused-ignore]
        def complete(self, *args: Any, **options: Any) -> Any:
            return AssistantMessage(Sentiment.model_validate(ANSWER))

        async def acomplete(self, *args: Any, **options: Any) -> Any:
            return AssistantMessage(Sentiment.model_validate(ANSWER))

    @prompt(PROMPT.replace("It is fine", "{text}"), model=AnswersAtOnce())  # type: ignore[untyped-decorator, unused-ignore]
    async def with_magentic(text: str) -> Sentiment:
        raise NotImplementedError

    return lambda: with_magentic("It is fine")  # type: ignore[no-any-return, unused-ignore]


BENCHMARKS = (function_call, calls_made, cache_hit)
