"""The one replay: the facts of a log are told to a new state machine, and may be compared with its decisions.

Resumed, forked and driven runs go on from the machine that was told. `trace.replay` compares.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeAlias, TypeVar, assert_never

from fastroai.errors import ConfigurationError, RunCorrupt
from fastroai.places import step_name
from fastroai.runs.machine import (
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
from fastroai.runs.units import Past
from fastroai.runtime.facts import (
    AnswerGiven,
    BranchTimedOut,
    CheckpointRestored,
    CheckpointSet,
    EdgesResolved,
    IterationAborted,
    IterationReported,
    IterationStarted,
    MessagesAdded,
    PauseRequested,
    QuestionAsked,
    RunFinished,
    RunResumed,
    RunStarted,
    SkipRequested,
    SpendingRecorded,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepHalted,
    StepSkipped,
    StepStarted,
    StopRequested,
    ValueWritten,
)
from fastroai.store.definitions import RunKind
from fastroai.store.recorded import PartEntry, RecordedRun
from fastroai.store.trace import Divergence, RunTrace

_Decision: TypeAlias = StepStarted | StepSkipped | EdgesResolved
"""Decisions of a machine about a unit."""


class Replay(ABC):
    """A pipeline or graph of a run, as far as its machine was told the facts of the log.

    Kinds of runs differ in how their machine takes in an entry of the log.
    """

    def __init__(self, machine: Machine, started: RunStarted) -> None:
        self.machine: Machine = machine
        self.due: dict[Unit, StepStarted] = {}
        """Units that have started and are not over, in the order in which they started."""
        self.cancelled: set[Unit] = set()
        """Units that were cancelled since they last started."""
        self.past: dict[Unit, Past] = {}
        """Units that are over and have not started again."""
        self.pending: dict[tuple[type, Unit], _Decision] = {}
        """The decisions that are not on record, in order."""
        self.finish: RunFinished | None = None
        """The decision that ends or pauses the run; `None` while something goes on in it."""
        self.tell(started)

    @property
    def decisions(self) -> list[Decided]:
        """The decisions to carry out when the whole log is told."""
        pending = self.pending.values()
        return [*pending] if self.finish is None else [*pending, self.finish]

    def read(self, position: int, entry: PartEntry) -> None:
        """Take in an entry of the log. Raises `RunCorrupt` if this machine cannot have led to the entry."""
        if isinstance(entry, StepStarted | StepSkipped | EdgesResolved):
            self.pending.pop((type(entry), unit_of(entry)), None)
        self._read(position, entry)

    @abstractmethod
    def _read(self, position: int, entry: PartEntry) -> None:
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
        if not is_too_late and not isinstance(fact, CheckpointSet):  # a checkpoint changes nothing
            self.finish = None
        self.note(self.machine.handle(fact))

    def note(self, decisions: Sequence[Decision]) -> None:
        """Note decisions of the machine."""
        for decision in decisions:
            match decision:
                case StepStarted():
                    unit = unit_of(decision)
                    self.due[unit] = decision
                    self.cancelled.discard(unit)
                    self.past.pop(unit, None)
                    self.pending[StepStarted, unit] = decision
                case StepSkipped() | EdgesResolved():
                    self.pending[type(decision), unit_of(decision)] = decision
                case Cancel(units):
                    self.cancelled.update(units)
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


def replay_log(replay: R, recorded: RecordedRun, place: str) -> R:
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


def divergence_of(replay: Replay, recorded: RecordedRun, place: str) -> Divergence | None:
    """Return the first entry that a machine would not have decided, or where one is missing; else `None`.

    Entries that a fork has copied are not compared.
    """
    is_stopping = False
    for position, entry in recorded.history(place):
        if isinstance(entry, RunResumed):
            is_stopping = False
            replay.resumed(entry)
            continue
        is_stopping |= isinstance(entry, StopRequested)
        expected = _expected(replay, entry, is_stopping) if position > recorded.taken_over else None
        if expected is None:
            try:
                replay.read(position, entry)
            except RunCorrupt as error:
                expected = f"nothing like it, because {error.reason}"
        if expected is not None:
            return Divergence(position, expected, _in_short(entry))
    return None


def other_run(trace: RunTrace, kind: RunKind, name: str) -> Divergence | None:
    """Return the divergence of a run that has another name than the pipeline, graph or workflow, else `None`.

    Raises:
        ConfigurationError: it is a run of another kind.
    """
    if trace.kind != kind:
        expected = f"the trace of a run of a {kind}; a {trace.kind} replays this one: {trace.pipeline!r}"
        raise ConfigurationError("trace", trace, expected)
    if trace.pipeline != name:
        return Divergence(1, f"a run of {kind} {name!r}", f"a run of {kind} {trace.pipeline!r}")
    return None


def _expected(replay: Replay, entry: PartEntry, is_stopping: bool) -> str | None:
    """Return what was expected instead of the next entry, in words; `None` if the entry is as expected.

    `is_stopping` says whether the run was asked to stop, also by a time limit or a cancelled task.
    """
    match entry:
        case StepStarted() | StepSkipped() | EdgesResolved():
            decided = replay.pending.get((type(entry), unit_of(entry)))
            if decided is None and isinstance(entry, StepStarted) and replay.may_start(unit_of(entry)):
                return None
            if decided is None:
                return f"no {_NAMES[type(entry)]} of {entry.step_id!r}"
            return None if _is_same(decided, entry) else _in_short(decided)
        case QuestionAsked(name=name) if name:
            return None  # a question of `ctx.ask`, which does not end its step
        case StepFinished() | StepFailed() | StepCancelled() | StepHalted() | QuestionAsked():
            unit = unit_of(entry)
            is_running = unit in replay.due and (StepStarted, unit) not in replay.pending
            return None if is_running else f"{entry.step_id!r} not running"
        case SkipRequested() | IterationStarted() | IterationReported() | IterationAborted():
            return None if unit_of(entry) in replay.due else f"{entry.step_id!r} not running"
        case RunFinished():
            return _expected_at_end(replay, entry, is_stopping)
        case PauseRequested() | StopRequested() | AnswerGiven() | BranchTimedOut() | ValueWritten():
            return None
        case MessagesAdded() | CheckpointSet() | CheckpointRestored() | SpendingRecorded():
            return None
        case _:
            assert_never(entry)


def _expected_at_end(replay: Replay, entry: RunFinished, is_stopping: bool) -> str | None:
    finish = replay.finish
    if entry.status == "cancelled" or (entry.status == "failed" and is_stopping):
        return None  # something around all steps has ended the run, such as its time limit
    if finish is None and entry.status != "finished":
        return None  # no machine can tell which steps would have run after
    for decided in sorted(replay.pending.values(), key=lambda one: isinstance(one, StepStarted)):
        return _in_short(decided)
    if finish is None:
        return f"the run waiting for {', '.join(repr(step) for step, _ in replay.due)}"
    return None if finish.status == entry.status else f"the run {finish.status}, because {finish.reason}"


_NAMES = {StepStarted: "start", StepSkipped: "skip", EdgesResolved: "end"}


def _is_same(decided: _Decision, entry: _Decision) -> bool:
    match entry:
        case StepStarted():  # a resumed run may give a shorter cause, without the step that was waited for
            assert isinstance(decided, StepStarted)
            return entry.cause.startswith(decided.cause) or decided.cause.startswith(entry.cause)
        case StepSkipped():
            assert isinstance(decided, StepSkipped)
            return entry.cause == decided.cause
        case EdgesResolved():
            assert isinstance(decided, EdgesResolved)
            outcomes = ([(edge.target, edge.taken) for edge in one.edges] for one in (entry, decided))
            return next(outcomes) == next(outcomes)
        case _:
            assert_never(entry)


def _in_short(entry: PartEntry) -> str:
    """Describe an entry in a few words."""
    match entry:
        case StepStarted():
            return f"{step_name(entry.place)!r} started, because {entry.cause}"
        case StepSkipped():
            return f"{step_name(entry.place)!r} skipped, because {entry.cause}"
        case StepFinished():
            return f"an output of {step_name(entry.place)!r}"
        case StepFailed():
            return f"a failure of {step_name(entry.place)!r}"
        case QuestionAsked():
            return f"a question of {step_name(entry.place)!r}"
        case EdgesResolved():
            targets = [edge.target for edge in entry.edges if edge.taken]
            return f"{step_name(entry.place)!r} followed by {', '.join(map(repr, targets)) or 'nothing'}"
        case RunFinished():
            return f"the run {entry.status}"
        case StepHalted():
            waits = "waiting for an answer" if entry.waits else "paused"
            return f"{step_name(entry.place)!r} {waits}"
        case SkipRequested() | IterationStarted() | IterationReported() | IterationAborted():
            return type(entry).__name__
        case StepCancelled() | AnswerGiven() | BranchTimedOut() | ValueWritten() | MessagesAdded():
            return type(entry).__name__
        case CheckpointSet() | CheckpointRestored() | SpendingRecorded() | PauseRequested() | StopRequested():
            return type(entry).__name__
        case _:
            assert_never(entry)
