"""The facts that only workflows make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from typing_extensions import override

from fastroai.data_kinds import Name, Payload, Text
from fastroai.runtime.facts import (
    Begins,
    Ends,
    Notes,
    Outcome,
    PlanFact,
    RunFact,
    StepEnds,
    StepFact,
    Telling,
)


@dataclass(slots=True)
class SkipRequested(StepEnds):
    """Somebody asked to leave out a step that had started; its output is `None`."""

    kind: ClassVar[str] = "skip_requested"
    ends_as: ClassVar[Outcome] = "cancelled"
    reason: Text[str] = ""

    @override
    def sentences(self, run: Telling) -> tuple[str, ...]:
        why = f", because {self.reason}" if self.reason else ""
        return (f"{self.place}: somebody skipped it{why}",)


@dataclass(slots=True)
class IterationStarted(StepFact, Begins, PlanFact):
    """A loop of iterations of a step began."""

    kind: ClassVar[str] = "iteration_started"
    says: ClassVar = "{0.place}: a loop of iterations began"
    of_running: ClassVar = True
    identity: ClassVar = ("iterations", "place")


@dataclass(slots=True)
class IterationReported(StepFact, Notes, PlanFact):
    """An iteration of a step has given a result."""

    kind: ClassVar[str] = "iteration_reported"
    says: ClassVar = "{0.place}: an iteration has given a result"
    of_running: ClassVar = True
    holds: ClassVar = "the report of an iteration of {0.place!r}"
    identity: ClassVar = ("iterations", "place")
    output: Payload[Any]
    """The value itself; in a fact from a log, and in a trace, its JSON."""


@dataclass(slots=True)
class IterationAborted(StepFact, Ends, PlanFact):
    """A loop of iterations was ended before its time."""

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
    """Somebody set a checkpoint: a state of a workflow, to which it can go back."""

    kind: ClassVar[str] = "checkpoint_set"
    says: ClassVar = "checkpoint {0.label!r} was set"
    label: Name[str]


@dataclass(slots=True, kw_only=True)
class CheckpointRestored(RunFact, PlanFact):
    """A workflow went back to a checkpoint: what its steps did since it was set no longer counts.

    What they cost still does.
    """

    kind: ClassVar[str] = "checkpoint_restored"
    says: ClassVar = "the run went back to checkpoint {0.label!r}"
    reopens: ClassVar = True
    label: Name[str]


OfWorkflow: TypeAlias = (
    SkipRequested
    | IterationStarted
    | IterationReported
    | IterationAborted
    | CheckpointSet
    | CheckpointRestored
)
"""Facts that only the machine of a workflow takes in."""
