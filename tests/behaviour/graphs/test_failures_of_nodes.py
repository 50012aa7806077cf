"""What a node is told of the failures on the way to it."""

from __future__ import annotations

import asyncio
from typing import Any

from support.virtual_time import in_virtual_time

from fastroai import MemoryRunStore, Pipeline, PipelineConfig, StepContext, step
from fastroai.errors import RecordedError
from fastroai.graphs import Edge, Graph
from fastroai.runtime import FailureClass


class ForbiddenError(Exception):
    """A failure that no retry would mend."""

    status_code = 403


def failing(error: Exception, retries: int) -> Any:
    @step(retries=retries, retry_delay=0)
    async def fail(ctx: StepContext) -> str:
        raise error

    return fail


@step
async def told(ctx: StepContext) -> dict[str, list[object]]:
    assert dict(ctx.errors) == {node: failure.error for node, failure in ctx.failures.items()}
    return {
        node: [str(failure.error), failure.failure_class, failure.attempts]
        for node, failure in ctx.failures.items()
    }


@step
async def go(ctx: StepContext) -> str:
    return "go"


def graph(**options: Any) -> Graph[Any, Any]:
    nodes = {
        "top": go,
        "a": failing(ValueError("odd"), 2),
        "b": failing(ForbiddenError("no"), 2),
        "c": go,
        "end": told,
    }
    edges = [Edge("top", name) for name in "abc"] + [Edge(name, "end") for name in "abc"]
    return Graph("g", nodes=nodes, edges=edges, on_branch_failure="wait_all", **options)


TOLD = {"a": ["odd", FailureClass.AMBIGUOUS, 3], "b": ["no", FailureClass.TERMINAL, 1]}


async def test_a_node_finds_class_and_attempts_of_each_failure_before_it() -> None:
    assert (await graph().run()).output == TOLD


async def test_so_does_one_in_a_process_that_takes_the_run_up() -> None:
    resumed = graph(pause_nodes=["c"], config=PipelineConfig(store=MemoryRunStore()))
    paused = await resumed.run(run_id="r")
    assert (paused.status, set(paused.errors)) == ("paused", {"a", "b"})
    result = await resumed.resume("r", input="go")
    assert isinstance(result.errors["a"], RecordedError)
    assert result.output == TOLD


@in_virtual_time
async def test_a_branch_that_took_too_long_has_made_no_attempt_that_failed() -> None:
    @step
    async def hang(ctx: StepContext) -> None:
        await asyncio.sleep(60)

    slow: Graph[Any, Any] = Graph(
        "slow",
        nodes={"top": go, "a": hang, "b": go, "end": told},
        edges=[Edge("top", "a"), Edge("top", "b"), Edge("a", "end"), Edge("b", "end")],
        on_branch_failure="wait_all",
        branch_timeout=1,
    )
    output = (await slow.run()).output
    assert [one[1:] for one in output.values()] == [[FailureClass.AMBIGUOUS, 0]]


def test_outside_of_a_graph_there_are_none() -> None:
    assert Pipeline[Any, Any]("p", {"only": told}).execute_sync().output == {}
