"""The one replay: the facts of a log are told to a new state machine, and may be compared with its decisions.

Resumed and forked runs go on from the machine that was told, and so do workflows that are driven.
`trace.replay` compares.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar, assert_never

from fastroai.errors import ConfigurationError, RunCorrupt
from fastroai.runs.running.machine import (
    Cancel,
    Changed,
    Decided,
    Decision,
    Machine,
    Outcome,
    Told,
    Unit,
    unit_of,
)
from fastroai.runs.running.units import Past
from fastroai.runtime.fact_base import PlanFact
from fastroai.runtime.facts import (
    PauseRequested,
    QuestionAsked,
    RunFinished,
    RunResumed,
    RunStarted,
    StepCancelled,
    StepFact,
    StepFailed,
    StepFinished,
    StepStarted,
    StopRequested,
    UnitDecision,
)
from fastroai.store.reading.trace import Divergence, RunTrace
from fastroai.store.record.definitions import MachineKind
from fastroai.store.record.memo import Memo


class Replay(ABC):
    """A pipeline or graph of a run, as far as its machine was told the facts of the log.

    Kinds of runs differ in how their machine takes in an entry of the log.
    """

    def __init__(self, machine: Machine, started: RunStarted) -> None:
        self.machine: Machine = machine
        self.due: dict[Unit, StepStarted] = {}
        """Units that have started and are not over, in the order in which they started."""
        self.past: dict[Unit, Past] = {}
        """Units that are over and have not started again."""
        self.pending: dict[tuple[type, Unit], UnitDecision] = {}
        """The decisions that are not on record, in order."""
        self.finish: RunFinished | None = None
        """The decision that ends or pauses the run; `None` while something goes on in it."""
        self.tell(started)

    @property
    def decisions(self) -> list[Decided]:
        """The decisions to carry out when the whole log is told."""
        pending = self.pending.values()
        return [*pending] if self.finish is None else [*pending, self.finish]

    def read(self, position: int, entry: PlanFact) -> None:
        """Take in an entry of the log. Raises `RunCorrupt` if this machine cannot have led to the entry."""
        if isinstance(entry, UnitDecision):
            self.pending.pop((type(entry), unit_of(entry)), None)
        self._read(position, entry)

    @abstractmethod
    def _read(self, position: int, entry: PlanFact) -> None:
        """See `read`."""

    def resumed(self, entry: RunResumed) -> None:
        """Take in that another process has taken the run up. Units that are not over start anew."""
        self.due.clear()
        self.pending = {key: one for key, one in self.pending.items() if not isinstance(one, StepStarted)}
        self.tell(entry)

    def may_start(self, unit: Unit) -> bool:
        """Return whether a unit waits that may have started in the run, as limits were others then."""
        return False

    def tell(self, fact: Told) -> None:
        """Let the machine take in a fact, and note its decisions."""
        has_ended = self.finish is not None and self.finish.status != "paused"
        is_too_late = has_ended and isinstance(fact, PauseRequested | StopRequested)
        if not is_too_late:
            self.finish = None
        self.note(self.machine.handle(fact))

    def note(self, decisions: Sequence[Decision]) -> None:
        """Note decisions of the machine."""
        for decision in decisions:
            match decision:
                case StepStarted():
                    unit = unit_of(decision)
                    self.due[unit] = decision
                    self.past.pop(unit, None)
                    self.pending[StepStarted, unit] = decision
                case UnitDecision():
                    self.pending[type(decision), unit_of(decision)] = decision
                case Cancel():
                    pass
                case Changed():
                    self.follow(decision)
                case RunFinished():
                    self.finish = decision
                case _:
                    assert_never(decision)

    @abstractmethod
    def follow(self, change: Changed) -> None:
        """Take in a change in the machine, such as a fork."""

    def over(
        self,
        entry: Outcome,
        fact: Outcome,
    ) -> None:
        """Take in that a unit is over, as the log says in `entry`. `fact` is its form for the machine."""
        unit = unit_of(entry)
        started = self.due.pop(unit, None)
        if started is None:  # it started in the run from which this one is forked
            started = StepStarted(entry.step_id, "", visit=entry.visit, branch=entry.branch, part=entry.part)
        self.past[unit] = Past(
            started,
            entry.timestamp,
            0.0 if isinstance(entry, StepCancelled) else entry.duration_ms,
            fact.error if isinstance(fact, StepFailed) else None,
            isinstance(entry, StepFinished) and entry.degraded,
        )
        self.tell(fact)


R = TypeVar("R", bound=Replay)


def replay_log(replay: R, recorded: Memo, place: str) -> R:
    """Tell a new replay the log of the pipeline or graph at a place, and return it.

    Raises:
        RunCorrupt: the log is not that of such a pipeline or graph.
    """
    for position, entry in recorded.history(place):
        if isinstance(entry, RunResumed):
            replay.resumed(entry)
        else:
            replay.read(position, entry)
    return replay


def divergence_of(replay: Replay, recorded: Memo, place: str) -> Divergence | None:
    """Return the first entry that a machine would not have decided, or where one is missing; else `None`.

    Entries that a fork has copied are not compared.
    """
    is_stopping, taken_over = False, recorded.taken_over
    for position, entry in recorded.history(place):
        if isinstance(entry, RunResumed):
            is_stopping = False
            replay.resumed(entry)
            continue
        is_stopping |= isinstance(entry, StopRequested)
        expected = _expected(replay, entry, is_stopping) if position > taken_over else None
        if expected is None:
            try:
                replay.read(position, entry)
            except RunCorrupt as error:
                expected = f"nothing of the kind, because {error.reason}"
        if expected is not None:
            return Divergence(position, expected, entry.in_short())
    return None


def other_run(trace: RunTrace, kind: MachineKind, name: str) -> Divergence | None:
    """Return the divergence of a run that has another name than the pipeline, graph or workflow, else `None`.

    Raises:
        ConfigurationError: it is a run of another kind.
    """
    if trace.kind != kind:
        whose = "rows have no replay" if trace.kind == "rows" else f"a {trace.kind} replays this one"
        expected = f"the trace of a run of a {kind}; {whose}: {trace.pipeline!r}"
        raise ConfigurationError("trace", trace, expected)
    if trace.pipeline != name:
        return Divergence(1, f"a run of {kind} {name!r}", f"a run of {kind} {trace.pipeline!r}")
    return None


def _expected(replay: Replay, entry: PlanFact, is_stopping: bool) -> str | None:
    """Return what was expected instead of the next entry, in words; `None` if the entry is as expected.

    `is_stopping` says whether the run was asked to stop, also by a time limit or a cancelled task.
    """
    if isinstance(entry, UnitDecision):
        unit = unit_of(entry)
        decided = replay.pending.get((type(entry), unit))
        if decided is not None:
            return None if entry.agrees(decided) else decided.in_short()
        if isinstance(entry, StepStarted) and replay.may_start(unit):
            return None
        return f"no {entry.noun} of {entry.step_id!r}"
    if isinstance(entry, RunFinished):
        return _expected_at_end(replay, entry, is_stopping)
    if isinstance(entry, QuestionAsked) and entry.name:
        return None  # a question of `ctx.ask`, which does not end its step
    if isinstance(entry, StepFact) and entry.of_running:
        unit = unit_of(entry)
        is_running = unit in replay.due and (StepStarted, unit) not in replay.pending
        return None if is_running else f"{entry.step_id!r} not running"
    return None


def _expected_at_end(replay: Replay, entry: RunFinished, is_stopping: bool) -> str | None:
    finish = replay.finish
    if entry.status == "cancelled" or (entry.status == "failed" and is_stopping):
        return None  # something around all steps has ended the run, such as its time limit
    if finish is None and entry.status != "finished":
        return None  # no machine can tell which steps would have run after
    for decided in sorted(replay.pending.values(), key=lambda one: isinstance(one, StepStarted)):
        return decided.in_short()
    if finish is None:
        return f"the run waiting for {', '.join(repr(step) for step, _ in replay.due)}"
    return None if finish.status == entry.status else f"the run {finish.status}, because {finish.reason}"
