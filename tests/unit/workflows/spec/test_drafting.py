"""Drafts of pipelines, and the specs that they come to."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fastroai.workflows.spec.document import WorkflowSpec
from fastroai.workflows.spec.drafting import PipelineDraft, draft_spec
from fastroai.workflows.spec.reading import load_spec


def spec_of(**draft: Any) -> WorkflowSpec:
    return load_spec(draft_spec(PipelineDraft.model_validate(draft)))


def test_phases_are_done_in_order_with_gates_between_them() -> None:
    spec = spec_of(
        name="my flow",
        description="Build it",
        phases=[
            {"name": "Look around", "capability": "scout"},
            {
                "name": "build",
                "intent": "Write {the} code",
                "policy": "gate",
                "agent": "claude",
                "retries": 4,
            },
            {"name": "review", "capability": "critic", "policy": "flag"},
        ],
    )
    flow = spec.flows["my_flow"]
    assert (spec.workflow and spec.workflow.description, spec.entry) == ("Build it", "my_flow")
    assert [step.id for step in flow.steps] == ["Look_around", "build", "build_gate", "review", "review_gate"]
    assert flow.needs == {
        "Look_around": (),
        "build": ("Look_around",),
        "build_gate": ("build",),
        "review": ("build_gate", "build"),
        "review_gate": ("review",),
    }
    look, build, gate, _, last = flow.steps
    assert "Explore" in look.intent
    assert (build.intent, build.agent, build.attempts) == ("Write {the} code", "claude", 5)
    assert gate.gate is not None
    assert (gate.gate.on_approve, gate.gate.on_revise, gate.gate.policy) == ("review", "build", "gate")
    assert last.gate is not None
    assert (last.gate.on_approve, last.gate.policy) == (None, "flag")


def test_any_names_come_to_a_valid_spec() -> None:
    names = ["é", "1", "a", "a", "a_gate", "$.input.x", "on", "{name}", " ", "x" * 100]
    spec = spec_of(name=" ", phases=[{"name": name, "policy": "skip"} for name in names])
    assert len(spec.flows["my-pipeline"].steps) == 2 * len(names)
    assert spec.workflow is not None
    assert spec.workflow.name == "my-pipeline"


@pytest.mark.parametrize(
    "draft",
    [
        {"phases": []},
        {},
        {"phases": [{"name": ""}]},
        {"phases": [{"name": "a", "policy": "ask"}]},
        {"phase": []},
    ],
)
def test_a_draft_has_phases_in_the_right_form(draft: Any) -> None:
    with pytest.raises(ValidationError):
        PipelineDraft.model_validate(draft)
