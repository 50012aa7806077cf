"""What decides a run: a pure state machine, `fact -> decisions`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from fastroai.runtime.facts import (
    WAITS,
    AnswerGiven,
    BranchTimedOut,
    CheckpointRestored,
    CheckpointSet,
    EdgesResolved,
    IterationAborted,
    IterationReported,
    IterationStarted,
    PauseRequested,
    QuestionAsked,
    ReasonCode,
    RunFinished,
    RunResumed,
    RunStarted,
    SkipRequested,
    StepCancelled,
    StepFact,
    StepFailed,
    StepFinished,
    StepHalted,
    StepSkipped,
    StepStarted,
    StopRequested,
    Wait,
)

Unit: TypeAlias = tuple[str, int]
"""What is run: a step, or a visit to a node; its id and the number of the visit."""

OfWorkflow: TypeAlias = (
    SkipRequested
    | IterationStarted
    | IterationReported
    | IterationAborted
    | CheckpointSet
    | CheckpointRestored
)
"""What only the machine of a workflow is told."""

Told: TypeAlias = (
    RunStarted
    | RunResumed
    | StepFinished
    | StepFailed
    | StepCancelled
    | StepHalted
    | QuestionAsked
    | AnswerGiven
    | BranchTimedOut
    | OfWorkflow
    | PauseRequested
    | StopRequested
)
"""What a machine is told."""


@dataclass(slots=True)
class Cancel:
    """Cancel these units, of those that run; each says when it has ended."""

    units: Sequence[Unit]
    cause: str
    answers_first: bool = False
    """Whether answers that were paid for reach their steps before: a budget is used up, nothing failed."""


@dataclass(slots=True)
class Changed:
    """Something changed in the machine that the work of a graph must follow, such as a fork."""

    what: object


Decided: TypeAlias = StepStarted | StepSkipped | EdgesResolved | RunFinished
"""What a machine decides, as facts: whoever carries it out makes them true."""

Decision: TypeAlias = Decided | Cancel | Changed


class Machine(Protocol):
    """Decides what runs next, and nothing else does: no clock, no I/O, no coroutine.

    The live run, its resume and any replay of its facts get the same decisions. It changes its own state and
    touches only what depends on the fact.
    """

    @property
    def resume_at(self) -> tuple[str, ...]:
        """The steps or nodes with which the run goes on, if it is resumed as it is now."""
        ...

    def handle(self, fact: Told) -> Sequence[Decision]:
        """Take in what happened; say what to do."""
        ...


def unit_of(fact: StepFact) -> Unit:
    """What a fact is about."""
    return fact.step_id, fact.visit


def why_paused(waits: Iterable[tuple[str, Wait]]) -> tuple[ReasonCode, str]:
    """Return the reason of a run whose steps wait, given with what each waits for."""
    step_id, wait = min(waits, key=lambda one: WAITS.index(one[1].what))
    return wait.what, f"{step_id!r} {wait}"
