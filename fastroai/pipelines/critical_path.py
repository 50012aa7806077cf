"""The critical path of a run of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping

from fastroai.pipelines.plan import Plan
from fastroai.runs.usage import StepTiming


def critical_path(plan: Plan, timings: Mapping[str, StepTiming]) -> tuple[str, ...]:
    """Return the chain of steps, each waiting for the one before, that ends with the last to finish."""
    path: list[str] = []
    candidates = list(timings)
    while candidates:
        last = max(candidates, key=lambda step_id: timings[step_id].finished_ms)
        path.append(last)
        candidates = [before for before in plan.dependencies[last] if before in timings]
    return tuple(reversed(path))
