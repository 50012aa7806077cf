"""Durations are seconds, or a `timedelta`, wherever the public API takes one."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic_ai.models.test import TestModel

from fastroai import (
    FastroAgent,
    Graph,
    Pipeline,
    PipelineConfig,
    RetryPolicy,
    SpendLimit,
    SQLiteRunStore,
    StepConfig,
    StepContext,
    TimeLimitExceeded,
    safe_tool,
    step,
)
from fastroai.errors import StepExecutionError
from fastroai.functions import configured
from fastroai.records import NOT_GIVEN, in_seconds
from fastroai.runtime import CircuitBreaker
from fastroai.steps.config import resolve
from fastroai.store import MemoryRunStore
from fastroai.testing import Fault, ModelServer, Reply

LISTED: Final = Path(__file__).parent / "public_names.txt"
DURATIONS: Final = {
    *("timeout", "total_timeout", "branch_timeout", "busy_timeout", "graceful_timeout", "tool_timeout"),
    *("deadline", "ttl", "lease", "max_stall", "cache_age", "interval", "every", "seconds", "window"),
    *("cooldown", "retry_delay", "backoff", "max_backoff", "keep"),
    *("latency", "chunk_delay", "before_headers", "between_chunks"),
}
"""Names of parameters that are durations, wherever they are numbers."""
OURS: Final = {
    "changed",
    "ResolvedConfig",
    "TimeLimitExceeded",
    "QuestionAsked",
    "Wait",
    "StepWait",
    "RequestWaited",
    "CircuitOpened",
    "SpendClaim",
    "AccountRow",
    "Progress",
}
"""What FastroAI calls or makes itself: methods of stores, claims, events, errors, resolved settings."""


def parameters() -> Iterator[tuple[str, str, str]]:
    """Path, name and type of each parameter of a public function or method that is a duration."""
    for path in LISTED.read_text(encoding="utf-8").split():
        module, _, name = path.rpartition(".")
        found = getattr(importlib.import_module(module), name)
        for of, function in functions_of(path, found):
            for parameter in inspect.signature(function).parameters.values():
                if parameter.name in DURATIONS and not OURS & set(of.split(".")):
                    yield of, parameter.name, str(parameter.annotation)


def functions_of(path: str, found: object) -> Iterator[tuple[str, Callable[..., Any]]]:
    if inspect.isfunction(found):
        yield path, found
    elif inspect.isclass(found):
        for name, method in inspect.getmembers(found, inspect.isfunction):
            is_public = name == "__init__" or not name.startswith("_")
            if is_public and method.__module__.startswith("fastroai"):
                yield f"{path}.{name}", method


def test_each_parameter_that_is_a_duration_takes_seconds_and_a_timedelta() -> None:
    found = list(parameters())
    assert len(found) > 40
    one_of_both = [
        one for one in found if "Duration" not in one[2] and ("float" in one[2]) != ("timedelta" in one[2])
    ]
    assert one_of_both == []


def test_a_duration_in_seconds_is_the_same_number() -> None:
    assert in_seconds(timedelta(minutes=2)) == 120.0
    assert (in_seconds(1.5), in_seconds(None), in_seconds(NOT_GIVEN)) == (1.5, None, NOT_GIVEN)


def test_settings_of_steps_are_resolved_to_seconds() -> None:
    half = timedelta(milliseconds=500)
    own = StepConfig(timeout=half, total_timeout=half * 4, retries=1, retry_delay=half)
    resolved = resolve(own, pipeline=PipelineConfig(lease=half, max_stall=half))
    assert (resolved.timeout, resolved.total_timeout, resolved.retry_delay) == (0.5, 2.0, 0.5)
    assert PipelineConfig(lease=half, max_stall=half).lease_terms.seconds == 0.5
    policy = RetryPolicy(3, backoff=half, max_backoff=half * 2, jitter="none")
    assert [policy.delay(number) for number in (1, 2, 3)] == [0.5, 1.0, 1.0]


def test_objects_with_durations_keep_seconds() -> None:
    breaker = CircuitBreaker(window=timedelta(minutes=1), cooldown=timedelta(seconds=5))
    assert (breaker.window, breaker.cooldown) == (60.0, 5.0)
    assert SpendLimit(usd=1, lease=timedelta(minutes=1)).lease == 60.0
    with configured(cache_age=timedelta(days=1), store=MemoryRunStore()):
        pass


@pytest.mark.parametrize("option", ["timeout", "total_timeout"])
async def test_a_step_ends_after_a_timedelta(option: str) -> None:
    @step
    async def forever(ctx: StepContext) -> None:
        await asyncio.Event().wait()

    config = StepConfig(**{option: timedelta(milliseconds=20)})  # type: ignore[arg-type]
    with pytest.raises(StepExecutionError) as caught:
        await Pipeline("p", {"forever": forever}, step_configs={"forever": config}).execute()
    assert isinstance(caught.value.original_error, TimeLimitExceeded)
    assert "0.02 s" in str(caught.value)


async def test_calls_of_agents_and_tools_take_a_timedelta() -> None:
    agent = FastroAgent(TestModel(), timeout=timedelta(seconds=30), tool_timeout=timedelta(seconds=5))
    assert (await agent.run("Hello", timeout=timedelta(seconds=10))).output

    @safe_tool(timeout=timedelta(milliseconds=20))
    async def slow() -> str:
        await asyncio.Event().wait()
        return "never"

    assert await slow() == "Tool 'slow' timed out after 0.02 s."


async def test_the_model_server_takes_a_timedelta() -> None:
    moment = timedelta(milliseconds=1)
    slow = Fault.slow(before_headers=moment, between_chunks=moment)
    refused = Fault.status(429, retry_after=timedelta(minutes=2))
    assert refused.retry_after == "120"
    async with ModelServer(latency=moment, script=[Reply("late", chunk_delay=moment, fault=slow)]) as server:
        response = await FastroAgent(server.model("openai:gpt-5-mini")).run("Hello")
        await server.ledger.wait_for(1, state="finished", timeout=timedelta(seconds=30))
        assert response.output == "late"
        with pytest.raises(TimeoutError, match=r"waited 0.001 s for 2 requests"):
            await server.ledger.wait_for(2, timeout=moment)


async def test_stores_doors_and_graphs_take_a_timedelta(tmp_path: Path) -> None:
    @step
    async def idle(ctx: StepContext) -> str:
        return "done"

    store = SQLiteRunStore(tmp_path / "runs.db", timeout=timedelta(seconds=5))
    graph = Graph("g", nodes={"idle": idle}, edges=[], branch_timeout=timedelta(seconds=5))
    for door in (graph, Pipeline("p", {"idle": idle})):
        result = await door.run(
            run_id=door.name,
            store=store,
            on_existing="resume",
            on_busy="enqueue",
            busy_timeout=timedelta(seconds=5),
        )
        assert result.output == "done"
    await store.aclose()
