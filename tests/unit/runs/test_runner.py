"""How the runner of pipelines and graphs treats the tasks in which it runs units."""

from __future__ import annotations

import asyncio
from typing import Any

from fastroai import Edge, Graph, StepContext, step


async def test_after_a_unit_that_was_cancelled_the_next_runs_in_a_task_that_nobody_cancels() -> None:
    """PydanticAI, like `asyncio.timeout`, looks at how often its task was cancelled."""
    cancelled: list[int] = []

    @step
    async def top(ctx: StepContext[Any]) -> str:
        return "top"

    @step
    async def endless(ctx: StepContext[Any]) -> str:
        await asyncio.Event().wait()
        return ""

    @step
    async def end(ctx: StepContext[Any]) -> str:
        task = asyncio.current_task()
        assert task is not None
        cancelled.append(task.cancelling())
        return "end"

    graph = Graph(
        "g",
        nodes={"top": top, "endless": endless, "quick": top, "end": end},
        edges=[Edge("top", "endless"), Edge("top", "quick"), Edge("endless", "end"), Edge("quick", "end")],
        on_branch_failure="wait_all",
        branch_timeout=0.02,
    )
    result = await graph.run({})
    assert (result.status, result.output) == ("finished", "end")
    assert cancelled == [0]
