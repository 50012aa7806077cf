"""The facts that only workflows make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from typing_extensions import override

from fastroai.data_kinds import Name, Payload, Text
from fastroai.runtime.fact_base import Begins, Ends, Notes, Outcome, PlanFact, RunFact, Telling
from fastroai.runtime.facts import StepEnds, StepFact


@dataclass(slots=True)
class SkipRequested(StepEnds):
    """A fact in the log of a workflow: somebody skipped a step that was due; its output is `None`.

    `WorkflowRuns.skip_step` puts it on record. `reason` is the reason that was given; empty if none was.
    """

    kind: ClassVar[str] = "skip_requested"
    ends_as: ClassVar[Outcome] = "cancelled"
    reason: Text[str] = ""

    @override
    def sentences(self, run: Telling) -> tuple[str, ...]:
        why = f", because {self.reason}" if self.reason else ""
        return (f"{self.place}: somebody skipped it{why}",)


@dataclass(slots=True)
class IterationStarted(StepFact, Begins, PlanFact):
    """A fact in the log of a workflow: the loop of a step with `max_iterations` began.

    `WorkflowRuns.iteration_start` puts it on record, or FastroAI when it runs the workflow itself.
    """

    kind: ClassVar[str] = "iteration_started"
    says: ClassVar = "{0.place}: a loop of iterations began"
    of_running: ClassVar = True
    identity: ClassVar = ("iterations", "place")


@dataclass(slots=True)
class IterationReported(StepFact, Notes, PlanFact):
    """A fact in the log of a workflow: an iteration of the loop of a step has given a result, `output`.

    `WorkflowRuns.iteration_report` puts it on record, or FastroAI when it runs the workflow itself. It may
    have ended the loop.
    """

    kind: ClassVar[str] = "iteration_reported"
    says: ClassVar = "{0.place}: an iteration has given a result"
    of_running: ClassVar = True
    holds: ClassVar = "the report of an iteration of {0.place!r}"
    identity: ClassVar = ("iterations", "place")
    output: Payload[Any]
    """The value itself; in a fact from a log, and in a trace, its JSON."""


@dataclass(slots=True)
class IterationAborted(StepFact, Ends, PlanFact):
    """A fact in the log of a workflow: the loop of a step was ended early, by `WorkflowRuns.iteration_abort`.

    The step itself is still to be done. `reason` is the reason that was given; empty if none was.
    """

    kind: ClassVar[str] = "iteration_aborted"
    of_running: ClassVar = True
    identity: ClassVar = ("iterations", "place")
    ends_as: ClassVar[Outcome] = "cancelled"
    reason: Text[str] = ""

    @override
    def sentences(self, run: Telling) -> tuple[str, ...]:
        why = f", because {self.reason}" if self.reason else ""
        return (f"{self.place}: the loop was aborted{why}",)


@dataclass(slots=True, kw_only=True)
class CheckpointSet(RunFact, PlanFact):
    """A fact in the log of a workflow: somebody set a checkpoint, to which the workflow can go back.

    `WorkflowRuns.commit` puts it on record. A later checkpoint with the same `label` replaces it.
    """

    kind: ClassVar[str] = "checkpoint_set"
    says: ClassVar = "checkpoint {0.label!r} was set"
    label: Name[str]


@dataclass(slots=True, kw_only=True)
class CheckpointRestored(RunFact, PlanFact):
    """A fact in the log of a workflow: it went back to the checkpoint `label`, by `WorkflowRuns.revert`.

    What its steps did since the checkpoint was set no longer counts. Their cost still does.
    """

    kind: ClassVar[str] = "checkpoint_restored"
    says: ClassVar = "the run went back to checkpoint {0.label!r}"
    reopens: ClassVar = True
    label: Name[str]
