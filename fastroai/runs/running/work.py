"""The work of a pipeline or graph: how its units are run, for the runner."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Protocol, TypeAlias

from fastroai.runs.running.machine import Changed
from fastroai.runs.running.units import BegunUnit
from fastroai.runtime import RetriesUsed
from fastroai.runtime.facts import (
    QuestionAsked,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepHalted,
    StepStarted,
    UnitDecision,
)
from fastroai.steps import ResolvedConfig

Kept: TypeAlias = StepFinished | StepFailed | QuestionAsked | UnitDecision
"""Facts about a unit that may have another form in a store."""


class Work(Protocol):
    """The way in which a pipeline or graph runs its units. The machine decides which unit runs next."""

    @property
    def configs(self) -> Mapping[str, ResolvedConfig]:
        """The settings of units, by step id."""
        ...

    def perform(
        self, started: StepStarted, begun: BegunUnit, used: RetriesUsed
    ) -> Coroutine[Any, Any, object]:
        """Run a unit and return its output. The scope of the unit is the current one inside."""
        ...

    def finished(
        self, started: StepStarted, begun: BegunUnit, output: object
    ) -> StepFinished | QuestionAsked:
        """Return the outcome for an output. Raises an exception if the output makes the unit fail."""
        ...

    def settled(self, fact: StepFinished | QuestionAsked) -> None:
        """Take in the outcome of a finished unit, before the machine does."""
        ...

    def failed(self, started: StepStarted, fact: StepFailed) -> None:
        """Take in the outcome of a failed unit, before the machine does."""
        ...

    def cut_short(self, started: StepStarted, fact: StepCancelled | StepHalted) -> None:
        """Take in that a unit was cancelled, begun or not, or halted, before the machine does."""
        ...

    def follow(self, change: Changed) -> None:
        """Carry out a decision that is neither a start nor a stop of units."""
        ...

    def stored(self, fact: Kept) -> Kept | None:
        """Return a fact in the form that a store keeps; `None` if that is the fact itself.

        Raises:
            ValueNotStorable: a value of the fact cannot be stored.
            RunStoreUnavailable: the codec fails.
        """
        ...
