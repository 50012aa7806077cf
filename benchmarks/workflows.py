"""What a call costs that drives a workflow, with few and with many calls behind it, and flows beside it."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
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


BENCHMARKS = (driven_calls,)
