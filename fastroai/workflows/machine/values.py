"""Inputs of steps, and decisions at gates: values of JSON, as the machine reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from pydantic import JsonValue

from fastroai.workflows.machine.state import FlowState
from fastroai.workflows.spec.document import Binding, GatePolicy, GateSpec, Reference

Decision: TypeAlias = Literal["approve", "revise", "kill"]
"""A decision at a gate."""

_DECISIONS: Final[tuple[Decision, ...]] = get_args(Decision)
_POLICIES: Final[tuple[GatePolicy, ...]] = get_args(GatePolicy)
_RESOLVERS: Final = ("human", "agent", "system")


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """A decision at a gate, and who made it."""

    decision: Decision
    rationale: str = ""
    resolved_by: Literal["human", "agent", "system"] = "human"

    def to_json(self) -> dict[str, JsonValue]:
        """Return the answer in the form in which the log has it."""
        return {"decision": self.decision, "note": self.rationale, "resolved_by": self.resolved_by}

    @classmethod
    def of(cls, answer: JsonValue, rationale: str = "") -> GateAnswer:
        """Read an answer. Plain text, such as an inbox gives, is the decision of a person.

        Raises:
            ValueError: the answer is not a decision.
        """
        given: Mapping[str, JsonValue] = answer if isinstance(answer, dict) else {"decision": answer}
        decision, by = given.get("decision"), given.get("resolved_by", "human")
        note = given.get("note") or rationale
        if decision not in _DECISIONS:
            raise ValueError(f"{decision!r} is no decision at a gate: {', '.join(_DECISIONS)}")
        if by not in _RESOLVERS:
            raise ValueError(f"{by!r} is nobody who decides: {', '.join(_RESOLVERS)}")
        return cls(decision, str(note), by)  # type: ignore[arg-type]


FLAGGED: Final = GateAnswer("approve", "its policy is to approve it and to put that on record", "system")
"""The answer at a gate whose policy is `flag`."""


def value_of(flow: FlowState, binding: Binding) -> JsonValue:
    """Return a literal, or the value of a reference; `None` if the reference has no value (yet)."""
    if not isinstance(binding, Reference):
        return binding
    value: JsonValue
    if binding.step_id is None:
        value = dict(flow.inputs)
    else:
        value = flow.outputs.get(binding.step_id, {}).get("output")
    for part in binding.path:
        if isinstance(value, dict) and isinstance(part, str):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and -len(value) <= part < len(value):
            value = value[part]
        else:
            return None
    return value


def values_of(flow: FlowState, bindings: Mapping[str, Binding]) -> dict[str, JsonValue]:
    """Return the inputs of a step."""
    return {name: value_of(flow, binding) for name, binding in bindings.items()}


def policy_of(flow: FlowState, gate: GateSpec) -> GatePolicy:
    """Return the policy that holds at a gate."""
    if not isinstance(gate.policy, Reference):
        return gate.policy
    given = value_of(flow, gate.policy)
    said: list[GatePolicy] = [one for one in _POLICIES if one == given]
    return said[0] if said else gate.policy_fallback
