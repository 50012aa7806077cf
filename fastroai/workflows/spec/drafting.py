"""Specs made of a few words: phases of work, and gates after them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from fastroai.documents.yaml_writing import dump_yaml
from fastroai.workflows.spec.limits import MAX_FLOW_STEPS, MAX_ID_CHARACTERS

Capability: TypeAlias = Literal["scout", "builder", "critic"]
"""The kind of work in a phase: to look around, to make something, or to judge."""

_INTENTS: Final[Mapping[Capability | None, str]] = {
    "scout": "Explore what is there, and gather what the next phases need: {name}.",
    "builder": "Build: {name}. Check your work before you report it.",
    "critic": "Review what the phases before have done, and list every problem that you find: {name}.",
    None: "{name}",
}
_DEFAULT_NAME: Final = "my-pipeline"


class PhaseDraft(BaseModel):
    """A phase of a `PipelineDraft`: it becomes a step of the spec and, with a `policy`, a gate after that.

    With the policy `gate`, a person decides at the gate; with `flag`, the gate approves, and puts that on
    record; with `skip`, it approves. `capability` is the kind of work: without an `intent`, the intent of the
    step is made of it and the name.
    """

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=100)
    intent: str | None = Field(default=None, max_length=20_000)
    """The work of the phase; by default it is made of the name and the capability."""
    capability: Capability | None = None
    policy: Literal["gate", "flag", "skip"] | None = None
    """The policy of a gate after the phase: `gate` asks a person, `flag` approves and puts that on record,
    `skip` approves. With `None`, the phase has no gate.
    """
    agent: str | None = Field(default=None, max_length=100)
    retries: int = Field(default=1, ge=0, le=100, description="Extra attempts, after the first.")


class PipelineDraft(BaseModel):
    """A workflow in a few words: phases of work, one after the other, of which `draft_spec` makes a spec.

    It has 1 to 500 phases.
    """

    model_config = ConfigDict(extra="forbid")

    name: str = Field(default=_DEFAULT_NAME, max_length=100)
    description: str = Field(default="", max_length=2_000)
    phases: list[PhaseDraft] = Field(min_length=1, max_length=MAX_FLOW_STEPS // 2)


def draft_spec(draft: PipelineDraft) -> str:
    """Return the YAML text of a valid spec that does the phases in order. The text is meant to be edited.

    Each phase is a step that gets the result of the phase before it. Its result has the fields `done` and
    `summary`, and is accepted if `done` is true. After a phase with a `policy` comes a gate: `approve` leads
    to the next phase, `revise` back to the phase before the gate, and `kill` ends the flow.

    Raises:
        MissingExtraError: PyYAML is not installed (the extra `workflows`).
    """
    name = _id(draft.name, set()) if draft.name.strip() else _DEFAULT_NAME
    taken: set[str] = set()
    steps: list[dict[str, Any]] = []
    ids = [_id(phase.name, taken) for phase in draft.phases]
    after: list[str] = []
    for index, (phase, step_id) in enumerate(zip(draft.phases, ids, strict=True)):
        steps.append(_step(phase, step_id, ids[index - 1] if index else None, after))
        after = [step_id]
        if phase.policy is not None:
            gate = _id(f"{step_id}_gate", taken)
            following = ids[index + 1] if index + 1 < len(ids) else None
            steps.append(_gate(gate, step_id, following, phase.policy))
            after = [gate]
    topic = {"topic": {"type": "string", "default": ""}}
    document: dict[str, Any] = {
        "version": "0.3",
        "workflow": {
            "name": name,
            "description": draft.description or f"Pipeline {draft.name}",
            "input": topic,
        },
        "contracts": {"PhaseResult": {"done": {"type": "boolean"}, "summary": {"type": "string"}}},
    }
    if any(phase.policy for phase in draft.phases):
        document["functions"] = {"approve": {"mode": "gate", "intent": "Decide whether the work goes on"}}
    document["flows"] = {name: {"input": topic, "output": "PhaseResult", "steps": steps}}
    return dump_yaml(document, "draft_spec")


def _step(phase: PhaseDraft, step_id: str, before: str | None, after: list[str]) -> dict[str, Any]:
    intent = (phase.intent or "").strip() or _INTENTS[phase.capability].format(name=phase.name.strip())
    inputs = {"topic": "$.input.topic"}
    if before is not None:
        inputs["before"] = f"$.steps.{before}.output"
    step: dict[str, Any] = {"id": step_id, "intent": intent or step_id}
    if phase.agent is not None:
        step["agent"] = phase.agent
    step |= {"inputs": inputs, "output_contract": "PhaseResult", "ensure": ["result.done"]}
    step["retries"] = phase.retries
    return {**step, "depends_on": after} if after else step


def _gate(gate: str, step_id: str, following: str | None, policy: str) -> dict[str, Any]:
    routes = {"on_approve": following, "on_revise": step_id, "on_kill": None}
    return {"id": gate, "function": "approve", "policy": policy, "depends_on": [step_id], **routes}


def _id(name: str, taken: set[str]) -> str:
    """Return an id for a name that is not in `taken`, and add the id to `taken`."""
    slug = re.sub(r"[^A-Za-z0-9_-]+", "_", name.strip()).strip("_-") or "phase"
    slug = (slug if slug[0].isalpha() else f"p_{slug}")[: MAX_ID_CHARACTERS - 10]
    found, number = slug, 1
    while found in taken:
        number += 1
        found = f"{slug}_{number}"
    taken.add(found)
    return found
