"""What the runner asks of a pipeline or graph about the units that its machine starts."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeAlias

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

Outcome: TypeAlias = StepFinished | StepFailed | StepCancelled | QuestionAsked
"""What becomes of a unit, as the machine is told it."""


class Work(Protocol):
    """What a pipeline or graph makes of its units. What runs next is not decided here."""

    def config(self, started: StepStarted) -> ResolvedConfig:
        """The settings of a unit."""
        ...

    def perform(self, started: StepStarted, scope: Scope, used: RetriesUsed) -> Coroutine[Any, Any, object]:
        """Run a unit to its output, in `scope`, which is current there."""
        ...

    def finished(
        self, started: StepStarted, record: UnitRecord, output: object
    ) -> StepFinished | QuestionAsked:
        """What an output comes to. Raises what makes it a failure."""
        ...

    def settled(self, fact: StepFinished | QuestionAsked) -> None:
        """It is what has come of a unit, which the machine is told next."""
        ...

    def failed(self, started: StepStarted, record: UnitRecord, fact: StepFailed) -> None:
        """A unit has failed, which the machine is told next."""
        ...

    def cancelled(self, started: StepStarted, record: UnitRecord | None, fact: StepCancelled) -> None:
        """A unit was cancelled, which the machine is told next; without a record it had not begun."""
        ...

    def follow(self, change: Changed | EdgesResolved) -> None:
        """Do what a decision of the machine brings along."""
        ...

    def stored(self, fact: AnyFact) -> AnyFact | None:
        """A fact as a store has it, where that is another form.

        Raises:
            ValueNotStorable: one of its values cannot be stored.
            RunStoreUnavailable: the codec fails.
        """
        ...
