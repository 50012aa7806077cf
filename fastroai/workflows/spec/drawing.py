"""A flow of a spec as a drawing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from fastroai.drawing import Drawing, DrawnEdge, DrawnNode, NodeKind
from fastroai.workflows.spec.document import FlowSpec, StepKind, StepSpec, WorkflowSpec

_KINDS: Final[Mapping[StepKind, NodeKind]] = {
    "function": "step",
    "inline": "step",
    "gate": "pause",
    "flow": "graph",
}


def draw_flow(spec: WorkflowSpec, flow: str | None = None) -> Drawing:
    """Return the drawing of a flow of a spec, by default of the entry flow, for `mermaid` or `svg`.

    Solid arrows lead from a step to the steps that need it, and to the targets of its `next` or its approval;
    dashed arrows lead to its targets after a failure, a revision or a kill. Gates and sub-flows have shapes
    of their own.

    Raises:
        KeyError: There is no such flow.
    """
    drawn = spec.flows[spec.entry if flow is None else flow]
    ways = [edge for step in drawn.steps for edge in _ways(step)]
    pairs = {(edge.source, edge.target) for edge in ways}
    needs = [
        DrawnEdge(need, step.id)
        for step in drawn.steps
        for need in drawn.needs[step.id]
        if (need, step.id) not in pairs
    ]
    edges = [*needs, *ways]
    reached = {edge.target for edge in edges}
    left = {edge.source for edge in edges if edge.style == "solid"}
    return Drawing(
        nodes=[_node(step) for step in drawn.steps],
        edges=edges,
        starts=_first(drawn, reached),
        ends=[step.id for step in drawn.steps if step.id not in left or _may_end(step)],
        title=drawn.name,
    )


def _first(flow: FlowSpec, reached: set[str]) -> Sequence[str]:
    """Return the first step, and all steps that nothing leads to."""
    return [
        step.id
        for number, step in enumerate(flow.steps)
        if number == 0 or (step.id not in reached and step.id not in flow.routed_only)
    ]


def _may_end(step: StepSpec) -> bool:
    return step.gate is not None and step.gate.on_approve is None


def _node(step: StepSpec) -> DrawnNode:
    notes = [step.flow, step.agent, None if step.skip_if is None else "may be skipped"]
    if step.iteration is not None:
        notes.append(f"up to {step.iteration.max_iterations} iterations")
    note = " · ".join(filter(None, notes))
    return DrawnNode(step.id, note=note or None, kind=_KINDS[step.kind])


def _ways(step: StepSpec) -> Iterator[DrawnEdge]:
    """Yield the edges to the targets that a step names, with their labels."""
    if step.next is not None:
        yield DrawnEdge(step.id, step.next, "next")
    if step.on_fail is not None:
        yield DrawnEdge(step.id, step.on_fail, "on fail", "dashed")
    if step.gate is None:
        return
    if step.gate.on_approve is not None:
        yield DrawnEdge(step.id, step.gate.on_approve, "approve")
    for target, label in ((step.gate.on_revise, "revise"), (step.gate.on_kill, "kill")):
        if target is not None:
            yield DrawnEdge(step.id, target, label, "dashed")
