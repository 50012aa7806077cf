"""What the runner asks of a pipeline or graph about the units that its machine starts."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Protocol, TypeAlias

from fastroai.runs.machine import Changed
from fastroai.runs.units import BegunUnit
from fastroai.runtime import RetriesUsed, Scope
from fastroai.runtime.facts import (
    EdgesResolved,
    QuestionAsked,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepHalted,
    StepSkipped,
    StepStarted,
)
from fastroai.steps import ResolvedConfig

Outcome: TypeAlias = StepFinished | StepFailed | StepCancelled | StepHalted | QuestionAsked
"""The outcome of a unit, as the machine is told."""


Kept: TypeAlias = StepFinished | StepFailed | QuestionAsked | StepStarted | StepSkipped | EdgesResolved
"""What is put on record of a unit."""


class Work(Protocol):
    """What a pipeline or graph makes of its units. What runs next is not decided here."""

    @property
    def configs(self) -> Mapping[str, ResolvedConfig]:
        """The settings of units, by step id."""
        ...

    def perform(self, started: StepStarted, scope: Scope, used: RetriesUsed) -> Coroutine[Any, Any, object]:
        """Run a unit to its output, in `scope`, which is current there."""
        ...

    def finished(
        self, started: StepStarted, begun: BegunUnit, output: object
    ) -> StepFinished | QuestionAsked:
        """Return the outcome for an output. Raises the exception that makes it a failure."""
        ...

    def settled(self, fact: StepFinished | QuestionAsked) -> None:
        """Follow a finished unit, before the machine is told."""
        ...

    def failed(self, started: StepStarted, fact: StepFailed) -> None:
        """Follow a failed unit, before the machine is told."""
        ...

    def cut_short(self, started: StepStarted, fact: StepCancelled | StepHalted) -> None:
        """Follow a unit that was cancelled, begun or not, or halted, before the machine is told."""
        ...

    def follow(self, change: Changed) -> None:
        """Do what a decision requires besides starting and stopping units."""
        ...

    def stored(self, fact: Kept) -> Kept | None:
        """Return a fact in the form that a store has, if that differs.

        Raises:
            ValueNotStorable: one of its values cannot be stored.
            RunStoreUnavailable: the codec fails.
        """
        ...
