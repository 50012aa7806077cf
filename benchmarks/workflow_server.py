"""Calls of the workflow server over stdio, beside a tool of the same SDK that does nothing."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from benchmarks.measure import Row
from fastroai.store import SQLiteRunStore
from fastroai.workflows.answers import ExecuteFlow, ExecuteStep, NextAnswer
from fastroai.workflows.flows import WorkflowRuns

MANY_FLOWS, MANY_CALLS, MEASURED = 10_000, 1_000, 200

BARE = """
from typing import Any
from mcp.server.mcpserver import MCPServer
server = MCPServer("bare", log_level="WARNING")
@server.tool()
async def nothing(flow_id: str, step_id: str, result: dict[str, Any]) -> dict[str, Any]:
    return {"status": "execute_step", "flow_id": flow_id, "step_id": step_id, "inputs": result}
server.run()
"""


def spec(steps: int, parts: int) -> str:
    """A flow that runs another one several times, each time as many steps one after the other."""
    lines = [
        'version: "0.2"',
        "contracts: {Number: {value: {type: integer}}}",
        "functions:",
        "  add:",
        "    mode: compute",
        "    intent: Add one.",
        "    input: {value: {type: integer}}",
        "    output: Number",
        '    ensure: ["result.value >= 0"]',
        "flows:",
        "  all:",
        "    input: {value: {type: integer}}",
        "    steps:",
    ]
    for part in range(parts):
        lines.append(f"      - {{id: p{part}, flow: part, inputs: {{value: $.input.value}}}}")
    lines += ["  part:", "    input: {value: {type: integer}}", "    output: Number", "    steps:"]
    for step in range(steps):
        value = "$.input.value" if step == 0 else f"$.steps.s{step - 1}.output.value"
        lines.append(f"      - {{id: s{step}, function: add, inputs: {{value: {value}}}}}")
    return "\n".join(lines)


SHORT = spec(steps=2, parts=1)
LONG = spec(steps=400, parts=4)
INPUTS = {"value": 1}
RESULT = {"value": 2}
BEGIN = {"spec": SHORT, "inputs": INPUTS}


@asynccontextmanager
async def server(*command: str) -> AsyncIterator[Client]:
    environment = {"PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    parameters = StdioServerParameters(command=sys.executable, args=list(command), env=environment)
    async with Client(stdio_client(parameters)) as client:
        yield client


def due(answer: NextAnswer) -> ExecuteStep:
    while isinstance(answer, ExecuteFlow):
        answer = answer.child_step  # type: ignore[assignment]
    assert isinstance(answer, ExecuteStep), answer
    return answer


async def prepare(place: Path, flows: int, calls: int) -> dict[str, str]:
    """A store with so many flows, and where to go on in one that has so many calls behind it."""
    store = SQLiteRunStore(place)
    runs = WorkflowRuns(store)
    for _ in range(flows):
        await runs.plan(SHORT, inputs=INPUTS)
    step = due(await runs.plan(LONG, inputs=INPUTS))
    for _ in range(calls):
        step = due(await runs.step_done(step.flow_id, step.step_id, RESULT))
    await store.aclose()
    return {"flow_id": step.flow_id, "step_id": step.step_id}


async def per_second(
    client: Client, tool: str, arguments: Callable[[Any], dict[str, Any]], last: Any
) -> float:
    """How many calls a second a client gets answered that makes one after the other."""
    started = perf_counter()
    for _ in range(MEASURED):
        result = await client.call_tool(tool, arguments(last))
        last = result.structured_content
        assert not result.is_error, result.content
    return MEASURED / (perf_counter() - started)


def inner(answer: Any) -> dict[str, Any]:
    while answer.get("status") == "execute_flow":
        answer = answer["child_step"]
    assert answer.get("status", "execute_step") == "execute_step", answer
    return {"flow_id": answer["flow_id"], "step_id": answer["step_id"], "result": RESULT}


async def calls_over_stdio() -> AsyncIterator[Row]:
    async with server("-c", BARE) as client:
        bare = await per_second(
            client, "nothing", lambda _: {"flow_id": "f", "step_id": "s", "result": RESULT}
        )
    first: dict[str, float] = {}
    for flows, calls in ((1, 1), (MANY_FLOWS, 1), (1, MANY_CALLS)):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "flows.db"
            at = await prepare(place, flows, calls)
            async with server("-m", "fastroai.cli", "mcp", "--store", str(place)) as client:
                took = {
                    "plan": await per_second(client, "fastroai_plan", lambda _: BEGIN),
                    "step_done": await per_second(client, "fastroai_step_done", inner, at),
                }
        for tool, rate in took.items():
            before = first.setdefault(tool, rate)
            name = f"{tool} over stdio, {flows:,} flows in the store, {calls:,} calls behind the flow"
            yield Row(
                name,
                f"{rate:,.0f} a second",
                f"{bare:,.0f} a second",
                bare / rate,
                "" if before is rate else "≥ 0.8 of the first",
                None if before is rate else rate >= 0.8 * before,
            )


BENCHMARKS = (calls_over_stdio,)
