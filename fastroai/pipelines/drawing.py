"""Pipelines as Mermaid diagrams, and the critical path of a run."""

from __future__ import annotations

from collections.abc import Mapping

from fastroai.pipelines.plan import Plan
from fastroai.runs.usage import StepTiming


def draw_mermaid(plan: Plan) -> str:
    """Return a Mermaid state diagram, with each step after those that it waits for."""
    from fastroai.drawing import Drawing, DrawnEdge, DrawnNode, mermaid

    dependencies = plan.dependencies.items()
    return mermaid(
        Drawing(
            nodes=[DrawnNode(step_id) for step_id in plan.dependencies],
            edges=[DrawnEdge(before, step_id) for step_id, befores in dependencies for before in befores],
            starts=[step_id for step_id, befores in dependencies if not befores],
            ends=[step_id for step_id, after in plan.dependents.items() if not after],
        )
    )


def critical_path(plan: Plan, timings: Mapping[str, StepTiming]) -> tuple[str, ...]:
    """Return the chain of steps, each waiting for the one before, that ends with the last to finish."""
    path: list[str] = []
    candidates = list(timings)
    while candidates:
        last = max(candidates, key=lambda step_id: timings[step_id].finished_ms)
        path.append(last)
        candidates = [before for before in plan.dependencies[last] if before in timings]
    return tuple(reversed(path))
