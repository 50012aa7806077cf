"""The interface of the pure state machines that decide runs: `fact -> decisions`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from fastroai.runtime.fact_base import PlanFact
from fastroai.runtime.facts import (
    QuestionAsked,
    ReasonCode,
    RunFinished,
    RunResumed,
    RunStarted,
    StepCancelled,
    StepFact,
    StepFailed,
    StepFinished,
    StepHalted,
    UnitDecision,
    Wait,
)

Unit: TypeAlias = tuple[str, int]
"""A step, or a visit to a node: the id of the step or node, and the number of the visit."""

Outcome: TypeAlias = StepFinished | StepFailed | StepCancelled | StepHalted | QuestionAsked
"""The outcome of a unit, as the machine takes it in."""

Told: TypeAlias = RunStarted | RunResumed | PlanFact
"""Facts that a machine takes in."""


@dataclass(slots=True)
class Cancel:
    """The decision to cancel these units, if they run. The outcome of each is reported when it has ended."""

    units: Sequence[Unit]
    cause: str
    answers_first: bool = False
    """Whether steps get answers that were paid for before they are cancelled, because a budget is used up."""


@dataclass(slots=True)
class Changed:
    """A change in the machine that the work of a graph must follow, such as a fork."""

    what: object


Decided: TypeAlias = UnitDecision | RunFinished
"""Decisions that are facts. The runner carries them out, which makes them true."""

Decision: TypeAlias = Decided | Cancel | Changed


class Machine(Protocol):
    """The only place that decides what runs next, without clock, I/O or coroutines.

    The live run, its resume and any replay of its facts get the same decisions. A machine changes its own
    state, and for each fact only the parts that depend on the fact. The state is plain data, with outputs and
    exceptions by reference: it can be copied and compared.
    """

    @property
    def resume_at(self) -> tuple[str, ...]:
        """The steps or nodes with which the run would go on if it were resumed now."""
        ...

    def handle(self, fact: Told) -> Sequence[Decision]:
        """Take in a fact, and return the decisions that follow from it."""
        ...


def unit_of(fact: StepFact) -> Unit:
    """Return the unit that a fact is about."""
    return fact.step_id, fact.visit


_ORDER: Final = {"question": 0, "message": 1, "sleep": 3}
"""Of the things that a run waits for, the one with the smallest number is its reason; others come between."""


def why_paused(waits: Iterable[tuple[str, Wait]]) -> tuple[ReasonCode, str]:
    """Return the reason of a pause, for programs and for people, from the ids and waits of halted steps."""
    step_id, wait = min(waits, key=lambda one: _ORDER.get(one[1].what, 2))
    return wait.what, f"{step_id!r} {wait.in_full}"
