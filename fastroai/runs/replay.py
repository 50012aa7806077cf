"""The one replay: the facts of a log are told to a new state machine, and may be compared with its decisions.

Resumed, forked and driven runs go on from the machine that was told. `trace.replay` compares.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeAlias, TypeVar, assert_never

from fastroai.errors import ConfigurationError, RunCorrupt
from fastroai.places import step_name
from fastroai.runs.machine import Cancel, Changed, Decided, Machine, Told, Unit, unit_of
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
from fastroai.store.recorded import PartEntry, RecordedRun, Stretch
from fastroai.store.trace import Divergence, RunTrace

_Decision: TypeAlias = StepStarted | StepSkipped | EdgesResolved
"""Decisions of a machine about a unit."""


class Replay(ABC):
    """A pipeline or graph of a run, as far as its machine was told the facts of the log.

    Kinds of runs differ in how their machine takes in an entry of the log, and in what a resumption undoes.
    """

    def __init__(self, machine: Machine, started: RunStarted) -> None:
        self.machine: Machine = machine
        self.due: dict[Unit, StepStarted] = {}
        """Units that have started and are not over, in the order in which they started."""
        self.cancelled: set[Unit] = set()
        """Units that were cancelled since they last started."""
        self.past: dict[Unit, Past] = {}
        """Units that are over and have not started again."""
        self.decided: list[_Decision] = []
        """The decisions so far; when the run goes on, only those that are not on record."""
        self.finish: RunFinished | None = None
        """The decision that ends or pauses the run; `None` while something goes on in it."""
        self.tell(started)

    @property
    def decisions(self) -> list[Decided]:
        """The decisions to carry out when the whole log is told."""
        return [*self.decided] if self.finish is None else [*self.decided, self.finish]

    @abstractmethod
    def read(self, position: int, entry: PartEntry) -> None:
        """Take in an entry of the log. Raises `RunCorrupt` if this machine cannot have led to the entry."""

    @abstractmethod
    def resumed(self) -> Collection[int]:
        """Take in that another process has taken the run up.

        Return the positions of entries that count no longer, because the run tries that work again. Then the
        log is told anew, without these entries.
        """

    def resumed_in_place(self) -> bool:
        """Take in a resumption without being told anew, if that is possible. Return whether it is."""
        return False

    @abstractmethod
    def go_on(self, stretches: Iterable[Stretch]) -> None:
        """Take in that this process takes the run up. `stretches` are the entries of earlier processes."""

    def undone(self, stretch: Stretch) -> Collection[int]:
        """Return the positions of entries of a process that count only until another takes the run up."""
        return ()

    def tell(self, fact: Told) -> None:
        """Let the machine take in a fact, and note its decisions."""
        has_ended = self.finish is not None and self.finish.status != "paused"
        is_too_late = has_ended and isinstance(fact, PauseRequested | StopRequested)
        if not is_too_late and not isinstance(fact, CheckpointSet):  # a checkpoint changes nothing
            self.finish = None
        for decision in self.machine.handle(fact):
            match decision:
                case StepStarted():
                    unit = unit_of(decision)
                    self.due[unit] = decision
                    self.cancelled.discard(unit)
                    self.past.pop(unit, None)
                    self.decided.append(decision)
                case StepSkipped() | EdgesResolved():
                    self.decided.append(decision)
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
        entry: StepFinished | StepFailed | StepCancelled | StepHalted | QuestionAsked,
        fact: StepFinished | StepFailed | StepCancelled | StepHalted | QuestionAsked,
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


def retold(begin: Callable[[], R], recorded: RecordedRun, place: str) -> R:
    """Tell a new machine the whole log of the pipeline or graph at a place, so that it can go on from there.

    Raises:
        RunCorrupt: the log is not that of such a pipeline or graph.
    """
    *history, last = recorded.stretches(place)
    replay = begin()
    dropped = {position for stretch in history for position in replay.undone(stretch)}
    while lost := _tell(replay, [*history, ()], dropped):
        dropped |= lost
        replay = begin()
    replay.go_on(history)
    for position, entry in last:
        replay.read(position, entry)
    return replay


def divergence_of(begin: Callable[[], Replay], recorded: RecordedRun, place: str) -> Divergence | None:
    """Return the first entry that a machine would not have decided, or where one is missing; else `None`."""
    stretches, dropped, seen = recorded.stretches(place), set[int](), 0
    while True:
        comparison = _Comparison(begin(), seen, recorded.taken_over)
        try:
            lost = _tell(comparison, stretches, dropped)
        except _Different as found:
            return found.divergence
        if not lost:
            return None
        dropped |= lost
        seen = comparison.seen


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


def _tell(told: Replay | _Comparison, stretches: Sequence[Stretch], dropped: Collection[int]) -> set[int]:
    """Tell the entries of each process. Return the positions of entries that must be dropped, if any."""
    for number, stretch in enumerate(stretches):
        if number:
            undone = {*told.undone(stretches[number - 1])}.difference(dropped)
            if lost := undone or told.resumed():
                return {*lost}
        for position, entry in stretch:
            if position not in dropped:
                told.read(position, entry)
    return set()


class _Different(Exception):  # signals a divergence, and is no error
    def __init__(self, divergence: Divergence) -> None:
        self.divergence = divergence


class _Comparison:
    """Compares entries with what a machine has decided before them."""

    def __init__(self, replay: Replay, seen: int, taken_over: int) -> None:
        """Compare entries after position `seen`, compared before, and `taken_over`, copied by a fork."""
        self._replay, self.seen, self._taken_over = replay, seen, taken_over
        self._pending: dict[tuple[type, Unit], _Decision] = {}
        """Decisions that are not on record yet."""
        self._is_stopping = False
        """Whether the run was asked to stop, also by a time limit or a cancelled task."""

    def undone(self, stretch: Stretch) -> Collection[int]:
        return self._replay.undone(stretch)

    def resumed(self) -> Collection[int]:
        """Take in that a process has taken the run up. Units that are not over start anew."""
        self._note_decisions()
        replay = self._replay
        if replay.finish is not None and replay.finish.status == "paused":
            replay.finish = None  # the run goes on
        replay.decided += [one for one in self._pending.values() if not isinstance(one, StepStarted)]
        lost = replay.resumed()
        replay.decided += replay.due.values()
        self._pending.clear()
        self._is_stopping = False
        return lost

    def read(self, position: int, entry: PartEntry) -> None:
        """Compare an entry with the decisions before it, and take the entry in."""
        self._note_decisions()
        expected = self._check(entry)
        if position > max(self.seen, self._taken_over):
            if expected is not None:
                raise _Different(Divergence(position, expected, _in_short(entry)))
            self.seen = position
        try:
            self._replay.read(position, entry)
        except RunCorrupt as error:
            expected = f"nothing like it, because {error.reason}"
            raise _Different(Divergence(position, expected, _in_short(entry))) from error

    def _note_decisions(self) -> None:
        decided = self._replay.decided
        self._pending |= {(type(one), unit_of(one)): one for one in decided}
        decided.clear()

    def _check(self, entry: PartEntry) -> str | None:
        """Return what was expected instead of the entry, in words; `None` if the entry is as expected."""
        match entry:
            case StepStarted() | StepSkipped() | EdgesResolved():
                return self._check_decision(entry)
            case QuestionAsked(name=name) if name:
                pass  # a question of `ctx.ask`, which does not end its step
            case StepFinished() | StepFailed() | StepCancelled() | StepHalted() | QuestionAsked():
                unit = unit_of(entry)
                is_running = unit in self._replay.due and (StepStarted, unit) not in self._pending
                return None if is_running else f"{entry.step_id!r} not running"
            case RunFinished():
                return self._check_end(entry)
            case StopRequested():
                self._is_stopping = True
            case SkipRequested() | IterationStarted() | IterationReported() | IterationAborted():
                return None if unit_of(entry) in self._replay.due else f"{entry.step_id!r} not running"
            case PauseRequested() | AnswerGiven() | BranchTimedOut() | ValueWritten() | MessagesAdded():
                pass
            case CheckpointSet() | CheckpointRestored() | SpendingRecorded():
                pass
            case _:
                assert_never(entry)
        return None

    def _check_decision(self, entry: _Decision) -> str | None:
        decided = self._pending.pop((type(entry), unit_of(entry)), None)
        if decided is None:
            return f"no {_NAMES[type(entry)]} of {entry.step_id!r}"
        return None if _is_same(decided, entry) else _in_short(decided)

    def _check_end(self, entry: RunFinished) -> str | None:
        finish = self._replay.finish
        if entry.status == "cancelled" or (entry.status == "failed" and self._is_stopping):
            return None  # something around all steps has ended the run, such as its time limit
        if finish is None and entry.status != "finished":
            return None  # no machine can tell which steps would have run after
        for decided in sorted(self._pending.values(), key=lambda one: isinstance(one, StepStarted)):
            return _in_short(decided)
        if finish is None:
            return f"the run waiting for {', '.join(repr(step) for step, _ in self._replay.due)}"
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
        case StepCancelled() | AnswerGiven() | BranchTimedOut() | ValueWritten() | MessagesAdded():
            return type(entry).__name__
        case SkipRequested() | IterationStarted() | IterationReported() | IterationAborted():
            return type(entry).__name__
        case CheckpointSet() | CheckpointRestored() | SpendingRecorded():
            return type(entry).__name__
        case PauseRequested() | StopRequested():
            return type(entry).__name__
        case _:
            assert_never(entry)
