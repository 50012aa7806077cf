"""What a call costs that drives a workflow, with few and with many calls behind it, and flows beside it."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.measure import Row
from fastroai.store import MemoryRunStore, RunStore, SQLiteRunStore
from fastroai.workflows.answers import ExecuteFlow, ExecuteStep
from fastroai.workflows.flows import WorkflowRuns

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

    async def step_done(self) -> None:
        """Report the step that is due."""
        step = self._answer.child_step
        assert isinstance(step, ExecuteStep)
        answer = await self._runs.step_done(step.flow_id, step.step_id, {"ok": True})
        assert isinstance(answer, ExecuteFlow)
        self._answer = answer

    async def seconds(self) -> float:
        """Return what a report costs, in the median."""
        taken = []
        for _ in range(CALLS):
            started = perf_counter()
            await self.step_done()
            taken.append(perf_counter() - started)
        return median(taken)


async def planned(runs: WorkflowRuns, text: str) -> Flow:
    """Begin a flow."""
    answer = await runs.plan(text, "main")
    assert isinstance(answer, ExecuteFlow), answer
    return Flow(runs, answer)


def shown(seconds: float) -> str:
    """Return a time with the calls in a second."""
    return f"{seconds * 1000:.2f} ms ({1 / seconds:,.0f}/s)"


async def driven_calls() -> AsyncIterator[Row]:
    """`plan` and `step_done`, in memory and in SQLite."""
    text = spec()
    small = text.replace("flow: part", "intent: Do it")
    with tempfile.TemporaryDirectory() as folder:
        stores: dict[str, RunStore] = {
            "memory": MemoryRunStore(),
            "SQLite": SQLiteRunStore(Path(folder) / "f.db"),
        }
        for name, store in stores.items():
            runs = WorkflowRuns(store)
            flow = await planned(runs, text)
            few = await flow.seconds()
            for _ in range(BEHIND - CALLS):
                await flow.step_done()
            many = await flow.seconds()
            aim = "1,000 calls behind cost no more than 1.3 times a few"
            yield Row(
                f"step_done, {name}: 1,000 calls behind, beside a few",
                shown(many),
                shown(few),
                many / few,
                aim,
                many < 1.3 * few,
            )
            fresh = WorkflowRuns(store)
            started = perf_counter()
            for _ in range(CALLS):
                await fresh.plan(small, "main")
            plan = (perf_counter() - started) / CALLS
            for _ in range(FLOWS):
                await fresh.plan(small, "main")
            started = perf_counter()
            for _ in range(CALLS):
                await fresh.plan(small, "main")
            full = (perf_counter() - started) / CALLS
            aim = "10,000 flows beside it cost no more than 1.5 times"
            what = f"plan, {name}: 10,000 flows in the store, beside a few"
            yield Row(what, shown(full), shown(plan), full / plan, aim, full < 1.5 * plan)
            crowded = await (await planned(runs, text)).seconds()
            what = f"step_done, {name}: 10,000 flows in the store, beside a few"
            yield Row(what, shown(crowded), shown(few), crowded / few, aim, crowded < 1.5 * few)


BENCHMARKS = (driven_calls,)
