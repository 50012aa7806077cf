"""Flows of specs as drawings."""

from __future__ import annotations

import pytest

from fastroai.drawing import mermaid, svg
from fastroai.workflows.spec.drawing import draw_flow
from fastroai.workflows.spec.reading import load_spec

SPEC = load_spec(
    """\
version: "0.2"
functions:
  review: {mode: gate}
flows:
  main:
    steps:
    - {id: draft, intent: Draft, agent: claude, max_iterations: 3, skip_if: 'False'}
    - {id: check, intent: Check, inputs: {x: $.steps.draft.output}, ensure: [result.ok], on_fail: mend}
    - {id: ask, function: review, on_approve: ship, on_revise: draft, on_kill: clean, depends_on: [check]}
    - {id: ship, flow: release, depends_on: [ask]}
    - {id: mend, intent: Mend, next: check}
    - {id: clean, intent: Clean up}
  release:
    steps: [{id: tag, intent: Tag it}, {id: push, intent: Push it}]
"""
)


def test_a_drawing_has_the_steps_and_every_way_between_them() -> None:
    drawing = draw_flow(SPEC)
    assert [(node.id, node.kind, node.note) for node in drawing.nodes] == [
        ("draft", "step", "claude · may be skipped · up to 3 iterations"),
        ("check", "step", None),
        ("ask", "pause", None),
        ("ship", "graph", "release"),
        ("mend", "step", None),
        ("clean", "step", None),
    ]
    assert [(edge.source, edge.target, edge.label, edge.style) for edge in drawing.edges] == [
        ("draft", "check", None, "solid"),
        ("check", "ask", None, "solid"),
        ("check", "mend", "on fail", "dashed"),
        ("ask", "ship", "approve", "solid"),
        ("ask", "draft", "revise", "dashed"),
        ("ask", "clean", "kill", "dashed"),
        ("mend", "check", "next", "solid"),
    ]
    assert (list(drawing.starts), list(drawing.ends)) == (["draft"], ["ship", "clean"])


def test_another_flow_can_be_drawn() -> None:
    drawing = draw_flow(SPEC, "release")
    assert (list(drawing.starts), list(drawing.ends)) == (["tag", "push"], ["tag", "push"])
    assert "Mermaid" not in mermaid(drawing)
    assert mermaid(draw_flow(SPEC)).startswith("flowchart TD")
    assert svg(draw_flow(SPEC)).startswith("<svg")
    with pytest.raises(KeyError):
        draw_flow(SPEC, "none")
