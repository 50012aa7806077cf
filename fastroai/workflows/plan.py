"""The plan of a workflow: its flows, written out for each place in which a flow runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fastroai.workflows.spec.document import FlowSpec, StepSpec, WorkflowSpec


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """A flow in its place: the entry flow, or a sub-flow of a step."""

    path: str
    """Path of the step that runs the flow, such as `review` or `review.draft`; empty for the entry flow."""
    flow: FlowSpec
    order: Mapping[str, int]
    """The position of each step, by its id in the flow."""
    children: Mapping[str, FlowPlan]
    """The plans of sub-flows, by the id of the step that runs them."""

    def step_id(self, name: str) -> str:
        """Return the id of a step in the run: its path, such as `review.draft`."""
        return f"{self.path}.{name}" if self.path else name

    def step(self, name: str) -> StepSpec:
        """Return a step by its id in the flow."""
        return self.flow.steps[self.order[name]]


@dataclass(frozen=True, slots=True)
class WorkflowPlan:
    """The flows and steps of a workflow, as its runs see them."""

    spec: WorkflowSpec
    entry: FlowPlan
    steps: Mapping[str, tuple[FlowPlan, StepSpec]]
    """Every step by its id in the run, with the flow that contains it."""


def plan_of(spec: WorkflowSpec, flow: str | None = None) -> WorkflowPlan:
    """Return the plan of a valid spec, which begins with `flow`, by default with its entry flow."""
    steps: dict[str, tuple[FlowPlan, StepSpec]] = {}
    entry = _planned(spec, spec.flows[spec.entry if flow is None else flow], "", steps)
    return WorkflowPlan(spec, entry, steps)


def _planned(
    spec: WorkflowSpec, flow: FlowSpec, path: str, steps: dict[str, tuple[FlowPlan, StepSpec]]
) -> FlowPlan:
    children: dict[str, FlowPlan] = {}
    plan = FlowPlan(path, flow, {step.id: number for number, step in enumerate(flow.steps)}, children)
    for step in flow.steps:
        steps[plan.step_id(step.id)] = (plan, step)
        if step.flow is not None:
            children[step.id] = _planned(spec, spec.flows[step.flow], plan.step_id(step.id), steps)
    return plan
