"""What must come of a run that is interrupted and resumed: written without anything of FastroAI's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """Steps in an order that respects what they need, and their fates."""

    needs: Mapping[str, tuple[str, ...]]
    failures: Mapping[str, int]
    """How many attempts at a step fail before one succeeds."""
    retries: Mapping[str, int]
    exempt: frozenset[str]
    """Steps whose failure does not stop a run."""


@dataclass
class Final:
    """When a run was resumed so often that it ended by itself, or failed as often as it was allowed to."""

    outputs: dict[str, object]
    failed: set[str]
    skipped: set[str]


def output_of(step: str, inputs: list[object]) -> list[object]:
    return [step, *inputs]


def interpret(plan: Plan) -> Final:
    """Of a run that is resumed until nothing is left to fail."""
    outputs: dict[str, object] = {}
    for step, needs in plan.needs.items():
        outputs[step] = output_of(step, [outputs[need] for need in needs])
    return Final(outputs, set(), set())


def interpret_once(plan: Plan) -> Final:
    """Of a run that is not interrupted, and that no failure stops: each step has its retries, once."""
    final = Final({}, set(), set())
    for step, needs in plan.needs.items():
        if any(need not in final.outputs for need in needs):
            final.skipped.add(step)
        elif plan.failures[step] > plan.retries[step]:
            final.failed.add(step)
        else:
            final.outputs[step] = output_of(step, [final.outputs[need] for need in needs])
    return final


def parts_needed(plan: Plan) -> int:
    """How often at most a run must be taken up until it is finished, if nothing but its steps fails."""
    return 1 + sum(failures // (plan.retries[step] + 1) for step, failures in plan.failures.items())
