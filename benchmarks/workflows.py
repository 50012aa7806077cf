"""What a call costs that drives a workflow, with few and with many calls behind it, and flows beside it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from benchmarks.measure import Row
from fastroai.store import MemoryRunStore, RunStore, SQLiteRunStore
from fastroai.workflows.answers import ExecuteFlow, ExecuteStep
from fastroai.workflows.driven_flows import WorkflowRuns

CALLS = 50
"""Calls that are timed, one after the other."""
BEHIND = 1_000
"""Calls behind a flow that is not new."""
FLOWS = 10_000
"""Flows in a store that is not new."""
PART = 400
"""Steps of an inner flow. Three of them have enough steps for all calls."""


def spec() -> str:
    """Return a spec with 1,200 steps."""
    steps = "\n".join(
        f'      - {{id: s{number}, intent: Do it, ensure: ["result.ok"], retries: 2}}'
        for number in range(PART)
    )
    parts = "\n".join(f"      - {{id: p{number}, flow: part}}" for number in range(3))
    return (
        f'version: "0.2"\nflows:\n  part:\n    input: {{}}\n    steps:\n{steps}\n'
        f"  main:\n    input: {{}}\n    steps:\n{parts}\n"
    )


class Flow:
    """A flow whose steps are done one after the other."""

    def __init__(self, runs: WorkflowRuns, answer: ExecuteFlow) -> None:
        self._runs, self._answer = runs, answer

    @property
    def flow_id(self) -> str:
        """The id of the flow."""
        return self._answer.flow_id

    async def step_done(self) -> None:
        """Report the step that is due."""
        step = self._answer.child_step
        assert isinstance(step, ExecuteStep)
        answer = await self._runs.step_done(step.flow_id, step.step_id, {"ok": True})
        assert isinstance(answer, ExecuteFlow)
        self._answer = answer


async def planned(store: RunStore, text: str) -> Flow:
    """Begin a flow."""
    runs = WorkflowRuns(store)
    answer = await runs.plan(text, "main")
    assert isinstance(answer, ExecuteFlow), answer
    return Flow(runs, answer)


async def in_turns(*calls: Callable[[], Awaitable[object]]) -> list[float]:
    """Return what each call costs, in the median. They take turns, as the machine may be busy with others."""
    taken: list[list[float]] = [[] for _ in calls]
    for _ in range(CALLS):
        for call, times in zip(calls, taken, strict=True):
            started = perf_counter()
            await call()
            times.append(perf_counter() - started)
    return [median(times) for times in taken]


def row(what: str, most: float, measured: Sequence[float]) -> Row:
    """Return a line of the report."""
    few, many = measured
    shown = [f"{one * 1000:.2f} ms ({1 / one:,.0f}/s)" for one in (many, few)]
    return Row(what, *shown, many / few, f"at most {most} times", many < most * few)


async def driven_calls() -> AsyncIterator[Row]:
    """`plan` and `step_done`, in memory and in SQLite."""
    text = spec()
    small = text.replace("flow: part", "intent: Do it")
    with tempfile.TemporaryDirectory() as folder:
        stores: dict[str, tuple[RunStore, RunStore]] = {
            "memory": (MemoryRunStore(), MemoryRunStore()),
            "SQLite": (SQLiteRunStore(Path(folder) / "one.db"), SQLiteRunStore(Path(folder) / "other.db")),
        }
        for name, (empty, crowded) in stores.items():
            old, young = await planned(empty, text), await planned(empty, text)
            for _ in range(BEHIND):
                await old.step_done()
            what = f"step_done, {name}: {BEHIND:,} calls behind it, and a few"
            yield row(what, 1.3, await in_turns(young.step_done, old.step_done))

            alone, among = WorkflowRuns(empty), WorkflowRuns(crowded)
            for _ in range(FLOWS):
                await among.plan(small, "main")
            measured = await in_turns(partial(alone.plan, small, "main"), partial(among.plan, small, "main"))
            yield row(f"plan, {name}: {FLOWS:,} flows in the store, and a few", 1.5, measured)
            one, other = await planned(empty, text), await planned(crowded, text)
            measured = await in_turns(one.step_done, other.step_done)
            yield row(f"step_done, {name}: {FLOWS:,} flows in the store, and a few", 1.5, measured)


BARE = """
from typing import Any
from mcp.server.mcpserver import MCPServer

