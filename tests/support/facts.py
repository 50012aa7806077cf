"""Facts as a runner tells them to a state machine, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fastroai.runs.running.machine import Cancel, Decision
from fastroai.runtime.fact_base import FailureFacts
from fastroai.runtime.facts import (
    RunFinished,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepSkipped,
    StepStarted,
)


def finished(step_id: str, *, incomplete: bool = False) -> StepFinished:
    """A step gave an output; `incomplete` if that asks for more from the user."""
    return StepFinished(step_id, None, conversation="incomplete" if incomplete else None)


def failed(step_id: str, *, budget: Literal["own", "outer"] | None = None) -> StepFailed:
    """A step failed, perhaps because a budget is used up."""
    why = FailureFacts(error_type="ValueError", message="no such page", failure_class="terminal")
    return StepFailed(step_id, why, budget=budget)


def cancelled(step_id: str) -> StepCancelled:
    """A step ended since it was cancelled."""
    return StepCancelled(step_id, "another failed")


def brief(decisions: Sequence[Decision]) -> list[str]:
    """What a machine decided, as in `skip c: it needs 'a', which failed`."""
    return [_brief(one) for one in decisions]


def _brief(decision: Decision) -> str:
    match decision:
        case StepStarted(step_id=step_id):
            return f"start {step_id}"
        case StepSkipped(step_id=step_id, cause=cause):
            return f"skip {step_id}: {cause}"
        case Cancel(units, cause):
            return f"cancel {' '.join(step_id for step_id, _ in units)}: {cause}"
        case RunFinished(status=status, reason=reason):
            return f"{status}: {reason}"
        case _:
            raise AssertionError(f"a pipeline decides no {decision}")


def made_room(started: StepStarted) -> str | None:
    """Whose end a step waited for, where all places were taken."""
    _, waited, step_id = started.cause.partition("; it waited for a place until ")
    return step_id.removesuffix(" ended").strip("'") if waited else None
