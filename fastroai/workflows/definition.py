"""The definition of a workflow: its shape as plain data, kept with its runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pydantic import JsonValue

from fastroai.workflows.plan import FlowPlan, WorkflowPlan
from fastroai.workflows.spec.document import StepSpec

TAG: Final = "workflow"
"""The tag of every run of a workflow, used to list these runs."""


def define(plan: WorkflowPlan, width: int | None) -> dict[str, JsonValue]:
    """Return the shape of a workflow with the text of its spec, so that a process without the file can go on.

    `width` is the number of units that run at once; `None` means no limit.
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
    """Return the text of the spec that a definition holds; `None` if it is not one of a workflow."""
    text = definition.get("spec") if isinstance(definition, dict) else None
    return text if isinstance(text, str) else None


def width_in(definition: JsonValue) -> int | None:
    """Return how many units run at once according to a definition; `None` means no limit."""
    width = definition.get("width") if isinstance(definition, dict) else None
    return width if isinstance(width, int) else None