server = MCPServer("bare", log_level="WARNING")

@server.tool()
async def nothing(flow_id: str, step_id: str, result: dict[str, Any]) -> dict[str, Any]:
    return {"status": "execute_step", "flow_id": flow_id, "step_id": step_id}

server.run()
"""
"""A server of the same SDK with a tool that does nothing."""


@asynccontextmanager
async def client(*command: str) -> AsyncIterator[Client]:
    """Start a server over stdio, and connect to it."""
    environment = {"PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    server = StdioServerParameters(command=sys.executable, args=list(command), env=environment)
    async with Client(stdio_client(server)) as connected:
        yield connected


async def served(server: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool, and return its answer."""
    answer = (await server.call_tool(tool, arguments)).structured_content
    assert answer is not None
    assert answer["status"] != "error", answer
    return answer


class ServedFlow:
    """A flow that is driven over MCP."""

    def __init__(self, server: Client, answer: dict[str, Any]) -> None:
        self._server, self._answer = server, answer

    async def step_done(self) -> None:
        """Report the step that is due."""
        step = self._answer["child_step"]
        due = {"flow_id": step["flow_id"], "step_id": step["step_id"], "result": {"ok": True}}
        self._answer = await served(self._server, "fastroai_step_done", **due)


async def served_calls() -> AsyncIterator[Row]:
    """`plan` and `step_done` over stdio, on stores that have few flows and many."""
    text = spec()
    small = text.replace("flow: part", "intent: Do it")
    with tempfile.TemporaryDirectory() as folder:
        few, many = Path(folder) / "few.db", Path(folder) / "many.db"
        async with aclosing(SQLiteRunStore(few)) as empty, aclosing(SQLiteRunStore(many)) as crowded:
            begun = await planned(empty, text)
            for _ in range(BEHIND):
                await begun.step_done()
            among = WorkflowRuns(crowded)
            for _ in range(FLOWS):
                await among.plan(small, "main")
        command = ("-m", "fastroai.cli", "mcp", "--store")
        async with client(*command, str(few)) as one, client(*command, str(many)) as other:

            async def new(server: Client) -> ServedFlow:
                return ServedFlow(server, await served(server, "fastroai_plan", spec=text, flow="main"))

            old = ServedFlow(one, await served(one, "fastroai_resume", flow_id=begun.flow_id))
            measured = await in_turns((await new(one)).step_done, old.step_done)
            yield row(f"step_done, stdio: {BEHIND:,} calls behind it, and a few", 1.3, measured)
            begin = [
                partial(served, server, "fastroai_plan", spec=small, flow="main") for server in (one, other)
            ]
            measured = await in_turns(*begin)
            yield row(f"plan, stdio: {FLOWS:,} flows in the store, and a few", 1.5, measured)
            young = await new(one)
            measured = await in_turns(young.step_done, (await new(other)).step_done)
            yield row(f"step_done, stdio: {FLOWS:,} flows in the store, and a few", 1.5, measured)
            async with client("-c", BARE) as bare:
                nothing = partial(served, bare, "nothing", flow_id="f", step_id="s", result={"ok": True})
                taken, least = await in_turns(young.step_done, nothing)
            shown = [f"{one * 1000:.2f} ms ({1 / one:,.0f}/s)" for one in (taken, least)]
            yield Row("step_done, stdio: beside a tool of the SDK that does nothing", *shown, taken / least)


BENCHMARKS = (driven_calls, served_calls)
