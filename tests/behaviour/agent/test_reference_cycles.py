"""What a run of an agent leaves behind is freed at once, and does not wait for the collector."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from pydantic_ai.run import AgentRunResult

from fastroai import FastroAgent


async def left_by(run: Callable[[], Awaitable[AgentRunResult[Any]]]) -> int:
    """Count the objects that only the collector can free after a run."""
    await run()  # what is made once is there then
    gc.collect()
    gc.disable()
    try:
        await run()
        return gc.collect()
    finally:
        gc.enable()


@pytest.mark.parametrize("output", [str, int])
async def test_a_run_leaves_no_more_circles_than_a_run_of_the_bare_agent(output: type[Any]) -> None:
    bare, ours = Agent(TestModel(), output_type=output), FastroAgent(TestModel(), output_type=output)
    assert await left_by(lambda: ours.run("Hello")) <= await left_by(lambda: bare.run("Hello"))
