"""The shape of a workflow as plain data, kept with its runs: what decides which steps run after which."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pydantic import JsonValue

from fastroai.workflows.plan import FlowPlan, WorkflowPlan
from fastroai.workflows.spec.document import StepSpec

TAG: Final = "workflow"
"""The tag by which flows are listed."""


def define(plan: WorkflowPlan, width: int | None) -> dict[str, JsonValue]:
    """Return the shape, and the text of the spec: a process that lacks the file goes on from there.

    `width` says how many units run at once.
    """
    return {
        "name": plan.entry.flow.name,
        "kind": "workflow",
        "steps": {step_id: _step(flow, step) for step_id, (flow, step) in plan.steps.items()},
        "spec": plan.spec.text,
        "width": width,
    }


def _step(flow: FlowPlan, step: StepSpec) -> dict[str, JsonValue]:
    needs: list[JsonValue] = [flow.step_id(one) for one in flow.flow.needs.get(step.id, ())]
    edges: list[JsonValue] = [*_edges(flow, step)]
    return {"needs": needs, "runs": None, "edges": edges}


def _edges(flow: FlowPlan, step: StepSpec) -> Iterator[str]:
    gate = step.gate
    targets = {"on_fail": step.on_fail, "next": step.next}
    if gate is not None:
        targets |= {"on_approve": gate.on_approve, "on_revise": gate.on_revise, "on_kill": gate.on_kill}
    for name, target in targets.items():
        if target is not None:
            yield f"{name} to {flow.step_id(target)!r}"


def spec_in(definition: JsonValue) -> str | None:
    """Return the text of the spec that a definition holds; `None` if it is not that of a workflow."""
    text = definition.get("spec") if isinstance(definition, dict) else None
    return text if isinstance(text, str) else None


def width_in(definition: JsonValue) -> int | None:
    """Return how many units run at once in runs of a definition; `None` without a limit."""
    width = definition.get("width") if isinstance(definition, dict) else None
    return width if isinstance(width, int) else None
