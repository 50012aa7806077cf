"""What a run of a workflow gives back that FastroAI runs itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

from pydantic import JsonValue

from fastroai.records import dump
from fastroai.runs.stream import RunStream
from fastroai.runs.units import BegunUnits
from fastroai.runs.usage import RunUsage
from fastroai.runtime import Scope
from fastroai.runtime.facts import ReasonCode, Wait
from fastroai.steps import StepUsage
from fastroai.store.log import RunLog
from fastroai.store.open_questions import Question
from fastroai.store.trace import RunTrace

WorkflowStatus: TypeAlias = Literal["complete", "killed", "failed", "cancelled", "paused"]
"""How a run of a workflow ended. A `paused` one waits for the decision of a gate, or was paused."""


class WorkflowUsage(RunUsage):
    """What a whole run has spent, and each step of it, by its path, all its attempts together."""

    def __init__(self, scope: Scope, units: BegunUnits) -> None:
        """From the scope of a run that has ended, and the attempts at its steps."""
        super().__init__(scope)
        self._units = units

    def __getstate__(self) -> dict[str, object]:
        """Plain data for pickling and copying: usage of steps instead of their live scopes."""
        return {**self.__dict__, "by_step": self.by_step, "_units": BegunUnits()}

    def model_dump(self) -> dict[str, object]:
        """Return the sums, and those of each step, as values that JSON can hold."""
        return {**super().model_dump(), "steps": self.by_step}

    @cached_property
    def by_step(self) -> Mapping[str, StepUsage]:
        """Usage of every step that was begun, all attempts together."""
        found: defaultdict[str, StepUsage] = defaultdict(StepUsage)
        for (step_id, _), begun in self._units.items():
            found[step_id] = found[step_id] + begun.usage
        return dict(found)


@dataclass(frozen=True, kw_only=True)
class WorkflowResult:
    """How a run of a workflow ended, and all that it gave."""

    run_id: str
    status: WorkflowStatus
    output: JsonValue
    """The output of the flow: that of its last step; `None` unless the flow is complete."""
    outputs: Mapping[str, JsonValue]
    """The latest output of each step, by its path; of a step that failed its checks, its last result."""
    violations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By step, what was wrong with its last result, if it has failed."""
    round: int = 0
    """How often gates have sent the flow back."""
    usage: WorkflowUsage
    reason: str
    """Why it ended so, for people."""
    reason_code: ReasonCode | None
    """The same for programs, as a word."""
    error: BaseException | None = None
    """The exception that stopped it, if one did."""
    waits: tuple[Wait, ...] = ()
    """What a paused run waits for, and until when."""
    questions: tuple[Question, ...] = ()
    """The gates of a paused run, first asked first."""
    log: RunLog = field(repr=False, compare=False)
    """What `trace` is made of."""

    @property
    def ok(self) -> bool:
        """Whether the flow is complete."""
        return self.status == "complete"

    def model_dump(self) -> dict[str, Any]:
        """Return the result as values of JSON, without what `trace` is made of."""
        return dump(self)

    @property
    def trace(self) -> RunTrace:
        """What happened: every attempt at every step, why it was made, and what it gave and cost."""
        return self.log.trace

    def explain(self) -> str:
        """Why each step ran, a line each."""
        return self.trace.explain()


WorkflowStream: TypeAlias = RunStream[WorkflowResult]
"""The stream of a run of a workflow: `result` is a `WorkflowResult` once the iteration has ended."""
