"""Pipelines as text: Mermaid diagrams, and the path that a run had to wait for."""

from __future__ import annotations

from collections.abc import Mapping

from fastroai.pipelines.plan import Plan
from fastroai.pipelines.result import StepTiming


def draw_mermaid(plan: Plan) -> str:
    """A Mermaid state diagram. Ids are numbered and names are quoted, so no name can become syntax."""
    number = {step_id: f"s{index}" for index, step_id in enumerate(plan.dependencies)}
    lines = ["stateDiagram-v2"]
    lines += [f'    state "{_escape(step_id)}" as {number[step_id]}' for step_id in number]
    for step_id, befores in plan.dependencies.items():
        lines += [f"    {number[before]} --> {number[step_id]}" for before in befores]
        if not befores:
            lines.append(f"    [*] --> {number[step_id]}")
    lines += [f"    {number[step_id]} --> [*]" for step_id, after in plan.dependents.items() if not after]
    return "\n".join(lines) + "\n"


def _escape(name: str) -> str:
    """Mermaid's entity codes for what would end the quotes or the line."""
    return "".join(f"#{ord(char)};" if char in '"#;\n\r\\<>' else char for char in name)


def critical_path(plan: Plan, timings: Mapping[str, StepTiming]) -> tuple[str, ...]:
    """The chain that ends with the last step to finish, through the dependency that each had to wait for."""
    path: list[str] = []
    candidates = list(timings)
    while candidates:
        last = max(candidates, key=lambda step_id: timings[step_id].finished_ms)
        path.append(last)
        candidates = [before for before in plan.dependencies[last] if before in timings]
    return tuple(reversed(path))
