"""What the runner asks of a pipeline or graph about the units that its machine starts."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fastroai.runs.machine import Changed
from fastroai.runs.units import UnitRecord
from fastroai.runtime import RetriesUsed, Scope
from fastroai.runtime.facts import (
    AnyFact,
    EdgesResolved,
    QuestionAsked,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepStarted,
)
from fastroai.steps import ResolvedConfig


@dataclass(slots=True)
class Outcome:
    """What became of a unit, as the machine is told it, and what else the log keeps of it."""

    fact: StepFinished | StepFailed | StepCancelled | QuestionAsked
    stored: AnyFact | None = None
    """The fact as a store has it, where that is another form."""
    before: Sequence[tuple[AnyFact, AnyFact | None]] = ()
    """What comes before it in the log, with its stored forms."""


class Work(Protocol):
    """What a pipeline or graph makes of its units. What runs next is not decided here."""

    def config(self, started: StepStarted) -> ResolvedConfig:
        """The settings of a unit."""
        ...

    def perform(self, started: StepStarted, scope: Scope, used: RetriesUsed) -> Coroutine[Any, Any, object]:
        """Run a unit to its output, in `scope`, which is current there."""
        ...

    def finished(self, started: StepStarted, record: UnitRecord, output: object) -> Outcome:
        """What an output comes to. Raises what makes it a failure, such as `ValueNotStorable`."""
        ...

    def failed(self, started: StepStarted, record: UnitRecord, fact: StepFailed) -> Outcome:
        """What a failure comes to."""
        ...

    def cancelled(self, started: StepStarted, record: UnitRecord | None, fact: StepCancelled) -> Outcome:
        """What a cancellation comes to; without a record it had not begun."""
        ...

    def follow(self, change: Changed | EdgesResolved) -> None:
        """Do what a decision of the machine brings along."""
        ...

    def stored(self, decision: AnyFact) -> AnyFact | None:
        """A decision as a store has it, where that is another form."""
        ...
