"""The result of a workflow that FastroAI runs itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

from pydantic import JsonValue

from fastroai.runs.result import RunResult
from fastroai.runs.running.units import BegunUnits
from fastroai.runs.usage import RunUsage, steps_together
from fastroai.runtime import Scope
from fastroai.runtime.facts import ReasonCode, Wait
from fastroai.steps import StepUsage
from fastroai.store.open_questions import Question
from fastroai.store.record.log import RunLog

WorkflowStatus: TypeAlias = Literal["complete", "killed", "failed", "cancelled", "paused"]
"""How a run of a workflow ended. A `paused` run waits for a decision at a gate, or was paused on request."""


class WorkflowUsage(RunUsage):
    """The usage and the cost of a whole run of a workflow, and in `by_step` of each step.

    It has the sums of the run, such as `cost_usd` and `input_tokens`. `by_step` has those of each step by its
    path, such as `review.draft`, over all its attempts.
    """

    def __init__(self, scope: Scope, units: BegunUnits) -> None:
        """Take the scope of a run that has ended, and the attempts at its steps."""
        super().__init__(scope)
        self._units = units

    def __getstate__(self) -> dict[str, object]:
        """Return plain data for pickling and copying: usage of steps instead of their live scopes."""
        return {**self.__dict__, "by_step": self.by_step, "_units": BegunUnits()}

    def _added(self, other: Any) -> dict[str, object]:
        return {**super()._added(other), "by_step": steps_together(self.by_step, other.by_step)}

    def model_dump(self) -> dict[str, object]:
        """Return the totals of the run and of each step as a dict of Python objects, not yet as JSON data.

        Its keys are `total` (a `Usage`), `cost_complete`, `by_model` and `by_variant` (a `Usage` for each
        name), and `steps` (a `StepUsage` for each step by its path). `result.model_dump()` of the whole
        result converts them to values that JSON can hold.
        """
        return {**super().model_dump(), "steps": self.by_step}

    @cached_property
    def by_step(self) -> Mapping[str, StepUsage]:
        """Usage of every step that was begun, all attempts together."""
        found: defaultdict[str, StepUsage] = defaultdict(StepUsage)
        for (step_id, _), begun in self._units.items():
            found[step_id] = found[step_id] + begun.usage
        return dict(found)


@dataclass(frozen=True, kw_only=True)
class WorkflowResult(RunResult):
    """How a run of a workflow ended, with its outputs, its usage and its trace.

    `Workflow.run` and `resume` return it also if the flow has failed, was killed, or is paused. `output` is
    `None` unless the flow is complete; `outputs` has the latest output of each step by its path.
    """

    run_id: str
    status: WorkflowStatus
    output: JsonValue
    """The output of the flow, which is that of its last step; `None` unless the flow is complete."""
    outputs: Mapping[str, JsonValue]
    """The latest output of each step, by its path; for a step that failed its checks, its last result."""
    violations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Violations of the last result of each step that failed, by path."""
    round: int = 0
    """Number of times that gates have sent the flow back."""
    usage: WorkflowUsage  # pyright: ignore[reportIncompatibleMethodOverride]
    reason: str
    """Why the run ended, for people."""
    reason_code: ReasonCode | None
    """Why the run ended, as a code for programs."""
    error: BaseException | None = None
    """The exception that stopped the run, if one did."""
    waits: tuple[Wait, ...] = ()
    """The waits of a paused run, with their deadlines."""
    questions: tuple[Question, ...] = ()
    """The questions of gates at which a paused run waits, first asked first."""
    log: RunLog = field(repr=False, compare=False)
    """The log from which `trace` is made."""

    @property
    def ok(self) -> bool:
        """Whether the flow is complete; `False` if it was killed, has failed, was cancelled or is paused."""
        return self.status == "complete"
