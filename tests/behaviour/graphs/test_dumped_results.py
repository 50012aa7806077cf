"""The result of a graph as values of JSON."""

from __future__ import annotations

import json

from fastroai import Edge, Graph, Node, StepContext, step


@step
async def fork(ctx: StepContext) -> str:
    return "both"


@step
async def left(ctx: StepContext) -> str:
    ctx.record_usage(model="acme:x", input_tokens=3, cost_usd="0.000003")
    return "l"


@step(retries=0)
async def right(ctx: StepContext) -> str:
    raise ConnectionError("down")


@step
async def join(ctx: StepContext) -> str:
    return "done"


async def test_a_result_with_branches_and_failures_is_dumped_as_json() -> None:
    graph = Graph(
        "g",
        nodes={"fork": fork, "left": Node(left, writes=["found"]), "right": right, "join": join},
        edges=[Edge("fork", "left"), Edge("fork", "right"), Edge("left", "join"), Edge("right", "join")],
        on_branch_failure="continue_others",
    )
    result = await graph.run({"text": "x"})

    dumped = result.model_dump()

    assert json.loads(json.dumps(dumped)) == dumped
    assert dumped["status"] == "finished"
    assert dumped["memory"]["found"] == "l"
    assert dumped["errors"] == {"right": "ConnectionError: down"}
    assert dumped["usage"]["nodes"]["left"]["cost_usd"] == "0.000003"
    assert "log" not in dumped
    assert not result.was_resumed
