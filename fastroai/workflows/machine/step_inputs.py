"""Inputs of steps, and decisions at gates: values of JSON, as the machine reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, get_args

from pydantic import JsonValue

from fastroai.workflows.machine.state import FlowState, GateOutcome, ResolvedBy
from fastroai.workflows.spec.document import Binding, GatePolicy, GateSpec, Reference

_DECISIONS: Final[tuple[GateOutcome, ...]] = get_args(GateOutcome)
_POLICIES: Final[tuple[GatePolicy, ...]] = get_args(GatePolicy)
_MOST_NAMES: Final = 20
"""Maximum number of fields that a message names."""
REJECTED: Final = "rejected"
"""Marks an output, beside `output`, that has not passed its checks; recovery steps may read it."""
_RESOLVERS: Final = {"human": "a person", "agent": "an agent", "system": "the system"}


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """A decision at a gate, and who made it."""

    decision: GateOutcome
    rationale: str = ""
    resolved_by: ResolvedBy = "human"

    @property
    def by(self) -> str:
        """Who made it, for people."""
        return _RESOLVERS[self.resolved_by]

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
            raise ValueError(f"{decision!r} is not a decision at a gate: {', '.join(_DECISIONS)}")
        if by not in _RESOLVERS:
            raise ValueError(f"{by!r} does not say who decides: {', '.join(_RESOLVERS)}")
        return cls(decision, str(note), by)  # type: ignore[arg-type]


def options_at(revisions_left: int | None) -> tuple[GateOutcome, ...]:
    """Return the decisions that are possible at a gate. It cannot revise if no revisions are left."""
    return tuple(one for one in _DECISIONS if one != "revise" or revisions_left != 0)


FLAGGED: Final = GateAnswer("approve", "its policy is to approve it and to put that on record", "system")
"""The answer at a gate whose policy is `flag`."""


def value_of(flow: FlowState, binding: Binding) -> JsonValue:
    """Return a literal, or the value of a reference; `None` if the reference has no value (yet)."""
    return _read(flow, binding)[0] if isinstance(binding, Reference) else binding


def missing_values(flow: FlowState, bindings: Mapping[str, Binding]) -> tuple[str, ...]:
    """Return why inputs of a step have no value. An input may be null, but only where null is a value.

    Null are: a part of null, such as the output of a step that was skipped; a declared field that is missing,
    as only optional ones are; and what a result lacks that its checks have rejected.
    """
    given = ((name, one) for name, one in bindings.items() if isinstance(one, Reference))
    return tuple(f"input {name!r}: {why}" for name, one in given if (why := _read(flow, one)[1]))


def _read(flow: FlowState, reference: Reference) -> tuple[JsonValue, str]:
    """Return the value of a reference; or null, and why there is no value, or no reason if it is null."""
    value: JsonValue
    if reference.step_id is None:
        value, is_rejected = dict(flow.inputs), False
    else:
        output = flow.outputs.get(reference.step_id, {})
        value, is_rejected = output.get("output"), REJECTED in output
    for depth, part in enumerate(reference.path):
        if value is None:
            return None, ""
        if not _has(value, part):
            is_optional = depth == 0 and reference.is_declared and isinstance(value, dict)
            is_null = is_rejected or is_optional
            return None, "" if is_null else f"{reference.text} has no value: {_lacks(value, part)}"
        value = value[part]  # type: ignore[index]  # which it has
    return value, ""


def _has(value: JsonValue, part: str | int) -> bool:
    if isinstance(value, dict):
        return part in value
    return isinstance(value, list) and isinstance(part, int) and part < len(value)


def _lacks(value: JsonValue, part: str | int) -> str:
    """Return why a value does not have a part, for people."""
    if isinstance(value, dict) and isinstance(part, str):
        names = ", ".join(map(repr, [*value][:_MOST_NAMES])) or "none"
        return f"there is no field {part!r}; the fields are: {names}"
    if isinstance(value, list) and isinstance(part, int):
        return f"there is no item {part}; the list has {len(value)}"
    what = "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else "no container"
    return f"{part!r} was looked up in {what}"


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
